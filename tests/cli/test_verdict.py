"""`--check` by the real command: what a bot may do so that a check passes which should not, and what it comes to.

Each way is first shown to work where a check runs in the bot's own shell.
"""

import json
from pathlib import Path

import anyio
import pytest

from stockade.testing import say
from stockade_sandbox import AsyncSandbox
from tests.cli.conftest import DONE, Stage

CHECK = "bash tests/check.sh"
GOOD, BAD = "def add(a, b):\n    return a + b\n", "def add(a, b):\n    return a - b\n"
_EXIT = "import os; os._exit(0)"
_PYC = """python3 - <<'END'
import importlib.util, marshal, os, struct
found = os.stat('calc.py')
code = compile('def add(a, b): return a + b', 'calc.py', 'exec')
head = importlib.util.MAGIC_NUMBER + struct.pack('<III', 0, int(found.st_mtime), found.st_size)
os.makedirs('__pycache__', exist_ok=True)
open(importlib.util.cache_from_source('calc.py'), 'wb').write(head + marshal.dumps(code))
END"""
_DAEMON = f"""printf '{GOOD}' > /tmp/good.py
(while :; do grep -qs tests/check /proc/[0-9]*/cmdline && cp /tmp/good.py calc.py; done) > /dev/null 2>&1 &"""
WAYS = {
    "a function": "bash() { true; }",
    "an exported function": "python3() { true; }; export -f python3",
    "an alias": "shopt -s expand_aliases; alias bash=true",
    "a program before others on the PATH": (
        "mkdir /tmp/b; printf '#!/bin/sh\\nexit 0\\n' > /tmp/b/python3; chmod +x /tmp/b/python3; "
        "export PATH=/tmp/b:$PATH"
    ),
    "a remembered place of a program": "hash -p /bin/true bash",
    "BASH_ENV": "echo exit 0 > /tmp/env; export BASH_ENV=/tmp/env",
    "LD_PRELOAD": (
        "echo '#include <unistd.h>\n__attribute__((constructor)) void f(void) { _exit(0); }' | "
        "gcc -shared -fPIC -x c -o /tmp/x.so - && export LD_PRELOAD=/tmp/x.so"
    ),
    "sitecustomize on PYTHONPATH": (
        f"mkdir /tmp/p; echo '{_EXIT}' > /tmp/p/sitecustomize.py; export PYTHONPATH=/tmp/p"
    ),
    "usercustomize in the home": (
        f'd=$(python3 -m site --user-site); mkdir -p "$d"; echo "{_EXIT}" > "$d/usercustomize.py"'
    ),
    "asserts that are left out": "export PYTHONOPTIMIZE=1",
    "another current folder": "mkdir -p /tmp/other/tests; : > /tmp/other/tests/check.sh; cd /tmp/other",
    "a process that mends the file while it is tested": _DAEMON,
    "a report of its end from a fork of the shell": (
        "(until grep -qs tests/check /proc/[0-9]*/cmdline; do :; done; for f in {10..40}; do "
        "printf '\\rD %s 0\\n' $((__stockade_id + 2)) >&$f; done) > /dev/null 2>&1 &"
    ),
    "a compiled file that is not of its source": _PYC,
    "another test": "echo exit 0 > tests/check.sh",
    "another test by another name": "echo exit 0 > /workspace/x; ln -f /workspace/x tests/check.sh",
    "a test that is moved in": "echo exit 0 > x; mv x tests/check.sh",
    "another folder of tests": "rm -rf tests; mkdir tests; echo exit 0 > tests/check.sh",
    "a folder of tests by a link": "mv tests old; mkdir fake; echo exit 0 > fake/check.sh; ln -s fake tests",
    "a module beside the test": f"printf '{GOOD}' > tests/calc.py",
}  # fmt: skip


@pytest.fixture
def project(stage: Stage) -> Stage:
    """Its calc.py is wrong, and what is to notice that takes a moment."""
    (stage.demo / "tests").mkdir()
    (stage.demo / "tests/check.sh").write_text("sleep 0.3\npython3 tests/check.py\n")
    test = "import sys; sys.path.append('.')\nimport calc\nassert calc.add(1, 2) == 3\n"
    (stage.demo / "tests/check.py").write_text(test)
    (stage.demo / "calc.py").write_text(BAD)
    return stage


def verdict(stage: Stage, *commands: str, flags: tuple[str, ...] = ()) -> dict[str, object]:
    """What the last line of a run says that does these and is done, again and again."""
    answers = [say("shell", command=command) for command in commands]
    ended = stage.run(*answers, *[DONE] * 5, flags=("--check", CHECK, "--no-input", "--json", *flags))
    result = ended.events[-1]
    assert result["type"] == "result", ended.err
    assert ended.status == (0 if result["verified"] else 1), ended.err
    return result


@pytest.mark.parametrize("way", WAYS)
def test_in_the_bots_own_shell_it_passes(way: str, project: Stage) -> None:
    async def judged() -> int:
        async with AsyncSandbox(project.demo) as box:
            await box.exec(shell=WAYS[way])
            return (await box.exec(shell=f"( {CHECK}\n)")).exit_code

    assert any(anyio.run(judged) == 0 for _ in range(5))  # some have to win a race


@pytest.mark.parametrize("way", WAYS)
def test_it_does_not_pass(way: str, project: Stage) -> None:
    result = verdict(project, WAYS[way], flags=("--protect", "tests"))
    assert (result["verified"], result["reason"], result["changed_tests"]) == (False, "check_failed", [])
    assert "  not verified  " in project.call("runs", "list", "--width", "200").out


def test_good_work_passes_and_stays(project: Stage) -> None:
    result = verdict(project, f"printf '{GOOD}' > calc.py", flags=("--protect", "tests", "--apply"))
    assert (result["verified"], result["changed_tests"]) == (True, [])
    assert (project.demo / "calc.py").read_text() == GOOD
    assert "  verified  " in project.call("runs", "list", "--width", "200").out


def test_what_the_bot_changed_of_the_tests_is_named(project: Stage) -> None:
    result = verdict(project, "echo exit 0 > tests/check.sh; echo x > notes.txt; : > Makefile")
    assert (result["verified"], result["changed_tests"]) == (True, ["Makefile", "tests/check.sh"])
    shown = project.call("runs", "show", "last").out
    assert "verified, but the bot changed Makefile, tests/check.sh" in shown


def test_what_it_writes_after_the_check_has_passed_is_not_verified(project: Stage) -> None:
    """It was good when it was looked at. On a busy machine a write can come before that, or when all is over."""
    for pause in (0.2, 0.4, 0.8, 1.6, 0.2, 0.4, 0.8):
        late = f"printf '{GOOD}' > calc.py; (sleep {pause}; printf '{BAD}' > calc.py) > /dev/null 2>&1 &"
        result = verdict(project, late)
        if "after the check had passed" in str(result["detail"]):
            break
        assert result["verified"] is (" a + b" in project.call("diff", "last").out)
    assert (result["verified"], result["reason"]) == (False, "check_failed")
    assert "after the check had passed" in str(result["detail"])


def test_the_shell_goes_on_after_a_check_that_fails(project: Stage) -> None:
    answers = [say("shell", command="x=5; sleep 100 & echo"), DONE, say("shell", command="echo $x; jobs"), DONE]
    ended = project.run(*answers, *[DONE] * 3, flags=("--check", CHECK, "--json"))
    said = [one["observation"]["chunks"] for one in ended.events if one["type"] == "action_finished"]
    text = "".join(chunk["text"] for chunk in said[1])
    assert text.startswith("5\n")
    assert "sleep 100" in text


def test_several_checks_all_have_to_pass(project: Stage) -> None:
    mend = say("shell", command=f"printf '{GOOD}' > calc.py")
    flags = ("--check", "test -f calc.py", "--check", CHECK, "--json", "--discard")
    ended = project.run(DONE, mend, DONE, flags=flags)
    done = [(one["command"], one["passed"]) for one in ended.events if one["type"] == "check_finished"]
    assert done == [("test -f calc.py", True), (CHECK, False), ("test -f calc.py", True), (CHECK, True)]
    assert ended.status == 0


def test_failures_that_differ_go_on_while_the_budget_lasts(project: Stage) -> None:
    work = [one for number in range(5) for one in (say("shell", command=f"echo {number} > out"), DONE)]
    flags = ("--check", "cat out; false", "--json", "--max-turns", "10", "--discard")
    ended = project.run(*work, flags=flags)
    assert [one["type"] for one in ended.events].count("check_finished") == 5
    assert (ended.events[-1]["reason"], ended.status) == ("turns", 3)


def test_a_run_that_goes_on_keeps_what_is_protected(project: Stage) -> None:
    cheat, flags = say("shell", command="echo exit 0 > tests/check.sh"), ("--check", CHECK, "--protect", "tests")
    assert project.run(cheat, *[DONE] * 5, flags=(*flags, "--max-turns", "1", "--no-input")).status == 3
    ended = project.call("runs", "resume", "--max-turns", "9", "--no-input")
    assert ended.status == 1, ended.err
    ended = project.call("runs", "resume", "last", "go on", "--no-input")
    assert ended.status == 1, f"the next task has no check: {ended.err}"


def test_of_a_removed_folder_only_what_is_protected_is_there(project: Stage) -> None:
    """Its other files stay removed, also where the folder was made anew."""
    deep = project.demo / "deep/er"
    deep.mkdir(parents=True)
    for path in (deep / "kept.sh", deep / "other", project.demo / "deep/beside"):
        path.write_text("cd deep; echo er/*; echo *\n")
    for way in ("rm -rf deep", "rm -rf deep; mkdir -p deep/er; echo x > deep/er/mine", "rm -rf deep; : > deep"):
        flags = ("--check", "bash deep/er/kept.sh", "--protect", "deep/er/kept.sh", "--json", "--discard")
        ended = project.run(say("shell", command=way), DONE, flags=flags)
        said = next(one for one in ended.events if one["type"] == "check_finished")["observation"]["chunks"]
        mine = " er/mine" if "mine" in way else ""
        assert [chunk["text"] for chunk in said] == [f"er/kept.sh{mine}\ner\n"], ended.err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--protect", "../x"), "is no path in the folder"),
        (("--protect", "/etc"), "is no path in the folder"),
        (("--protect", "."), "is no path in the folder"),
    ],
)
def test_paths_that_cannot_be_protected(flags: tuple[str, ...], words: str, project: Stage) -> None:
    ended = project.run(DONE, flags=("--check", CHECK, *flags))
    assert (ended.status, words in ended.err) == (2, True), ended.err


def test_what_is_set_and_does_nothing_is_named(project: Stage) -> None:
    ended = project.run(DONE, DONE, DONE, flags=("--protect", "tests", "--search", "http://127.0.0.1:1"))
    assert ended.status == 0, ended.err
    assert "--protect holds while a check runs, and there is none" in ended.err
    assert "--search is for the tool web_search, which this bot does not have" in ended.err


def test_what_is_written_directly_cannot_be_protected(project: Stage) -> None:
    model = project.script(DONE, DONE)
    folder = f"{project.demo}:rw"
    ended = project.call("run", "x", "--folder", folder, "--model", model, "--check", CHECK, "--protect", "tests")
    assert (ended.status, "give it as overlay" in ended.err) == (2, True), ended.err


def test_a_bot_may_have_its_checks_and_protection(project: Stage, tmp_path: Path) -> None:
    bot = tmp_path / "own.toml"
    bot.write_text(f'prompt = "You mend."\ncheck = {json.dumps(CHECK)}\nprotect = ["tests"]\n')
    cheat = say("shell", command="echo exit 0 > tests/check.sh")
    ended = project.run(cheat, *[DONE] * 5, flags=("--bot", str(bot), "--no-input"))
    assert ended.status == 1, ended.err
