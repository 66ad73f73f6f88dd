"""What a bot is told about a command that went wrong in a way that small models do not see."""

from pathlib import Path

import pytest

from stockade.core.actions import Chunk, CommandOutput
from stockade.loop import pitfalls
from stockade.loop.observe import describe
from tests.unit.loop.helpers import DeafSandbox, HereSandbox

pytestmark = pytest.mark.anyio


def output(exit_code: int, text: str = "") -> CommandOutput:
    return CommandOutput(exit_code=exit_code, chunks=(Chunk(stream="stderr", text=text),) if text else ())


@pytest.mark.parametrize(
    ("name", "way_out"),
    [("python", "python3"), ("pip", "python3 -m pip"), ("sudo", "do without"), ("jq", "import json")],
)
def test_a_habit_that_does_not_work_here_has_a_way_out(name: str, way_out: str) -> None:
    assert way_out in pitfalls.of_command(f"{name} x", output(127, f"bash: line 1: {name}: command not found\n"))


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
    assert way_out in pitfalls.of_command(command, output(status, printed))


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
    assert pitfalls.of_command(command, output(status, printed)) == ""


def test_what_is_said_comes_last_because_a_small_model_acts_on_the_last_words() -> None:
    told = describe(output(1, "x\n").model_copy(update={"hint": "Do y."}), 600)
    assert told.endswith("x\nDo y.")


@pytest.mark.parametrize("command", ["grep -c login app.log > n.txt", "cat app.log | grep login", " egrep x y"])
def test_a_search_in_vain_is_known(command: str) -> None:
    assert pitfalls.found_nothing(command, output(1))


@pytest.mark.parametrize(
    ("command", "result"),
    [("grep x y", output(2, "grep: y: No such file\n")), ("grep x y | wc -l", output(1)), ("grep x y", output(0))],
)
def test_other_ends_are_no_search_in_vain(command: str, result: CommandOutput) -> None:
    assert not pitfalls.found_nothing(command, result)


async def test_the_files_that_were_searched_are_shown(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("\n".join(f"user {n} logged in" for n in range(9)) + "\n")
    (tmp_path / "raw.bin").write_bytes(b"\0\1\2")
    (tmp_path / "link.txt").symlink_to("/etc/passwd")
    told = await pitfalls.beginnings("grep -c 'login' app.log raw.bin link.txt none.txt > n.txt", HereSandbox(tmp_path))
    assert told.splitlines() == ["app.log begins with:", *(f"user {n} logged in" for n in range(4))]


async def test_a_sandbox_that_cannot_say_is_no_failure() -> None:
    assert await pitfalls.beginnings("grep x y", DeafSandbox()) == ""
