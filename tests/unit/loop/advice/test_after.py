"""What a bot is told about a command that went wrong in a way that small models do not see."""

from pathlib import Path

import pytest

from stockade.core.actions import RUN_THIS, Chunk, CommandOutput
from stockade.loop.advice import after, searches
from stockade.loop.observe import describe
from tests.unit.loop.helpers import DeafSandbox, HereSandbox

pytestmark = pytest.mark.anyio


def output(exit_code: int, text: str = "") -> CommandOutput:
    return CommandOutput(exit_code=exit_code, chunks=(Chunk(stream="stderr", text=text),) if text else ())


@pytest.mark.parametrize(
    ("name", "way_out"),
    [("python", "python3 x"), ("pip", "python3 -m pip"), ("sudo", "do without"), ("jq", "import json")],
)
def test_a_habit_that_does_not_work_here_has_a_way_out(name: str, way_out: str) -> None:
    assert way_out in after.of_command(f"{name} x", output(127, f"bash: line 1: {name}: command not found\n"))


@pytest.mark.parametrize(
    ("command", "status", "printed", "way_out"),
    [
        ("find . -name '*.txt' -exec sed -i s/a/b/ {} \\", 1, "find: missing argument to `-exec'\n", "{} +"),
        ("echo 'a", 2, "bash: line 2: unexpected EOF while looking for matching `''\n", "quote"),
        (
            "tar -xzf a.tgz -C out",
            2,
            "tar: out: Cannot open: No such file or directory\n",
            "mkdir -p out && tar -xzf a.tgz -C out",
        ),
        ("git shortlog -s | sort -nr | head -n 1", 0, "", "instead: git shortlog -s HEAD | sort -nr | head -n 1"),
    ],
)
def test_what_an_error_does_not_say_is_said(command: str, status: int, printed: str, way_out: str) -> None:
    assert way_out in after.of_command(command, output(status, printed))


TRACEBACK = """Traceback (most recent call last):
  File "/workspace/main.py", line 3, in <module>
    print(gret('World'))
NameError: name 'gret' is not defined. Did you mean: 'greet'?
"""


@pytest.mark.parametrize(
    ("command", "status", "printed", "instead"),
    [
        ("python3 main.py", 1, TRACEBACK, "sed -i '3s/gret/greet/' /workspace/main.py"),
        ("./run.sh a", 126, "bash: line 1: ./run.sh: Permission denied\n", "bash ./run.sh a"),
        ("./run.py", 126, "bash: line 1: ./run.py: Permission denied\n", "python3 ./run.py"),
        (
            "cat a.json b.json | jq '. + .[]' > c.json",
            5,
            "jq: error (at <stdin>:5): object and string cannot be added\n",
            "jq -s add a.json b.json",
        ),
        ("dos2unix a.sh", 127, "bash: line 1: dos2unix: command not found\n", "sed -i 's/[[:cntrl:]]$//' a.sh"),
        ("tar -xzf b.tar.gz x.txt", 2, "tar: x.txt: Not found in archive\n", "tar -tf b.tar.gz"),
    ],
)
def test_an_error_that_shows_the_way_out_says_it_as_a_command(
    command: str, status: int, printed: str, instead: str
) -> None:
    assert after.of_command(command, output(status, printed)).partition(RUN_THIS)[2] == instead
    assert after.of_command(command, output(0, printed)) == ""


def test_json_written_by_hand_that_is_none_is_left_to_a_program() -> None:
    wrong = "scores.json has a syntax error:\nExpecting value"
    said = after.of_writing("awk -F, '{print $1}' scores.csv > scores.json", wrong)
    assert "csv.DictReader" in said
    assert said.endswith("> scores.json")
    assert "json.dumps" in after.of_writing("echo '{a: 1}' > scores.json", wrong)
    assert after.of_writing("echo '{a: 1}' > scores.json", "") == ""
    assert after.of_writing("python3 make.py > scores.json", wrong) == ""
    several = after.of_writing("jq '.[] | select(.a < 2)' all.json > scores.json", wrong)
    assert several.endswith("instead: jq '[.[] | select(.a < 2)]' all.json > scores.json")


LOG = '10.0.0.1 - - [01/Mar/2026:08:00:01 +0000] "GET /a.html HTTP/1.1" 404 12\n'


@pytest.mark.parametrize(
    ("command", "printed", "told"),
    [
        ("awk '{print $6}' access.log", '"GET\n', True),
        ("awk '{print $2}' access.log", "-\n", True),
        ("awk '{print $4}' access.log", "[01/Mar/2026:08:00:01\n", True),
        ("awk '{print $1}' access.log | sort | uniq -c", "      1 a\n      1 b\n      1 c\n      1 d\n", True),
        ("awk '{print $7}' access.log", "/a.html\n", False),
        ("awk '{print $1}' access.log | sort | uniq -c", "      3 a\n      1 b\n      1 c\n      1 d\n", False),
        ("awk -F, '{print $2}' access.log", "-\n", False),
        ("cat access.log", "-\n", False),
    ],
)
async def test_fields_that_are_surely_the_wrong_ones_are_counted_out(
    tmp_path: Path, command: str, printed: str, told: bool
) -> None:
    (tmp_path / "access.log").write_text(LOG)
    said = await after.fields(command, output(0, printed), "", HereSandbox(tmp_path))
    assert ("$7=/a.html" in said) is told
    silent = await after.fields(command, output(0), f"out.txt now holds:\n{printed}", HereSandbox(tmp_path))
    assert silent == said


@pytest.mark.parametrize(
    ("command", "status", "printed"),
    [
        ("gcc a.c", 127, "bash: line 1: gcc: command not found\n"),
        ("grep python a", 1, "grep: python: command not found\n"),
        ("echo sudo", 0, "sudo\n"),
        ("find . -exec cat {} +", 1, "cat: x: Permission denied\n"),
        ("git shortlog -sn HEAD | head", 0, ""),
        ("git shortlog -s", 0, "  3 Ada\n"),
        ("tar -xzf a.tgz -C out", 0, ""),
    ],
)
def test_of_everything_else_nothing_is_said(command: str, status: int, printed: str) -> None:
    assert after.of_command(command, output(status, printed)) == ""


def test_what_is_said_comes_last_because_a_small_model_acts_on_the_last_words() -> None:
    told = describe(output(1, "x\n").model_copy(update={"hint": "Do y."}), 600)
    assert told.endswith("x\nDo y.")


@pytest.mark.parametrize("command", ["grep -c login app.log > n.txt", "cat app.log | grep login", " egrep x y"])
def test_a_search_in_vain_is_known(command: str) -> None:
    assert searches.found_nothing(command, output(1))


@pytest.mark.parametrize(
    ("command", "result"),
    [("grep x y", output(2, "grep: y: No such file\n")), ("grep x y | wc -l", output(1)), ("grep x y", output(0))],
)
def test_other_ends_are_no_search_in_vain(command: str, result: CommandOutput) -> None:
    assert not searches.found_nothing(command, result)


async def test_the_files_that_were_searched_are_shown(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("\n".join(f"user {n} logged in" for n in range(9)) + "\n")
    (tmp_path / "raw.bin").write_bytes(b"\0\1\2")
    (tmp_path / "link.txt").symlink_to("/etc/passwd")
    told = await after.beginnings("grep -c 'login' app.log raw.bin link.txt none.txt > n.txt", HereSandbox(tmp_path))
    assert told.splitlines() == ["app.log begins with:", *(f"user {n} logged in" for n in range(4))]


async def test_a_sandbox_that_cannot_say_is_no_failure() -> None:
    assert await after.beginnings("grep x y", DeafSandbox()) == ""
