"""The loop on fakes: how runs go on, and every way in which they end."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest

from stockade.answers.native_tools import NativeAnswers
from stockade.core.actions import Action, Failed, Refused, Shell, fields_of
from stockade.core.budget import Budget
from stockade.core.errors import (
    ContextExceeded,
    ModelUnavailable,
    PolicyNotEnforceable,
    SandboxDied,
    StockadeError,
    StoreFailed,
    UsageError,
)
from stockade.core.events import ActionFinished, CheckFinished, MessageInjected, ModelAnswered, RunEvent, RunFinished
from stockade.core.messages import ModelAnswer, ModelInfo, ModelRequest, Usage
from stockade.core.ports import ExecResult, OnText
from stockade.loop.builtin_hooks import DRY, BudgetLimits
from stockade.loop.loop_detection import WAITED_S, LoopDetection
from stockade.loop.run import run
from stockade.loop.state import fold
from stockade.testing import FixedClock, MemorySandbox, MemoryStore, ScriptedModel, say
from stockade_sandbox.results import Chunk, CommandOutput
from tests.unit.loop.helpers import Bench, started

pytestmark = pytest.mark.anyio


async def test_a_task_is_done() -> None:
    bench = Bench(
        [say("shell", command="wc -l f"), say("finish", answer="3 lines")], MemorySandbox({"wc -l f": "3 f\n"})
    )
    finished = await bench.run()
    assert (finished.status, finished.reason, finished.answer, finished.verified) == ("done", "finish", "3 lines", None)
    assert finished.turns == 2
    assert bench.types() == [
        "run_started",
        "sandbox_started",
        "model_started",
        "model_answered",
        "answer_understood",
        "action_started",
        "action_finished",
        "model_answered",
        "answer_understood",
        "run_finished",
    ]
    assert bench.script.requests[1].messages[-1].content == "The command has succeeded. Output:\n3 f"
    assert (bench.sandbox.entered, bench.sandbox.left) == (1, 1)


async def test_the_prompt_only_grows() -> None:
    bench = Bench([say("shell", command=f"echo {n}") for n in range(12)] + [say("finish", answer="ok")])
    await bench.run()
    for before, after in zip(bench.script.requests, bench.script.requests[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages


class WatchingSandbox(MemorySandbox):
    """Looks at the record at the moment a command runs."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self.store = store
        self.before: list[list[str]] = []

    async def run(self, command: str, timeout_s: float | None = None) -> CommandOutput:
        self.before.append([event.type for event in await self.store.events("r1")])
        return await super().run(command, timeout_s)


async def test_an_action_is_on_record_before_it_runs() -> None:
    bench = Bench([say("shell", command="touch x"), say("finish", answer="")])
    sandbox = WatchingSandbox(bench.store)
    object.__setattr__(bench.parts, "sandbox", sandbox)
    await run(started(), bench.parts)
    assert sandbox.before[0][-3:] == ["model_answered", "answer_understood", "action_started"]


async def test_so_is_each_further_action_of_the_same_answer() -> None:
    calls = tuple(
        {"id": str(n), "type": "function", "function": {"name": "shell", "arguments": f'{{"command": "touch {n}"}}'}}
        for n in range(3)
    )
    end = {"id": "e", "type": "function", "function": {"name": "finish", "arguments": '{"answer": ""}'}}
    bench = Bench([ModelAnswer(content="", tool_calls=calls), ModelAnswer(content="", tool_calls=(end,))])
    sandbox = WatchingSandbox(bench.store)
    object.__setattr__(bench.parts, "sandbox", sandbox)
    object.__setattr__(bench.parts, "protocol", NativeAnswers())
    await run(started(), bench.parts)
    assert sandbox.ran == ["touch 0", "touch 1", "touch 2"]
    assert [types.count("action_started") for types in sandbox.before] == [1, 2, 3]
    assert {types[-1] for types in sandbox.before} == {"action_started"}


async def test_state_is_the_fold_of_the_events() -> None:
    bench = Bench([say("shell", command="ls"), "nonsense", say("finish", answer="x")])
    finished = await bench.run()
    state = fold(await bench.store.events("r1"))
    assert state.finished == finished
    assert (state.turns, len(state.done), state.in_flight) == (3, 1, None)
    assert state.usage == finished.usage


@pytest.mark.parametrize(
    ("budget", "reason"),
    [(Budget(max_turns=3), "turns"), (Budget(max_tokens=60), "tokens")],
)
async def test_budgets_end_a_run_by_name(budget: Budget, reason: str) -> None:
    bench = Bench([say("shell", command=f"echo {n}") for n in range(50)])
    finished = await bench.run(started(budget=budget))
    assert (finished.status, finished.reason) == ("stopped", reason)
    assert reason in finished.detail


async def test_exactly_max_turns_actions_run() -> None:
    bench = Bench([say("shell", command=f"echo {n}") for n in range(50)])
    await bench.run(started(budget=Budget(max_turns=5)))
    assert len(bench.sandbox.ran) == 5


async def test_time_is_counted_between_turns() -> None:
    bench = Bench([say("shell", command=f"echo {n}") for n in range(500)], clock=FixedClock(step=10))
    finished = await bench.run(started(budget=Budget(timeout_s=200, max_turns=0)))
    assert (finished.status, finished.reason) == ("stopped", "time")


class SilentModel(ScriptedModel):
    """Never answers."""

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        await anyio.sleep_forever()
        raise AssertionError


async def test_time_is_enforced_inside_a_model_call() -> None:
    bench = Bench([], model=SilentModel([]))
    finished = await bench.run(started(budget=Budget(timeout_s=0.05)))
    assert (finished.status, finished.reason) == ("stopped", "time")
    assert bench.sandbox.left == 1


async def test_cancelling_is_recorded_and_goes_on() -> None:
    bench = Bench([], model=SilentModel([]))
    async with anyio.create_task_group() as group:
        group.start_soon(run, started(), bench.parts)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    last = (await bench.store.events("r1"))[-1]
    assert isinstance(last, RunFinished)
    assert (last.status, last.reason) == ("stopped", "user")
    assert bench.sandbox.left == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModelUnavailable("no server"), "model"),
        (ContextExceeded("too long"), "model"),
        (SandboxDied("gone"), "sandbox"),
    ],
)
async def test_failures_are_named(error: StockadeError, reason: str) -> None:
    if reason == "model":
        bench = Bench([error])
    else:
        bench = Bench([say("shell", command="boom")], MemorySandbox({"boom": error}))
    finished = await bench.run()
    assert (finished.status, finished.reason) == ("failed", reason)
    assert error.message in finished.detail


class RefusingSandbox(MemorySandbox):
    """Cannot hold the policy."""

    async def __aenter__(self) -> "RefusingSandbox":
        raise PolicyNotEnforceable("network", "no egress here")


async def test_a_policy_that_cannot_be_held_is_refused_before_the_model_is_asked() -> None:
    bench = Bench([say("finish", answer="x")], RefusingSandbox())
    finished = await bench.run()
    assert (finished.status, finished.reason) == ("failed", "sandbox")
    assert not bench.script.requests


async def test_unreadable_answers_are_asked_again_warmer_then_in_words_then_stop() -> None:
    bench = Bench(["", "prose", "{}"])
    finished = await bench.run()
    assert (finished.status, finished.reason) == ("stopped", "unreadable")
    first, second, third = bench.script.requests
    assert second.messages[: len(first.messages)] == first.messages
    assert "the answer is empty" in second.messages[-1].content
    assert (second.sampling.temperature or 0) > (first.sampling.temperature or 0)
    assert "JSON object" in third.messages[-1].content
    assert [request.sampling.dry_multiplier for request in (first, second, third)] == [None, DRY, DRY]


async def test_what_cannot_be_read_costs_no_turn() -> None:
    looks = [say("shell", command=f"echo {n}") for n in range(3)]
    answers = [text for look in looks for text in ("prose", "prose", look)]
    bench = Bench(answers)
    finished = await bench.run(started(budget=Budget(max_turns=3)))
    assert (finished.reason, finished.detail, finished.turns) == ("turns", "turns: 3 of 3", 3)
    assert bench.sandbox.ran == ["echo 0", "echo 1", "echo 2"]
    assert [request.sampling.dry_multiplier for request in bench.script.requests] == [None, DRY, DRY] * 3


async def test_a_bad_answer_leaves_no_trace_in_the_history() -> None:
    bench = Bench(["garbage garbage", "more garbage", say("shell", command="ls"), say("finish", answer="x")])
    assert (await bench.run()).status == "done"
    assert "garbage" not in bench.script.requests[-1].model_dump_json()
    assert "JSON object" not in bench.script.requests[-1].messages[-1].content


async def test_a_loop_is_said_once_then_stopped_by_name() -> None:
    bench = Bench([say("shell", command="ls")] * 30)
    finished = await bench.run()
    assert (finished.status, finished.reason) == ("stopped", "loop")
    said = [event.text for event in bench.shown if isinstance(event, MessageInjected)]
    assert said == ["The same action has given the same result 3 times in a row."]
    assert len(bench.sandbox.ran) == 6
    assert all(one.sampling == bench.script.requests[0].sampling for one in bench.script.requests)
    assert all(one.schema_ == bench.script.requests[0].schema_ for one in bench.script.requests)


@pytest.mark.parametrize("period", [2, 3, 4])
async def test_a_rotation_is_a_loop_too(period: int) -> None:
    bench = Bench([say("shell", command=f"echo {n % period}") for n in range(80)])
    finished = await bench.run(started(budget=Budget(max_turns=0)))
    assert (finished.status, finished.reason, finished.turns) == ("stopped", "loop", 6 * period)


@pytest.mark.parametrize(
    ("seconds", "timed_out", "reason"),
    [(WAITED_S, False, "finish"), (WAITED_S - 0.1, False, "loop"), (WAITED_S, True, "loop")],
)
async def test_what_takes_its_time_is_no_loop(seconds: float, timed_out: bool, reason: str) -> None:
    """Whatever the command is: a job may be polled, and one that runs into its time limit is no poll."""
    output = CommandOutput(exit_code=0, duration_s=seconds, timed_out=timed_out)
    script = [say("shell", command="sleep 1; cat status")] * 15 + [say("finish", answer="x")]
    bench = Bench(script, MemorySandbox(on_command=lambda _: output))
    assert (await bench.run()).reason == reason


async def test_a_loop_may_be_allowed() -> None:
    bench = Bench([say("shell", command="ls")] * 15 + [say("finish", answer="x")])
    object.__setattr__(bench.parts, "hooks", (BudgetLimits(), LoopDetection(0)))
    assert (await bench.run()).status == "done"


async def test_ping_pong_is_a_loop_too() -> None:
    bench = Bench([say("shell", command=f"echo {n % 2}") for n in range(40)])
    finished = await bench.run(started(budget=Budget(max_turns=40)))
    assert (finished.status, finished.reason) == ("stopped", "loop")


async def test_the_same_command_with_news_is_no_loop() -> None:
    outputs = iter(range(100))

    def count(_: str) -> CommandOutput:
        return CommandOutput(exit_code=0, chunks=(Chunk.of("stdout", str(next(outputs)).encode()),))

    bench = Bench([say("shell", command="date")] * 15 + [say("finish", answer="x")], MemorySandbox(on_command=count))
    assert (await bench.run()).status == "done"


async def test_a_passing_check_verifies() -> None:
    bench = Bench([say("finish", answer="x")])
    finished = await bench.run(started(check="test -f x"))
    assert (finished.status, finished.verified) == ("done", True)
    assert [event.passed for event in bench.shown if isinstance(event, CheckFinished)] == [True]


class _StillSandbox(MemorySandbox):
    """Can be made to stand still, or not. Its snapshots know whether it did."""

    def __init__(self, *, can: bool) -> None:
        super().__init__()
        self.can, self.still, self.seen = can, False, list[bool]()

    @asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        if not self.can:
            raise UsageError("it cannot be made to stand still")
        self.still = True
        yield
        self.still = False

    async def keep(self) -> tuple[str | None, ...]:
        self.seen.append(self.still)
        return ("1",)

    def close(self) -> None:
        """Nothing."""


@pytest.mark.parametrize("can", [True, False])
async def test_what_is_judged_is_copied_while_the_sandbox_stands_still(can: bool) -> None:
    box = _StillSandbox(can=can)
    copied = list[bool]()

    async def judge(*_: object) -> ExecResult:
        copied.append(box.seen[-1])
        assert not box.still
        return ExecResult(exit_code=0, stdout=b"", stderr=b"")

    bench = Bench([say("finish", answer="x")], box)
    bench.parts = replace(bench.parts, snapshots=box, judge=judge)
    finished = await bench.run(started(check="test -f x"))
    assert (finished.verified, copied) == (True, [can])


async def test_a_failing_check_is_fed_back_then_ends_unverified() -> None:
    bench = Bench([say("finish", answer="x")] * 9, MemorySandbox({"make": 2}))
    finished = await bench.run(started(check="make"))
    assert (finished.status, finished.reason, finished.verified) == ("done", "check_failed", False)
    assert len(bench.script.requests) == 3
    assert "`make` does not pass" in bench.script.requests[1].messages[-1].content


async def test_a_budget_with_a_check_never_met_is_not_verified() -> None:
    bench = Bench([say("shell", command=f"echo {n}") for n in range(9)])
    finished = await bench.run(started(check="make", budget=Budget(max_turns=2)))
    assert finished.verified is False


class SayNo:
    """Refuses everything."""

    async def judge(self, action: Action) -> str | None:
        return "not today"


async def test_what_is_not_approved_does_not_run() -> None:
    bench = Bench([say("shell", command="ls"), say("finish", answer="x")], approver=SayNo())
    await bench.run()
    assert not bench.sandbox.ran
    observations = [event.observation for event in bench.shown if isinstance(event, ActionFinished)]
    assert observations == [Refused(reason="not today")]


async def test_file_actions() -> None:
    bench = Bench(
        [
            say("write_file", path="a.txt", content="one\ntwo\n"),
            say("edit_file", path="a.txt", old="two", new="three"),
            say("read_file", path="a.txt", start=2, end=2),
            say("read_file", path="missing"),
            say("edit_file", path="a.txt", old="absent", new="x"),
            say("finish", answer="x"),
        ]
    )
    await bench.run()
    assert bench.sandbox.files["a.txt"] == b"one\nthree\n"
    seen = [event.observation for event in bench.shown if isinstance(event, ActionFinished)]
    assert fields_of(seen[2])["text"] == "three\n"
    assert seen[3] == Failed(message="missing: File not found")
    assert isinstance(seen[4], Failed)


class FullStore(MemoryStore):
    """The disk is full after three appends."""

    async def append(self, run_id: str, events: Sequence[RunEvent], *, durable: bool = True) -> None:
        if len(await self.events(run_id) if self._lines else []) >= 3:
            raise StoreFailed("the disk is full")
        await super().append(run_id, events)


async def test_nothing_runs_that_cannot_be_recorded() -> None:
    bench = Bench([say("shell", command="one"), say("shell", command="two")])
    object.__setattr__(bench.parts, "store", FullStore())
    with pytest.raises(StoreFailed):
        await run(started(), bench.parts)
    assert len(bench.sandbox.ran) <= 1
    assert bench.sandbox.left == 1


class Synced(MemoryStore):
    """Remembers what was in each commit, and whether it was to be synced."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[tuple[bool, list[str]]] = []

    async def append(self, run_id: str, events: Sequence[RunEvent], *, durable: bool = True) -> None:
        await super().append(run_id, events, durable=durable)
        self.commits.append((durable, [event.type for event in events]))


class RefusesTwo:
    async def judge(self, action: Action) -> str | None:
        return "no" if isinstance(action, Shell) and action.command == "two" else None


async def test_a_turn_is_one_sync_and_only_what_came_of_an_action_waits_for_the_next() -> None:
    """But for what a person may have said."""
    bench = Bench(
        [say("shell", command="one"), say("shell", command="two"), say("finish", answer="x")], approver=RefusesTwo()
    )
    store = Synced()
    object.__setattr__(bench.parts, "store", store)
    await run(started(), bench.parts)
    answered = (True, ["model_answered", "answer_understood", "action_started"])
    begun = [(True, ["run_started"]), (True, ["sandbox_started"]), (True, ["model_started"])]
    assert store.commits[:7] == [*begun, answered, (False, ["action_finished"]), answered, (True, ["action_finished"])]
    assert len(store.commits) > 7
    assert all(durable for durable, _ in store.commits[7:])


class SmallWindow(ScriptedModel):
    """Counts a token for four characters, as its server would, and refuses what is over the window."""

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        prompt = sum(len(message.content) for message in request.messages) // 4
        if prompt > 2048:
            raise ContextExceeded("too long", prompt, 2048)
        answer = await super().ask(request, on_text)
        return answer.model_copy(update={"usage": Usage(prompt_tokens=prompt, completion_tokens=20)})


async def test_a_long_run_with_large_outputs_stays_in_a_small_window() -> None:
    model = SmallWindow([say("shell", command=f"dump {n}") for n in range(100)] + [say("finish", answer="done")])
    model.info = ModelInfo(name="small", provider="test", context_window=2048)
    big = MemorySandbox(
        on_command=lambda c: CommandOutput(exit_code=0, chunks=(Chunk.of("stdout", (c * 9000).encode()),))
    )
    bench = Bench([], big, model=model)
    finished = await bench.run(started(task="the original task", budget=Budget(max_turns=200)))
    assert finished.status == "done", finished.detail
    assert all(request.messages[1].content.startswith("the original task") for request in model.requests)
    answered = [event for event in bench.shown if isinstance(event, ModelAnswered)]
    assert max(event.answer.usage.prompt_tokens for event in answered) <= 2048
    assert bench.types().count("history_compacted") < 40


class BrokenSandbox(MemorySandbox):
    """Has a bug."""

    async def run(self, command: str, timeout_s: float | None = None) -> CommandOutput:
        raise ZeroDivisionError("by zero")


async def test_a_bug_is_on_record_and_still_raised() -> None:
    bench = Bench([say("shell", command="x")], BrokenSandbox())
    with pytest.raises(ZeroDivisionError):
        await bench.run()
    last = (await bench.store.events("r1"))[-1]
    assert isinstance(last, RunFinished)
    assert (last.status, last.reason) == ("failed", "bug")


class UnusableModel(ScriptedModel):
    """Finds out only when it is started that what the person gave does not fit."""

    async def __aenter__(self) -> "UnusableModel":
        raise UsageError("a window of 9 tokens is too small", "ask for a larger one")


async def test_a_mistake_of_the_person_seen_late_is_no_bug() -> None:
    finished = await Bench([], model=UnusableModel([])).run()
    assert (finished.status, finished.reason) == ("failed", "usage")
    assert "ask for a larger one" in finished.detail
