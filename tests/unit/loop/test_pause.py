"""A run held by the person: what is under way ends, nothing new begins, the time is nobody's, a word arrives."""

import anyio
import pytest

from stockade.core.actions import Action
from stockade.core.events import ActionFinished, ActionStarted, MessageInjected, Paused
from stockade.loop.builtin_hooks import Approval
from stockade.loop.pause import Pause
from stockade.loop.state import fold
from stockade.plugins.shell_bot.answers import ListAnswers
from stockade.testing import MemorySandbox, say
from stockade_sandbox.results import CommandOutput
from tests.unit.loop.helpers import Bench


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
    pause.watch(deadline)
    with pause.away():
        assert deadline.deadline == float("inf")
        pause.hold()
    assert deadline.deadline == float("inf")
    pause.go_on()
    assert anyio.current_time() + 900 < deadline.deadline < float("inf")
    late = anyio.CancelScope(deadline=anyio.current_time() + 1000)
    with pause.away():
        pause.watch(late)
        assert late.deadline == float("inf")
    assert late.deadline < float("inf")
