"""`stockade code` as it is typed: the real command, the real sandbox, a scripted model."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.cli.conftest import PATIENCE_S, Stage
from tests.cli.test_terminal import QUESTION, Terminal
from tests.support.tmux import Screen
from tests.unit.plugins.coder.test_loop import wheel


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """A web server of the folder on loopback; its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


GOOD = "### Requirements\nnone\n### Code\n```python\ndef add(a, b):\n    return a + b\n```"
WRONG = GOOD.replace("a + b", "a - b")
ADD = "def add(a, b):\n    return a + b\n"


def test_a_program_is_mended_until_its_example_holds(stage: Stage) -> None:
    ended = stage.call("code", "Write add(a, b).", "--example", "add(1, 2) == 3", "--model", stage.script(WRONG, GOOD))
    assert (ended.status, ended.out) == (0, f"{ADD}\n"), ended.err
    attempts = ["attempt 1: add(1, 2) gave -1, expected 3", "attempt 2: passed"]
    assert ended.err.splitlines()[-3:-1] == attempts
    assert "done · verified · 2 turns" in ended.err
    for plumbing in ("job.json", "main.py", "runner.py", "mkdir", "plugins/coder", "to the bot"):
        assert plumbing not in ended.err
    assert stage.left_behind() == []


def test_what_became_of_each_attempt_is_said(stage: Stage) -> None:
    answers = ("Of course!", WRONG, GOOD.replace("a + b", "a + c"), GOOD.replace("(a, b)", "(x, b)"), GOOD)
    task = "Write add(a, b). add(1, 2) == 3, add(2, 2) == 4"
    ended = stage.call("code", task, "--model", stage.script(*answers), "--repairs", "9")
    assert (ended.status, ended.out) == (0, f"{ADD}\n"), ended.err
    assert [line for line in ended.err.splitlines() if line.startswith("attempt ")] == [
        "attempt 1: there is no program in the answer: write it under ### Code, in a python fence.",
        "attempt 2: add(1, 2) gave -1, expected 3 (2 of 2 checks failed)",
        "attempt 3: add(1, 2) raised NameError: name 'c' is not defined (2 of 2 checks failed)",
        "attempt 4: add takes other parameters than wanted: it must be def add(a, b).",
        "attempt 5: passed",
    ]


def test_without_checks_what_the_program_prints_is_shown(stage: Stage) -> None:
    program = "### Code\n```python\nfor n in range(2):\n    print(n, '\\x1b[2J')\n```"
    ended = stage.call("code", "Count.", "--model", stage.script(program))
    assert ended.status == 0, ended.err
    assert "attempt 1: it ran\n0 \\x1b[2J\n1 \\x1b[2J\n" in ended.err


ADDS = "### Code\n```python\nimport sys\nprint(int(input('first? ')) + sum(int(line) for line in sys.stdin))\n```"


def test_a_program_that_asks_reads_what_it_is_given(stage: Stage) -> None:
    ended = stage.call("code", "Add.", "--stdin", "1\n2\n3", "--model", stage.script(ADDS))
    assert ended.status == 0, ended.err
    assert "attempt 1: it ran\nfirst? 6\n" in ended.err
    (stage.tmp_path / "numbers").write_text("4\n5\n")
    ended = stage.call("code", "Add.", "--stdin", f"@{stage.tmp_path / 'numbers'}", "--model", stage.script(ADDS))
    assert "first? 9\n" in ended.err
    without = stage.call("code", "Add.", "--model", stage.script(ADDS), "--repairs", "0", "--fresh-starts", "0")
    assert (without.status, "EOFError" in without.err) == (1, True), without.err


def test_every_attempt_reads_it_from_its_beginning(stage: Stage) -> None:
    wrong = ADDS.replace("+ sum", "+ nothing + sum")
    ended = stage.call("code", "Add.", "--stdin", "1\n2", "--json", "--model", stage.script(wrong, ADDS))
    assert ended.status == 0, ended.err
    assert [one["passed"] for one in ended.result["code"]["attempts"]] == [False, True]
    missing = stage.call("code", "Add.", "--stdin", "@nowhere", "--model", stage.script(ADDS))
    assert (missing.status, "--stdin nowhere: No such file" in missing.err) == (2, True), missing.err


def test_a_library_comes_from_an_index_through_the_proxy(stage: Stage) -> None:
    """An index of this machine, which pip asks as it asks PyPI; what was asked for is on record."""
    package = stage.tmp_path / "index" / "simple" / "sevens"
    wheel(package, "sevens")
    (package / "index.html").write_text('<a href="sevens-1.0-py3-none-any.whl">sevens-1.0-py3-none-any.whl</a>')
    program = "### Requirements\nsevens\n### Code\n```python\nfrom sevens import seven\nprint(seven() * 6)\n```"
    with serving(stage.tmp_path / "index") as port:
        flags = ("--net", f"localhost:{port}", "--env", f"PIP_INDEX_URL=http://127.0.0.1:{port}/simple")
        ended = stage.call("code", "Print 42.", *flags, "--model", stage.script(program))
    assert (ended.status, "attempt 1: it ran\n42\n" in ended.err) == (0, True), ended.err
    told = stage.call("runs", "export", "last", "--format", "jsonl").events
    asked = [one for one in told if one["type"] == "network_requested"]
    assert {(one["host"], one["port"], one["verdict"]) for one in asked} == {("localhost", port, "allowed")}


def test_verbose_shows_every_step(stage: Stage) -> None:
    ended = stage.call("code", "add(1, 2) == 3", "--model", stage.script(WRONG, GOOD), "-v")
    assert "write_file /tmp/attempts/2/main.py" in ended.err
    assert "add(1, 2)" in ended.err


def test_what_the_user_wants_changed_is_done_in_the_same_sandbox(stage: Stage) -> None:
    answers = (WRONG, GOOD, GOOD.replace("a + b", "a + b + 1 - 1"))
    script, folder = stage.script(*answers), stage.demo
    screen = Terminal(stage, "code", "add(1, 2) == 3", "--model", script, "--folder", str(folder))
    screen.until(QUESTION)
    screen.type(b"Also add(0, 0) == 0, please.\n")
    screen.until(QUESTION)
    assert screen.seen.count(b"attempt 1: ") == 1
    screen.type(b"y\n")
    assert screen.status() == 0
    assert (folder / "solution.py").read_text() == ADD.replace("a + b", "a + b + 1 - 1")
    found = stage.call("runs", "show", "--json").events
    assert [event["task"] for event in found if event["type"] == "run_resumed"] == ["Also add(0, 0) == 0, please."]
    wrote = [event["action"]["action"]["content"] for event in found if event["type"] == "action_started"
             and event["action"]["action"].get("path", "").endswith("job.json")]  # fmt: skip
    assert [len(json.loads(text)["examples"]) for text in wrote] == [1, 2]


def test_without_a_task_it_asks_for_one_after_the_other_and_keeps_each_program(stage: Stage) -> None:
    arguments = ["code", "--folder", str(stage.demo), "--model", stage.script(GOOD), "--apply"]
    screen = Screen(stage.tmp_path, arguments, stage.demo, stage.environment(), PATIENCE_S)
    try:
        screen.until("Ctrl-D leaves")
        for number, name in ((1, "solution.py"), (2, "solution_2.py")):
            screen.type(f"add({number}, 2) == {number + 2}\r")
            screen.until(f"> add({number}, 2)", "attempt 1: passed", f"applied: {name}", "Ctrl-D leaves")
            assert (stage.demo / name).read_text() == ADD
        screen.type("exit\r")
        assert screen.status() == 0
    finally:
        screen.close()
    runs = [json.loads(line)["task"] for line in stage.call("runs", "list", "--json").out.splitlines()]
    assert runs == ["add(2, 2) == 4", "add(1, 2) == 3"]


def test_the_coder_is_a_bot_and_says_which_settings_it_has_no_use_for(stage: Stage) -> None:
    arguments = ("run", "add(1, 2) == 3", "--bot", "coder", "--tool", "memory", "--folder", str(stage.demo))
    ended = stage.call(*arguments, "--model", stage.script(WRONG, GOOD))
    assert (ended.status, ended.out) == (0, f"{ADD}\n"), ended.err
    assert "the bot coder has a way of its own to work, and no use for: tool" in ended.err
    assert "done · verified · 2 turns" in ended.err


def test_what_the_users_check_says_is_told_to_the_model_and_mended(stage: Stage) -> None:
    noted = GOOD.replace("    return a + b", '    """The sum."""\n    return a + b')
    arguments = ("code", "add(1, 2) == 3", "--folder", str(stage.demo), "--json")
    check = "grep -q sum solution.py || { echo 'a docstring that says what it gives is missing'; exit 1; }"
    ended = stage.call(*arguments, "--model", stage.script(WRONG, GOOD, noted), "--check", check, "--apply")
    assert ended.status == 0, ended.err
    events = [json.loads(line) for line in ended.out.splitlines()]
    result = events[-1]
    assert (result["turns"], result["verified"]) == (3, True)
    assert [one["passed"] for one in events if one["type"] == "check_finished"] == [False, True]
    assert [one["words"] for one in result["code"]["attempts"]][1] == (
        f"The program passes its own checks, but `{check}` does not pass with it. The command ended with exit status 1."
        " Output:\na docstring that says what it gives is missing"
    )
    told = [one["text"] for one in events if one["type"] == "message_injected"][-1]
    assert "a docstring that says what it gives is missing" in told
    assert "The sum" in (stage.demo / "solution.py").read_text()


def test_a_check_that_never_passes_ends_with_the_last_attempt(stage: Stage) -> None:
    before = stage.tree()
    arguments = ("run", "add(1, 2) == 3", "--bot", "coder", "--folder", str(stage.demo), "--apply")
    answers = [GOOD.replace("a + b", f"a + b + {number} * 0") for number in range(8)]
    ended = stage.call(*arguments, "--model", stage.script(*answers), "--check", "false")
    assert (ended.status, "(check failed: 8 attempts failed" in ended.err) == (1, True), ended.err
    assert stage.tree() == before


def test_without_a_folder_it_is_listed_with_none_and_its_check_begins_in_the_workspace(stage: Stage) -> None:
    ended = stage.call("code", "print x", "--no-folder", "--check", "pwd; false", "--model", stage.script(GOOD))
    assert ended.status == 1, ended.err
    assert "check $ pwd; false\n/workspace\n" in ended.err
    assert stage.call("runs", "list", "--json").events[0]["folder"] == ""


def test_the_record_of_it_is_shown_done_again_and_exported(stage: Stage) -> None:
    assert stage.call("code", "add(1, 2) == 3", "--model", stage.script(WRONG, GOOD), "--quiet").status == 0
    shown = stage.call("runs", "show")
    assert "attempt 1: add(1, 2) gave -1, expected 3\n" in shown.out
    assert "write_file /tmp/attempts/2/main.py" in stage.call("runs", "show", "--full").out
    replayed = stage.call("runs", "replay", "last", "--verify")
    assert replayed.status == 0, replayed.out + replayed.err
    exported = stage.call("runs", "export", "last")
    assert exported.status == 0
    assert "add(1, 2)" in exported.out
    again = stage.call("runs", "resume", "last")
    assert again.status == 2
    assert "is done" in again.err
    assert "say what to change" in again.err


def test_a_program_goes_to_the_folder_as_a_change(stage: Stage) -> None:
    before = stage.tree()
    arguments = ("code", "add(1, 2) == 3", "--folder", str(stage.demo), "--output", "lib/adding.py")
    ended = stage.call(*arguments, "--model", stage.script(GOOD), "--apply")
    assert ended.status == 0, ended.err
    assert stage.tree() == before | {"lib/adding.py": ADD.encode()}
    assert "+++ b/lib/adding.py" in ended.err


def test_a_program_that_never_passes_is_shown_and_not_applied(stage: Stage) -> None:
    before = stage.tree()
    ended = stage.call(
        "code", "add(1, 2) == 3", "--folder", str(stage.demo), "--model", stage.script(WRONG, WRONG), "--apply",
        "--repairs", "1", "--fresh-starts", "0",
    )  # fmt: skip
    assert ended.status == 1
    assert ended.out == f"{ADD.replace('+', '-')}\n"
    assert "2 attempts failed, the best passes 0 of 1 checks" in ended.err
    assert stage.tree() == before


def test_json(stage: Stage) -> None:
    ended = stage.call("code", "add(1, 2) == 3", "--model", stage.script(WRONG, GOOD), "--json")
    assert ended.result["answer"] == ADD
    found = ended.result["code"]
    assert (found["status"], found["code"], found["stdout"], found["error"]) == ("success", ADD, "", "")
    assert [(one["number"], one["passed"], one["exit_code"]) for one in found["attempts"]] == [
        (1, False, 1),
        (2, True, 0),
    ]
    assert "gave -1" in found["attempts"][0]["words"]
    assert (ended.result["status"], ended.result["verified"]) == ("done", True)


def test_tests_from_a_file(stage: Stage) -> None:
    tests = stage.tmp_path / "test_add.py"
    tests.write_text("from solution import add\n\ndef test_add():\n    assert add(2, 2) == 4\n")
    ended = stage.call("code", "Write add.", "--tests", str(tests), "--model", stage.script(WRONG, GOOD), "--quiet")
    assert (ended.status, ended.out, ended.err) == (0, f"{ADD}\n", "")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--tests", "/nowhere.py"), "No such file"),
        (("--example", "it works"), "is not understood"),
        (("--repairs", "-1"), "--repairs"),
        (("--attempt-timeout", "0"), "--attempt-timeout"),
        (("--output", "../../x.py"), "--output"),
        (("--output", "/etc/x.py"), "--output"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_line(stage: Stage, flags: tuple[str, ...], words: str) -> None:
    ended = stage.call("code", "Write add.", "--model", stage.script(GOOD), *flags)
    assert ended.status == 2
    assert words in ended.err
    assert len(ended.err.splitlines()) <= 2  # the cause, and the way out
    assert ended.out == ""


@pytest.mark.parametrize("text", ["x = (", "x = 1\n", "", "# nothing"])
def test_test_files_that_test_nothing(stage: Stage, tmp_path: Path, text: str) -> None:
    (tmp_path / "t.py").write_text(text)
    ended = stage.call("code", "Write add.", "--model", stage.script(GOOD), "--tests", str(tmp_path / "t.py"))
    assert ended.status == 2
    assert "the tests" in ended.err


def test_no_task(stage: Stage) -> None:
    assert "there is no task" in stage.call("code").err
