"""Texts that are surely not meant so, beside those of test_before.py."""

from pathlib import Path

import pytest

from stockade.core.actions import Chunk, CommandOutput, Shell, Step, WriteFile
from stockade.loop.advice import writing
from stockade.loop.advice.said import Said
from stockade.loop.state import Done
from tests.unit.loop.advice.test_before import OneFile
from tests.unit.loop.helpers import HereSandbox

pytestmark = pytest.mark.anyio
HELD = "def mean(a):\n    return sum(a) / len(a)\n"
WRITE = WriteFile(path="mean.py", content=HELD)


def ran(status: int) -> Done:
    chunks = (Chunk(stream="stderr", text="Traceback ...\nZeroDivisionError: division by zero\n"),)
    return Done(1, Step(action=Shell(command="python3 test.py")), CommandOutput(exit_code=status, chunks=chunks))


async def doubt(action: WriteFile, task: str, *done: Done, held: str = HELD) -> str:
    return Said.of(await writing.doubt(action, task, done, (HELD,), OneFile(held.encode())) or "").spoken


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


HOSTS = "127.0.0.1 localhost\n10.0.0.1 router\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("\n10.0.0.9 camera", "instead: echo '10.0.0.9 camera' >> hosts"),
        ("10.0.0.9 camera\n10.0.0.8 printer\n", "write the others too"),
        ("127.0.0.1 localhost\n10.0.0.1 router\n10.0.0.9 camera\n", ""),
        ("", ""),
    ],
)
async def test_what_is_added_does_not_take_the_place_of_what_is_there(content: str, said: str) -> None:
    action = WriteFile(path="hosts", content=content)
    shown = (HOSTS,)
    found = await writing.doubt(action, "Add this line at the end of hosts", (), shown, OneFile(HOSTS.encode()))
    assert said in Said.of(found or "").spoken
    assert (found is None) is (not said)
    assert await writing.doubt(action, "Replace hosts", (), shown, OneFile(HOSTS.encode())) is None


async def test_an_archive_is_not_written_as_text(tmp_path: Path) -> None:
    (tmp_path / "papers.zip").write_bytes(b"PK\x03\x04\0\xff")
    here = HereSandbox(tmp_path)
    action = WriteFile(path="papers.zip", content="abstract.txt\n")
    said = await writing.doubt(action, "Add abstract.txt to papers.zip", (), (), here)
    assert said is not None
    assert Said.of(said).command == "zip papers.zip abstract.txt"
    assert "Use a command" in (await writing.doubt(action, "papers.zip", (), (), here) or "")
    for name, data in (("empty.zip", b""), ("plain.txt", b"a\n"), ("blank.txt", b"\n")):
        (tmp_path / name).write_bytes(data)
        assert await writing.doubt(WriteFile(path=name, content="b a"), name, (), ("a",), here) is None
    assert await writing.doubt(WriteFile(path="new.zip", content="x"), "", (), (), here) is None


async def test_a_file_through_a_pipe_is_a_command() -> None:
    said = await doubt(WriteFile(path="tail.txt", content="build.log | tail -n 5"), "", held="")
    assert said.endswith("instead: cat build.log | tail -n 5 > tail.txt")


@pytest.mark.parametrize("content", ["json", "[]", "{}", '{"a": 1}', '[{"a"'])
async def test_data_is_not_thrown_away(content: str) -> None:
    held = '[{"user": "ada", "password": "x"}]'
    said = await writing.doubt(WriteFile(path="a.json", content=content), "", (), (held,), OneFile(held.encode()))
    assert "a.json would hold no" in (said or "")


@pytest.mark.parametrize(("held", "content"), [("[1]", "[2]"), ("no JSON", "nor this"), ("[]", "{}"), ("", "x")])
async def test_other_json_is_written(held: str, content: str) -> None:
    write = WriteFile(path="a.json", content=content)
    assert await writing.doubt(write, "", (), (held,), OneFile(held.encode())) is None


CONF = "listen 80\ndebug on\nroot /srv"


@pytest.mark.parametrize(
    ("content", "task", "stays"),
    [
        ("# listen 80\n# debug on\n# root /srv", "Comment out debug. The other lines stay untouched.", False),
        ("# listen 80\n# debug on\n# root /srv", "Comment out debug and leave the rest.", False),
        ("listen 80\n# debug on\nroot /srv", "Comment out debug. The other lines stay untouched.", True),
        ("# listen 80\n# debug on\n# root /srv", "Comment out all lines.", True),
    ],
)
async def test_lines_that_stay(content: str, task: str, stays: bool) -> None:
    said = await writing.doubt(WriteFile(path="a.conf", content=content), task, (), (CONF,), OneFile(CONF.encode()))
    assert (said is None) == stays


async def test_a_name_that_stands_for_many_is_no_file() -> None:
    said = await doubt(WriteFile(path="src/**/*.py", content="# licence"), "Put it on top of every file.", held="")
    assert "src/**/*.py stands for many" in said


async def test_a_command_that_is_proposed_is_none_that_is_refused() -> None:
    content = "jq '.a += [1]' c.json > c.json && mv c.json c.json"
    said = await doubt(WriteFile(path="c.json", content=content), "Add 1.", held="")
    assert said.endswith("jq '.a += [1]' c.json > c.json.new && mv c.json.new c.json")
