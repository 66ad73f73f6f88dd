"""`stockade code` as it is typed: the real command, the real sandbox, a scripted model."""

import json
import re
import signal
import urllib.request
from pathlib import Path

import pytest

from tests.cli.conftest import Stage

GOOD = "### Requirements\nnone\n### Code\n```python\ndef add(a, b):\n    return a + b\n```"
WRONG = GOOD.replace("a + b", "a - b")
ADD = "def add(a, b):\n    return a + b\n"


def test_a_program_is_mended_until_its_example_holds(stage: Stage) -> None:
    ended = stage.call("code", "Write add(a, b).", "--example", "add(1, 2) == 3", "--model", stage.script(WRONG, GOOD))
    assert (ended.status, ended.out) == (0, f"{ADD}\n"), ended.err
    assert "must give `3`, not `-1`" in ended.err
    assert "done · verified · 2 turns" in ended.err
    assert stage.left_behind() == []


def test_the_coder_is_a_bot_and_says_which_settings_it_has_no_use_for(stage: Stage) -> None:
    arguments = ("run", "add(1, 2) == 3", "--bot", "coder", "--check", "false", "--tool", "memory")
    ended = stage.call(*arguments, "--model", stage.script(WRONG, GOOD))
    assert (ended.status, ended.out) == (0, f"{ADD}\n"), ended.err
    assert "the bot coder has a way of its own to work, and no use for: tool, check" in ended.err
    assert "done · verified · 2 turns" in ended.err


def test_the_record_of_it_is_shown_done_again_and_exported(stage: Stage) -> None:
    assert stage.call("code", "add(1, 2) == 3", "--model", stage.script(WRONG, GOOD), "--quiet").status == 0
    shown = stage.call("runs", "show")
    assert "write_file /tmp/attempts/2/main.py" in shown.out
    replayed = stage.call("runs", "replay", "last", "--verify")
    assert replayed.status == 0, replayed.out + replayed.err
    exported = stage.call("runs", "export", "last")
    assert exported.status == 0
    assert "add(1, 2)" in exported.out
    again = stage.call("runs", "resume", "last")
    assert again.status == 2
    assert "is done" in again.err
    assert "stockade code" in again.err


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
        (("--serve", ":0"), "--serve takes its tasks over HTTP"),
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
    assert "--folder is for one task" in stage.call("code", "--serve", ":0", "--folder", str(stage.demo)).err
    assert "others could use it" in stage.call("code", "--serve", "0.0.0.0:0").err


def test_the_service_works_and_ends_in_order(stage: Stage) -> None:
    process = stage.start("code", "--serve", "127.0.0.1:0", "--model", stage.script(WRONG, GOOD), "--json")
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["url"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
    body = json.dumps({"query": "Write add.", "examples": ["add(1, 2) == 3"]}).encode()
    request = urllib.request.Request(f"{url}/query", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=240) as answer:
        (found,) = json.load(answer)
    assert (found["status"], found["code"], found["attempts"]) == ("success", ADD, 2)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=240) == 0
    assert found["run"] in stage.call("runs", "list").out
    assert stage.left_behind() == []
