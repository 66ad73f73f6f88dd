"""Which command is proposed when something is plainly not done, and that nothing else is offered then."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from stockade.core.actions import (
    Action,
    Chunk,
    CommandOutput,
    FileWritten,
    Observation,
    Refused,
    Shell,
    Step,
    WriteFile,
)
from stockade.core.events import Nudged
from stockade.loop.advice import undone, ways
from stockade.loop.advice.undone import Work
from stockade.loop.advice.wanted import UNCOUNTED
from stockade.loop.state import Done, RunState
from stockade.loop.steering import Steering
from tests.unit.loop.advice.test_review import LAYER
from tests.unit.loop.helpers import HereSandbox, started

pytestmark = pytest.mark.anyio
TOOLS = ("shell", "read_file", "write_file", "finish")


def ran(command: str, printed: str = "", status: int = 0) -> Done:
    chunks = (Chunk(stream="stdout", text=printed),) if printed else ()
    return Done(1, Step(action=Shell(command=command)), CommandOutput(exit_code=status, chunks=chunks))


def wrote(path: str) -> Done:
    return Done(1, Step(action=WriteFile(path=path, content="x")), FileWritten(path=path, size=1))


def state(done: Sequence[Done] = (), nudges: Sequence[Nudged] = (), turns: int = 1) -> RunState:
    made = RunState()
    made.done.extend(done)
    made.nudges.extend(nudges)
    made.turns = turns
    return made


def work(contents: dict[str, str] | None = None, programs: Sequence[str] = ()) -> Work:
    return Work([], contents or {}, [], list(programs), [], untouched=not contents)


@pytest.mark.parametrize(
    ("task", "done", "contents", "way"),
    [
        ("Count the commits into out.txt", [ran("git log | wc -l", "6\n")], {}, "git log | wc -l > out.txt"),
        ("Write only the number into out.txt", [ran("cat n", "6\n")], {"out.txt": "six"}, "cat n > out.txt"),
        ("Write only the number into out.txt", [ran("cat n", "six\n")], {"out.txt": "six"}, None),
        ("Count into out.txt", [ran("cat n > x", "6\n")], {}, None),
        ("Count into out.txt", [ran("cat n", "6\n", 1)], {}, None),
        ("Count into out.txt", [ran("ls"), wrote("a.txt")], {}, None),
        ("Count into out.txt", [], {}, None),
        (
            "Write only the name into out.txt",
            [ran("sort a | uniq -c | head -n 1", "   3 Ada\n")],
            {},
            f"sort a | uniq -c | head -n 1 | {UNCOUNTED} > out.txt",
        ),
        ("Put it here as out.txt", [], {"notes/out.txt": "a"}, "mv notes/out.txt out.txt"),
        ("Put notes/out.txt here as out.txt", [], {"notes/out.txt": "a"}, "cp notes/out.txt out.txt"),
        ("Mend it", [ran("python3 main.py", "", 1), ran("sed -i s/a/b/ main.py")], {}, "python3 main.py"),
        ("Mend it", [ran("python3 main.py", "", 1), wrote("main.py")], {}, "python3 main.py"),
        ("Mend it", [ran("python3 main.py", "", 1), ran("cat main.py", "x\n")], {}, None),
        ("Mend it", [ran("python3 main.py", "", 1), wrote("main.py"), ran("python3 main.py")], {}, None),
    ],
)
async def test_what_is_left_is_proposed_where_it_is_plain(
    tmp_path: Path, task: str, done: Sequence[Done], contents: dict[str, str], way: str | None
) -> None:
    for path, text in contents.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    assert await ways.way(started(task), state(done), work(contents), HereSandbox(tmp_path)) == way


async def test_a_changed_program_is_run_as_the_task_says(tmp_path: Path) -> None:
    mended = state([wrote("mean.py")])
    found = await ways.way(
        started("python3 test_mean.py fails"), mended, work(programs=["mean.py"]), HereSandbox(tmp_path)
    )
    assert found == "python3 test_mean.py"


async def test_a_file_may_be_in_a_folder_that_the_task_names(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "app.conf.bak").write_text("x")
    contents = {"etc/app.conf.bak": "x"}
    here = HereSandbox(tmp_path)
    assert await ways.way(started("In the folder etc, like app.conf.bak"), state(), work(contents), here) is None
    assert (
        await ways.way(started("like app.conf.bak"), state(), work(contents), here)
        == "mv etc/app.conf.bak app.conf.bak"
    )


def refused(action: Action, reason: str, instead: str = "") -> Done:
    seen: Observation = Refused(reason=reason, instead=instead)
    return Done(1, Step(action=action), seen)


def nudge(why: str, turn: int, text: str, command: str = "") -> Nudged:
    return Nudged(at=0.0, turn=turn, why=why, text=text, command=command)


LS = "ls > a.txt"
WAY = f"Run this instead: {LS}"


@pytest.mark.parametrize(
    "told",
    [
        state([refused(WriteFile(path="a.txt", content="ls"), WAY, LS)]),
        state(nudges=[nudge("undone", 1, WAY, LS)]),
        state(nudges=[nudge("loop", 2, WAY, LS)]),
    ],
)
def test_told_to_run_a_command_a_bot_can_only_run_one(told: RunState) -> None:
    assert Steering().offered(told, TOOLS) == ("shell",)
    assert Steering().offered(told, ("write_file", "finish")) != ("shell",)


@pytest.mark.parametrize(
    "told",
    [
        state([refused(WriteFile(path="a.txt", content="ls"), "no")]),
        state([refused(Shell(command="ls"), WAY, LS)]),
        state([refused(WriteFile(path="a.txt", content="ls"), WAY, LS)], turns=2),
        state(nudges=[nudge("undone", 1, WAY, LS)], turns=2),
        state(nudges=[nudge("loop", 1, WAY, LS)]),
        state([refused(WriteFile(path="a.txt", content="ls"), f"it holds: {WAY}")]),
        state(nudges=[nudge("undone", 1, f"Content of a.txt: '{WAY}'")]),
    ],
)
def test_otherwise_all_is_offered(told: RunState) -> None:
    assert "write_file" in Steering().offered(told, TOOLS)


@pytest.mark.parametrize(
    ("task", "deleted", "said"),
    [
        ("Decompress all the .gz files in dumps", ["dumps/a.sql.gz"], ["Still there: dumps/b.sql.gz, dumps/c.sql.gz."]),
        ("Decompress a .gz file", ["dumps/a.sql.gz"], []),
        ("Delete all the .log files", ["dumps/a.sql.gz"], []),
        ("Rename every .txt file", ["x.txt"], []),
    ],
)
async def test_others_of_a_kind_that_all_were_to_go_are_named(
    tmp_path: Path, task: str, deleted: list[str], said: list[str]
) -> None:
    (tmp_path / "dumps").mkdir()
    for name in ("b.sql.gz", "c.sql.gz", "d.sql"):
        (tmp_path / "dumps" / name).write_text("x")
    left = work()
    left.deleted.extend(deleted)
    mine = state()
    mine.layers = (LAYER,)
    facts = await undone.facts(started(task), mine, left, HereSandbox(tmp_path))
    assert [fact for fact in facts if "Still" in fact] == said
