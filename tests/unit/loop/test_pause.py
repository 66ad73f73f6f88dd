"""A run held by the person: what is under way ends, nothing new begins, the time is nobody's, a word arrives."""

from contextlib import ExitStack

import anyio
import pytest

from stockade.answers.json_schema import JsonAnswers
from stockade.core.actions import Action
from stockade.core.budget import Budget
from stockade.core.events import ActionFinished, ActionStarted, MessageInjected, Paused
from stockade.loop.builtin_hooks import Approval
from stockade.loop.context import Context
from stockade.loop.pause import Pause
from stockade.loop.record import Record
from stockade.loop.state import fold
from stockade.plugins.shell_bot.answers import ListAnswers
from stockade.testing import FixedClock, MemorySandbox, MemoryStore, say
from stockade_sandbox.results import CommandOutput
from tests.unit.loop.helpers import Bench, started


@pytest.mark.anyio
async def test_a_held_run_begins_nothing_and_goes_on_with_the_word() -> None:
    bench: Bench

    def command(_command: str) -> CommandOutput:
        bench.parts.pause.hold()
        return CommandOutput(exit_code=0)

    bench = Bench([say("shell", command="one"), say("finish", answer="x")], MemorySandbox(on_command=command))
    async with anyio.create_task_group() as group:
        group.start_soon(bench.run)
        await anyio.wait_all_tasks_blocked()
        assert isinstance(bench.shown[-1], ActionFinished)
        assert len(bench.script.requests) == 1
        bench.parts.pause.go_on("do it otherwise")
    events = await bench.store.events("r1")
    assert [event.text for event in events if isinstance(event, MessageInjected) and event.source == "user"] == [
        "The user says: do it otherwise"
    ]
    assert sum(isinstance(event, Paused) for event in events) == 1
    assert "do it otherwise" in bench.script.requests[1].messages[-1].content


@pytest.mark.anyio
async def test_held_between_the_answer_and_its_action_the_action_waits() -> None:
    bench = Bench([say("shell", command="one"), say("finish", answer="x")])
    bench.parts.pause.hold()
    async with anyio.create_task_group() as group:
        group.start_soon(bench.run)
        await anyio.wait_all_tasks_blocked()
        assert not bench.sandbox.ran
        bench.parts.pause.go_on()
    assert bench.sandbox.ran == ["one"]
    assert any(isinstance(event, ActionStarted) for event in bench.shown)


@pytest.mark.anyio
async def test_the_time_that_a_run_was_held_is_not_its_own() -> None:
    bench = Bench([say("finish", answer="x")])
    await bench.run()
    events = await bench.store.events("r1")
    begun = events[0].at
    state = fold([*events[:-1], Paused(at=begun + 50, duration_s=40.0)])
    assert state.spent(begun + 60).elapsed_s == pytest.approx(20.0)


class Asks:
    """An approver that stops or refuses, as a person would make it."""

    def __init__(self, pause: Pause, *words: str) -> None:
        self._pause, self._words = pause, list(words)

    async def judge(self, action: Action) -> str | None:
        with self._pause.away() as said:
            said.append(self._words[0])
        word = self._words.pop(0)
        if word == "n":
            self._pause.stop("the user stopped the run")
        return None if word == "y" else f"no: {word}"


@pytest.mark.anyio
async def test_what_the_person_says_to_an_action_is_on_record_and_observed() -> None:
    bench = Bench([say("shell", command="one"), say("shell", command="two"), say("finish", answer="x")])
    approval = Approval(Asks(bench.parts.pause, "use cat", "y"))
    object.__setattr__(bench.parts, "hooks", (*bench.parts.hooks, approval))
    assert (await bench.run()).status == "done"
    assert bench.sandbox.ran == ["two"]
    assert [event.said for event in bench.shown if isinstance(event, Paused)] == ["use cat", "y"]
    assert "no: use cat" in bench.script.requests[1].messages[-1].content


@pytest.mark.anyio
async def test_a_run_that_is_stopped_at_an_action_closes_in_order() -> None:
    both = '[{"command": "one"}, {"command": "two"}]'
    bench = Bench([both, say("finish", answer="x")])
    object.__setattr__(bench.parts, "protocol", ListAnswers())
    approval = Approval(Asks(bench.parts.pause, "n", "y"))
    object.__setattr__(bench.parts, "hooks", (*bench.parts.hooks, approval))
    finished = await bench.run()
    assert (finished.status, finished.reason, finished.detail) == ("stopped", "user", "the user stopped the run")
    assert bench.sandbox.ran == []
    assert len(bench.script.requests) == 1
    assert [event.observation.kind for event in bench.shown if isinstance(event, ActionFinished)] == ["refused"]


@pytest.mark.anyio
async def test_the_deadline_stands_still_while_a_person_thinks() -> None:
    pause, deadline = Pause(), anyio.CancelScope(deadline=anyio.current_time() + 1000)
    record, clock = Record("r1", MemoryStore(), Context(JsonAnswers())), FixedClock()
    with pause.watching(deadline, record, clock):
        with pause.away():
            assert deadline.deadline == float("inf")
            pause.hold()
        assert deadline.deadline == float("inf")
        pause.go_on()
        assert anyio.current_time() + 900 < deadline.deadline < float("inf")
        late = anyio.CancelScope(deadline=anyio.current_time() + 1000)
        with ExitStack() as stack:
            with pause.away():
                stack.enter_context(pause.watching(late, record, clock))
                assert late.deadline == float("inf")
            assert late.deadline < float("inf")


class Sleeping:
    """A clock of a machine that sleeps, or is set, by `jump_s`."""

    def __init__(self) -> None:
        self.jump_s = 0.0
        self.awake_s = 0.0

    def now(self) -> float:
        return 1_000_000.0 + self.awake_s + self.jump_s

    def monotonic(self) -> float:
        return self.awake_s


@pytest.mark.anyio
@pytest.mark.parametrize("jump_s", [7200.0, -7200.0])
async def test_the_time_that_the_machine_slept_is_nobodys(jump_s: float) -> None:
    clock = Sleeping()

    def command(_command: str) -> CommandOutput:
        clock.awake_s, clock.jump_s = clock.awake_s + 5, clock.jump_s + jump_s
        return CommandOutput(exit_code=0)

    answers = [say("shell", command="one"), say("shell", command="two"), say("finish", answer="x")]
    bench = Bench(answers, MemorySandbox(on_command=command), clock=clock)
    assert (await bench.run(started(budget=Budget(timeout_s=100.0)))).status == "done"
    events = await bench.store.events("r1")
    found = [(event.duration_s, event.slept) for event in events if isinstance(event, Paused)]
    assert found == [(jump_s, True)] * 2
    assert fold(events).spent(clock.now()).elapsed_s == pytest.approx(10.0)


@pytest.mark.anyio
async def test_of_one_that_works_for_another_the_other_slept_too() -> None:
    pause, clock, stores = Pause(), Sleeping(), (MemoryStore(), MemoryStore())
    boss, helper = (Record("r1", store, Context(JsonAnswers())) for store in stores)
    with pause.watching(anyio.CancelScope(), boss, clock):
        clock.jump_s = 60
        with pause.watching(anyio.CancelScope(), helper, clock):
            clock.jump_s = 180
            await pause.passed(helper, clock)
        await pause.passed(boss, clock)
    slept = [[event.duration_s for event in await store.events("r1") if isinstance(event, Paused)] for store in stores]
    assert slept == [[180.0], [120.0]]
