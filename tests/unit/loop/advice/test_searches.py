"""A search that found nothing, and finds something when case, or the place in a line, makes no difference."""

from pathlib import Path

import pytest

from stockade.core.actions import CommandOutput
from stockade.loop.advice.searches import found_otherwise
from tests.unit.loop.helpers import DeafSandbox, HereSandbox

pytestmark = pytest.mark.anyio


@pytest.fixture
def box(tmp_path: Path) -> HereSandbox:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "app.log").write_text("1 ERROR disk\n2 INFO it's fine\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x").write_text("Hello\n")
    return HereSandbox(tmp_path)


def nothing(cwd: str = "") -> CommandOutput:
    return CommandOutput(exit_code=1, cwd=cwd)


@pytest.mark.parametrize(
    ("command", "way"),
    [
        ("grep -c 'error' logs/app.log", "grep -i -c 'error' logs/app.log"),
        ("  grep error logs/app.log", "grep -i error logs/app.log"),
        ('grep -rn "info it" .', "grep -i -rn 'info it' ."),
        ("egrep 'warn+|error' logs/app.log", ""),
        ("grep -c '^ERROR' logs/app.log", "grep -c 'ERROR' logs/app.log"),
        ("grep '^error' logs/app.log", "grep -i 'error' logs/app.log"),
        ("grep '^INFO$' logs/app.log", ""),
        ("fgrep error logs/app.log", "fgrep -i error logs/app.log"),
    ],
)
async def test_the_way_is_proposed(box: HereSandbox, command: str, way: str) -> None:
    said = await found_otherwise(command, nothing(), box)
    assert said.endswith(f"Run this instead: {way}" if way else "")
    assert bool(said) == bool(way)


async def test_quotes_of_both_kinds_are_not_written_anew(box: HereSandbox) -> None:
    said = await found_otherwise('grep "IT\'S" logs/app.log', nothing(), box)
    assert said == "There is such a line in other letters, upper or lower case."


async def test_it_is_searched_where_the_shell_stands(box: HereSandbox) -> None:
    assert await found_otherwise("grep hello x", nothing(), box) == ""
    assert "grep -i hello x" in await found_otherwise("grep hello x", nothing(str(box.folder / "deep")), box)


@pytest.mark.parametrize(
    "command",
    [
        "grep -i error logs/app.log", "grep -ci error logs/app.log", "grep --ignore-case error logs/app.log",
        "grep -v info logs/app.log", "grep warning logs/app.log", "grep error", "grep 'error logs/app.log",
        "grep error logs/app.log > out", "grep error $(touch made) logs/app.log", "cat logs/app.log | grep error",
        "grep error logs/app.log; touch made", "grep error logs/app.log\ntouch made",
        "grep error `touch made` logs/app.log",
    ],
)  # fmt: skip
async def test_nothing_is_said_or_run_elsewhere(box: HereSandbox, command: str) -> None:
    assert await found_otherwise(command, nothing(), box) == ""
    assert not (box.folder / "made").exists()
    assert not (box.folder / "out").exists()


async def test_a_sandbox_that_cannot_look_is_no_error() -> None:
    assert await found_otherwise("grep error logs/app.log", nothing(), DeafSandbox()) == ""
