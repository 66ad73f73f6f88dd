"""Patterns that look at what a model or a command said take time by its length, not by its square.

20,000 blanks took seconds, and an answer may have four million characters.
"""

from collections.abc import Callable

import anyio
import pytest

from stockade.core.actions import Chunk, CommandOutput, Shell, Step
from stockade.loop.advice import after, wanted
from stockade.loop.kept import _MAY_EXPORT
from stockade.loop.state import Done
from stockade.loop.stuck import says_nothing_new
from stockade.testing import MemorySandbox

LENGTH = 200_000


def done(command: str) -> Done:
    output = CommandOutput(exit_code=0, chunks=(Chunk.of("stdout", b"1\n"),))
    return Done(turn=1, step=Step(action=Shell(command=command)), observation=output)


LOOKS: tuple[Callable[[str], object], ...] = (
    _MAY_EXPORT.search,
    wanted.is_number,
    lambda text: wanted.unlike(text, {"a.txt": "x"}),
    lambda text: says_nothing_new([done("ls"), done(text)], 1),
    lambda text: anyio.run(after.beginnings, text, MemorySandbox()),
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("look", LOOKS, ids=range(len(LOOKS)))
@pytest.mark.parametrize("unit", ["\n", "\t ", ".", "1", "just a ", "only the x ", "; ", "echo ", "-"])
def test_it_ends(look: Callable[[str], object], unit: str) -> None:
    for before, behind in (("", ""), ("echo ", "|"), ("# ", "&")):
        look(before + unit * (LENGTH // len(unit)) + behind)
