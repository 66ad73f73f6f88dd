"""What a bot is told of a command."""

import pytest

from stockade.core.actions import Chunk, CommandOutput
from stockade.loop.observe import describe


def output(exit_code: int, text: str) -> CommandOutput:
    return CommandOutput(exit_code=exit_code, chunks=(Chunk(stream="stderr", text=text),))


@pytest.mark.parametrize(
    ("name", "way_out"), [("python", "python3"), ("pip", "python3 -m pip"), ("sudo", "do without")]
)
def test_a_habit_that_does_not_work_here_has_a_way_out(name: str, way_out: str) -> None:
    told = describe(output(127, f"bash: line 1: {name}: command not found\n"), 600)
    assert told.endswith(f"{name}: command not found\n" + told.splitlines()[-1])
    assert way_out in told.splitlines()[-1]


@pytest.mark.parametrize(
    ("exit_code", "text"),
    [(127, "bash: line 1: gcc: command not found\n"), (1, "grep: python: command not found\n"), (0, "sudo\n")],
)
def test_other_failures_are_told_as_they_are(exit_code: int, text: str) -> None:
    assert describe(output(exit_code, text), 600).endswith(text.rstrip("\n"))
