"""What every RunStore must do. A test module subclasses this and gives `store` as a fixture."""

import pytest

from stockade.core.actions import Shell, Step
from stockade.core.budget import Budget
from stockade.core.errors import RunRemoved, UsageError
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    ModelAnswered,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
)
from stockade.core.messages import ModelAnswer, Usage
from stockade.core.ports import RunStore
from stockade_sandbox.policy import FolderRule, Policy
from stockade_sandbox.results import Chunk, CommandOutput


def first(run_id: str, at: float = 1.0, task: str = "a task") -> RunStarted:
    return RunStarted(
        at=at, version="0", run_id=run_id, task=task, bot="writing", model="scripted/x", answers="json",
        sandbox="memory", policy=Policy(), budget=Budget(), system_prompt="p",
    )  # fmt: skip


def some(turn: int) -> list[RunEvent]:
    """One turn's events, with output that is not UTF-8 and characters that trip JSON or SQL."""
    command = Step(action=Shell(command="printf '\\377' # \u2028 '\"; DROP TABLE events; --"))
    output = CommandOutput(
        exit_code=0, chunks=(Chunk.of("stdout", b"\xff\x00\n"), Chunk.of("stderr", "é\u0000".encode()))
    )
    return [
        ModelAnswered(at=2.0, turn=turn, answer=ModelAnswer(content="{}", usage=Usage(prompt_tokens=3))),
        ActionStarted(at=2.0, turn=turn, step=0, action=command),
        ActionFinished(at=2.0, turn=turn, step=0, observation=output),
    ]


class StoreConformance:
    """Every store passes all of these."""

    pytestmark = pytest.mark.anyio

    async def test_events_come_back_as_they_went_in(self, store: RunStore) -> None:
        events: list[RunEvent] = [first("run-a"), *some(1), *some(2)]
        await store.append("run-a", events[:1])
        await store.append("run-a", events[1:4])
        await store.append("run-a", events[4:])
        assert await store.events("run-a") == events
        assert await store.length("run-a") == len(events)
        assert await store.length("run-b") == 0

    async def test_bytes_are_exact(self, store: RunStore) -> None:
        await store.append("run-a", [first("run-a"), *some(1)])
        finished = (await store.events("run-a"))[-1]
        assert isinstance(finished, ActionFinished)
        assert isinstance(finished.observation, CommandOutput)
        assert finished.observation.stdout == b"\xff\x00\n"

    async def test_runs_do_not_mix(self, store: RunStore) -> None:
        await store.append("run-a", [first("run-a")])
        await store.append("run-b", [first("run-b", 2.0), *some(1)])
        assert len(await store.events("run-a")) == 1
        assert len(await store.events("run-b")) == 4

    async def test_the_list_is_newest_first_and_tells_the_status(self, store: RunStore) -> None:
        await store.append("run-a", [first("run-a", 1.0)])
        await store.append("run-b", [first("run-b", 2.0), *some(4)])
        await store.append("run-b", [RunFinished(at=9.0, status="done", reason="finish", turns=4)])
        listed = await store.runs()
        assert [(run.run_id, run.status, run.turns) for run in listed] == [
            ("run-b", "done", 4),
            ("run-a", "running", 0),
        ]

    async def test_the_list_tells_what_the_checks_said_of_a_run_that_has_ended(self, store: RunStore) -> None:
        for name, verified in (("a", None), ("b", True), ("c", False)):
            end = RunFinished(at=9.0, status="done", reason="finish", turns=1, verified=verified)
            await store.append(name, [first(name), *some(1), end])
        assert {run.run_id: run.verified for run in await store.runs()} == {"a": None, "b": True, "c": False}
        budget = Budget(max_turns=3)
        again = RunResumed(at=10.0, version="0", task="more", model="m", sandbox="s", budget=budget)
        await store.append("b", [again])
        assert {run.run_id: run.verified for run in await store.runs()} == {"a": None, "b": None, "c": False}

    async def test_find(self, store: RunStore) -> None:
        await store.append("run-a1", [first("run-a1", 1.0)])
        await store.append("run-a2", [first("run-a2", 2.0)])
        assert await store.find("run-a1") == "run-a1"
        assert await store.find("last") == "run-a2"
        await store.append("run-a2.1", [first("run-a2.1", 3.0)])
        assert await store.find("last") == await store.find("run-a2") == "run-a2"
        assert await store.find("run-a2.") == "run-a2.1"
        for wrong in ("run-a", "x", "", "run-%", "run-_1"):
            with pytest.raises(UsageError):
                await store.find(wrong)

    async def test_a_run_is_read_by_the_page(self, store: RunStore) -> None:
        events: list[RunEvent] = [first("run-a"), *some(1), *some(2)]
        await store.append("run-a", events)
        assert await store.events("run-a", limit=3) == events[:3]
        assert await store.events("run-a", first=3, limit=3) == events[3:6]
        assert await store.events("run-a", first=6, limit=3) == events[6:]
        assert await store.events("run-a", first=7, limit=3) == []

    async def test_runs_of_a_folder(self, store: RunStore) -> None:
        for run_id, host in (("run-a", "/w/a"), ("run-b", "/w/ab"), ("run-c", "/w/a/c_d"), ("run-d", "/w/a/cxd")):
            policy = Policy(folders=(FolderRule(host=host),))
            await store.append(run_id, [first(run_id).model_copy(update={"policy": policy})])
        await store.append("run-e", [first("run-e")])

        async def of(folder: str) -> list[str]:
            return [run.run_id for run in await store.runs(folder=folder)]

        assert await of("/w/a") == ["run-d", "run-c", "run-a"]
        assert await of("/w/a/c_d") == ["run-c"]
        assert await of("/") == ["run-d", "run-c", "run-b", "run-a"]
        assert await of("/w/%") == []
        assert [run.run_id for run in await store.runs(limit=2)] == ["run-e", "run-d"]
        assert [run.folder for run in await store.runs(limit=2)] == ["", "/w/a/cxd"]

    async def test_search_in_tasks_answers_and_commands(self, store: RunStore) -> None:
        await store.append("run-a", [first("run-a", task="Count the Lines of data.csv"), *some(1)])
        done = RunFinished(at=9.0, status="done", reason="finish", turns=1, answer="There are 12 lines\0 \u00fcber")
        await store.append("run-b", [first("run-b", task="count words"), *some(1), done])

        async def of(*words: str) -> list[str]:
            return [run.run_id for run in await store.runs(words=words)]

        assert await of("lines") == ["run-b", "run-a"]
        assert await of("LINES", "csv") == await of("data.csv") == await of("lin", "data") == ["run-a"]
        assert await of("printf", "12") == await of("\u00fcb") == ["run-b"]
        assert await of("printf", "drop table events") == ["run-b", "run-a"]
        for odd in ('"', "'", "*", "a AND b", "NEAR(", "\0", "\udcff", "-x", "ines", "exit_code"):
            assert await of(odd) == []
        assert await store.said("run-b", ["lines", "count"]) == [
            ("task", "count words"),
            ("answer", "There are 12 lines\ufffd \u00fcber"),
        ]
        await store.remove("run-b")
        assert await of("count") == ["run-a"]

    async def test_a_failed_start_is_not_the_last_run(self, store: RunStore) -> None:
        await store.append("run-a", [first("run-a"), *some(1)])
        await store.append("run-b", [first("run-b"), RunFinished(at=9.0, status="failed", reason="model", turns=0)])
        assert await store.find("last") == "run-a"
        assert await store.find("run-b") == "run-b"

    async def test_runs_are_in_the_order_they_were_put_on_record(self, store: RunStore) -> None:
        """Whatever the clock said: one run of the year 2153 is not the last for ever."""
        await store.append("run-b", [first("run-b", 5789491200.0)])
        await store.append("run-a", [first("run-a", 1.0)])
        assert await store.find("last") == "run-a"
        assert [run.run_id for run in await store.runs()] == ["run-a", "run-b"]

    async def test_what_is_no_text_is_no_run(self, store: RunStore) -> None:
        await store.append("run-a", [first("run-a")])
        for wrong in ("\udcff", "run-a\udcff", "\0"):
            with pytest.raises(UsageError):
                await store.find(wrong)

    async def test_no_such_run(self, store: RunStore) -> None:
        with pytest.raises(UsageError):
            await store.events("nothing")
        assert await store.runs() == []
        with pytest.raises(UsageError):
            await store.find("last")

    async def test_a_removed_run_is_gone_with_its_helpers_and_no_other(self, store: RunStore) -> None:
        for run_id in ("run-a", "run-a.1", "run-ab", "run-b"):
            await store.append(run_id, [first(run_id), *some(1)])
        await store.remove("run-a")
        await store.remove("run-a")
        await store.sweep()
        assert [run.run_id for run in await store.runs()] == ["run-b", "run-ab"]
        assert await store.length("run-a") == await store.length("run-a.1") == 0
        assert len(await store.events("run-ab")) == len(await store.events("run-b")) == 4
        assert set(await store.removed()) == {"run-a", "run-a.1"}

    async def test_of_a_removed_run_it_is_said_that_it_was(self, store: RunStore) -> None:
        await store.append("run-x1", [first("run-x1")])
        await store.remove("run-x1")
        for look in (store.find("run-x1"), store.find("run-x"), store.events("run-x1")):
            with pytest.raises(RunRemoved, match="run-x1 was removed"):
                await look
        with pytest.raises(RunRemoved):
            await store.append("run-x1", [first("run-x1")])
        with pytest.raises(UsageError):
            await store.find("run-y")

    async def test_a_run_is_removed_by_who_drives_it(self, store: RunStore) -> None:
        await store.append("run-a", [first("run-a")])
        async with store.driving("run-a"):
            await store.remove("run-a")
        assert await store.runs() == []
        assert await store.driver("run-a") is None
