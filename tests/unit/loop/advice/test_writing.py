"""Texts that are surely not meant so, beside those of test_before.py."""

import pytest

from stockade.core.actions import Chunk, CommandOutput, Shell, Step, WriteFile
from stockade.loop.advice import writing
from stockade.loop.state import Done
from tests.unit.loop.advice.test_before import OneFile

pytestmark = pytest.mark.anyio
HELD = "def mean(a):\n    return sum(a) / len(a)\n"
WRITE = WriteFile(path="mean.py", content=HELD)


def ran(status: int) -> Done:
    chunks = (Chunk(stream="stderr", text="Traceback ...\nZeroDivisionError: division by zero\n"),)
    return Done(1, Step(action=Shell(command="python3 test.py")), CommandOutput(exit_code=status, chunks=chunks))


async def doubt(action: WriteFile, task: str, *done: Done, held: str = HELD) -> str:
    return await writing.doubt(action, task, done, (HELD,), OneFile(held.encode())) or ""


async def test_what_has_just_failed_is_not_written_again_as_it_is() -> None:
    said = await doubt(WRITE, "mend it", ran(1))
    assert "`python3 test.py` has failed: ZeroDivisionError: division by zero" in said
    assert await doubt(WRITE, "mend it", ran(0)) == ""
    assert await doubt(WRITE, "mend it") == ""
    assert await doubt(WriteFile(path="mean.py", content="x"), "mend it", ran(1)) == ""


@pytest.mark.parametrize("task", ["Fix main.py.", "python3 main.py fails: change the file main.py, not its modules"])
async def test_another_file_than_the_one_to_mend_stays_as_it_is(task: str) -> None:
    other = WriteFile(path="/workspace/mean.py", content="x")
    assert "the task is to change main.py" in await doubt(other, task)
    assert await doubt(other, f"{task} And mean.py.") == ""
    assert await doubt(other, "Fix what is wrong.") == ""
    assert await doubt(WriteFile(path="/workspace/main.py", content="x"), task) == ""
    assert await doubt(other, task, held="") == ""
