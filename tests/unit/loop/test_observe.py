"""What a bot is told of a command."""

import pytest

from stockade.loop.observe import describe
from stockade_sandbox.results import Chunk, CommandOutput


def output(exit_code: int, text: str) -> CommandOutput:
    return CommandOutput(exit_code=exit_code, chunks=(Chunk(stream="stderr", text=text),))


@pytest.mark.parametrize(
    ("exit_code", "text"),
    [(127, "bash: line 1: gcc: command not found\n"), (1, "grep: python: command not found\n"), (0, "sudo\n")],
)
def test_other_failures_are_told_as_they_are(exit_code: int, text: str) -> None:
    assert describe(output(exit_code, text), 600).endswith(text.rstrip("\n"))
