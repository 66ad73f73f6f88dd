"""What every Hook and every Bot keeps, each promise once. Subclass a suite in a test module and give it the part.

The real loop runs on a scripted model, a sandbox and a record in memory. The checks are synchronous and start their own
event loop, so that they need no plugin.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import anyio

from stockade.core.actions import (
    Action,
    AskUser,
    EditFile,
    Finish,
    HookWords,
    ReadFile,
    Refused,
    Shell,
    ToolCall,
    WriteFile,
)
from stockade.core.budget import Budget
from stockade.core.errors import ModelUnavailable, StockadeError, UsageError
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    CheckFinished,
    HookRan,
    MessageInjected,
    ModelAnswered,
    ModelStarted,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
)
from stockade.core.messages import ModelAnswer, ModelRequest
from stockade.core.ports import AnswerProtocol, OnText
from stockade.loop.ending import Ending
from stockade.loop.hooks import Hook
from stockade.loop.resume import resume
from stockade.loop.run import Dependencies, run
from stockade.loop.run_context import Bot, RunContext
from stockade.loop.state import fold
from stockade.testing.fakes import FixedClock, MemorySandbox, MemoryStore, ScriptedModel, StepAnswers, steps
from stockade_sandbox.policy import FolderRule, Network, Policy

TOOLS = ("shell", "read_file", "write_file", "edit_file", "finish")
PATIENCE_S = 60.0
AWKWARD = "a \"b\" 'c' `d` $(e) \\n\n\té 😀 \x00\x1b[31m " + "x" * 20_000
ACTIONS: Sequence[Action] = (
    Shell(command="ls"),
    Shell(command=""),
    Shell(command=AWKWARD, timeout_s=0.5),
    Shell(command="fails"),
    WriteFile(path="a b.txt", content=AWKWARD),
    ReadFile(path="a b.txt", start=1, end=2),
    EditFile(path="a b.txt", old="a", new="", replace_all=True),
    ReadFile(path="no such file"),
    ToolCall(name="no_such_tool", arguments={"x": [None]}),
    AskUser(question="?"),
    Shell(command="ls"),
)
"""Of every kind, with content that trips whoever takes it for something else."""
_SCRIPT = [steps(action) for action in (*ACTIONS, *[Finish(answer="done")] * 9)]
FIRST = RunStarted(
    at=1.0, version="0", run_id="r1", task="do it", bot="writing", model="scripted/x", answers="steps",
    sandbox="memory", policy=Policy(), budget=Budget(max_turns=30, timeout_s=0), system_prompt="You are a bot.",
)  # fmt: skip
T = TypeVar("T")
Said = str | ModelAnswer | StockadeError


class _Seen(Bot):
    """Keeps the run as the bot inside has it."""

    def __init__(self, bot: Bot) -> None:
        self.bot = bot
        self.ctx: RunContext | None = None

    async def run(self, ctx: RunContext) -> Ending:
        self.ctx = ctx
        return await self.bot.run(ctx)


class _Silent(ScriptedModel):
    """Never answers; `asked` is set when it was asked."""

    def __init__(self) -> None:
        super().__init__(())
        self.asked = anyio.Event()

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        self.asked.set()
        await anyio.sleep_forever()
        raise AssertionError


@dataclass(slots=True)
class _Run:
    """A run of the suite, and what is left of it."""

    model: ScriptedModel
    bot: Bot = field(default_factory=Bot)
    hooks: tuple[Hook, ...] = ()
    sandbox: MemorySandbox = field(default_factory=lambda: MemorySandbox({"fails": 3, "ls": "a b.txt\n"}))
    protocol: AnswerProtocol = field(default_factory=StepAnswers)
    store: MemoryStore = field(default_factory=MemoryStore)
    events: list[RunEvent] = field(default_factory=list)

    @property
    def parts(self) -> Dependencies:
        return Dependencies(
            model=self.model, protocol=self.protocol, sandbox=self.sandbox, store=self.store, clock=FixedClock(),
            tools=TOOLS, hooks=self.hooks, bot=self.bot, on_event=self.events.append,
        )  # fmt: skip

    async def whole(self, first: RunStarted = FIRST) -> RunFinished:
        return await run(first, self.parts)

    async def again(self, history: Sequence[RunEvent]) -> RunFinished:
        """From a record that was cut there."""
        await self.store.append(FIRST.run_id, history)
        return await resume(history, RunResumed(at=2.0, version="0", model=FIRST.model, sandbox=FIRST.sandbox,
                                                budget=FIRST.budget, check=FIRST.check), self.parts)  # fmt: skip

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]


def _patiently(work: Callable[[], Awaitable[T]]) -> T:
    async def within() -> T:
        with anyio.fail_after(PATIENCE_S):
            return await work()

    return anyio.run(within)


def _patient(check: Callable[[Any], Awaitable[None]]) -> Callable[[Any], None]:
    return lambda suite: _patiently(partial(check, suite))


class HookConformance(ABC):
    """`make_hook` gives a new one each time. `first`: how the runs begin, for a hook that wants a check or a task."""

    first = FIRST

    @abstractmethod
    def make_hook(self) -> Hook: ...

    def _whole(self) -> tuple[_Run, RunFinished, _Seen]:
        """A run with an action of every kind, watched by the hook alone."""
        watch = _Seen(Bot())
        this = _Run(ScriptedModel(_SCRIPT), bot=watch, hooks=(self.make_hook(),))
        return this, _patiently(partial(this.whole, self.first)), watch

    def test_it_has_a_name_of_its_own(self) -> None:
        assert self.make_hook().name not in ("", Hook.name)

    def test_it_stands_every_moment(self) -> None:
        """It raises nothing, hangs nowhere and answers what the moment takes, whatever a bot does."""
        _, finished, _ = self._whole()
        assert finished.reason not in ("hook", "bug"), finished.detail

    def test_an_action_is_done_as_it_was_written_or_refused_under_its_name(self) -> None:
        this, _, _ = self._whole()
        begun, over = this.of(ActionStarted), this.of(ActionFinished)
        assert [one.action.action for one in begun] == list(ACTIONS[: len(begun)])
        assert len(begun) == len(over)
        refused = [isinstance(one.observation, Refused) for one in over]
        commands = [one.action.action for one, no in zip(begun, refused, strict=True) if not no]
        checks = [one.command for one in this.of(CheckFinished)]
        ran = [action.command for action in commands if isinstance(action, Shell)]
        assert sorted(this.sandbox.ran) == sorted([*ran, *checks])

    def test_all_that_it_says_and_does_is_on_record_under_its_name(self) -> None:
        this, _, _ = self._whole()
        name = self.make_hook().name
        words = [words for one in this.of(ActionFinished) for words in one.words]
        by = [one.observation.by for one in this.of(ActionFinished) if isinstance(one.observation, Refused)]
        assert {one.source for one in this.of(MessageInjected)} <= {name}
        assert {one.hook for one in (*words, *this.of(HookRan)) if isinstance(one, HookWords | HookRan)} <= {name}
        assert set(by) <= {name, "user"}

    def test_the_prompt_only_grows(self) -> None:
        this, _, _ = self._whole()
        for before, after in zip(this.model.requests, this.model.requests[1:], strict=False):
            assert after.messages[: len(before.messages)] == before.messages

    def test_it_reads_the_state_and_never_changes_it(self) -> None:
        this, _, watch = self._whole()
        assert watch.ctx is not None
        assert watch.ctx.state == fold(this.events)

    def test_a_run_that_was_cut_goes_on_with_a_new_one(self) -> None:
        before = _Run(ScriptedModel(_SCRIPT))
        _patiently(before.whole)
        places = [number for number, event in enumerate(before.events) if isinstance(event, ActionStarted)]
        again = _Run(ScriptedModel(_SCRIPT), hooks=(self.make_hook(),))
        finished = _patiently(partial(again.again, before.events[: places[-1] + 1]))
        assert finished.reason not in ("hook", "bug"), finished.detail


class BotConformance(ABC):
    """`make_bot` gives the bot. `script`: the model's answers with which it comes to its end, in `protocol`; a run that
    was cut and asks once more is given the last of them again.
    """

    first = FIRST

    @abstractmethod
    def make_bot(self) -> Bot: ...

    @property
    def script(self) -> Sequence[Said]:
        return [steps(Shell(command="ls")), steps(Finish(answer="done"))]

    @property
    def protocol(self) -> AnswerProtocol:
        return StepAnswers()

    def _run(self, model: ScriptedModel) -> _Run:
        bot = self.make_bot()
        return _Run(model, bot=bot, hooks=bot.hooks(self.first), protocol=self.protocol)

    @_patient
    async def test_it_comes_to_an_end_that_is_on_record(self) -> None:
        this = self._run(ScriptedModel(self.script))
        finished = await this.whole(self.first)
        assert finished.status == "done", finished.detail
        assert await this.store.events(self.first.run_id) == this.events
        assert [type(this.events[0]), this.of(RunFinished)] == [RunStarted, [finished]]
        assert len(this.of(ActionStarted)) == len(this.of(ActionFinished))

    def test_its_sandbox_has_what_the_user_gave(self) -> None:
        """A bot adds to a policy; what was closed stays closed."""
        asked = Policy(folders=(FolderRule(host="/", mode="ro"),), network=Network(mode="none"))
        policy = self.make_bot().policy(asked)
        assert policy == self.make_bot().policy(asked)
        assert policy.folders[: len(asked.folders)] == asked.folders
        assert (policy.network, policy.limits) == (asked.network, asked.limits)

    @_patient
    async def test_it_keeps_to_its_turns(self) -> None:
        this = self._run(ScriptedModel(list(self.script) * 4))
        finished = await this.whole(self.first.model_copy(update={"budget": Budget(max_turns=1, timeout_s=0)}))
        assert len(this.of(ModelAnswered)) <= len(self.script)
        assert (finished.status, finished.reason) in (("done", "finish"), ("stopped", "turns"))

    @_patient
    async def test_its_time_ends_also_where_the_model_never_answers(self) -> None:
        this = self._run(_Silent())
        finished = await this.whole(self.first.model_copy(update={"budget": Budget(timeout_s=0.2)}))
        assert (finished.status, finished.reason) == ("stopped", "time")

    @_patient
    async def test_a_run_that_the_user_stopped_asks_nothing_more(self) -> None:
        this = self._run(ScriptedModel(self.script))
        parts = this.parts
        parts.pause.stop("enough")
        finished = await run(self.first, parts)
        assert (finished.status, finished.reason, this.of(ModelAnswered)) == ("stopped", "user", [])

    @_patient
    async def test_one_that_is_cancelled_is_closed(self) -> None:
        model = _Silent()
        this = self._run(model)
        async with anyio.create_task_group() as group:
            group.start_soon(this.whole, self.first)
            await model.asked.wait()
            group.cancel_scope.cancel()
        assert [one.reason for one in this.of(RunFinished)] == ["user"]

    @_patient
    async def test_a_model_that_is_gone_ends_it_by_that_name(self) -> None:
        finished = await self._run(ScriptedModel([ModelUnavailable("gone")])).whole(self.first)
        assert (finished.status, finished.reason) == ("failed", "model")

    @_patient
    async def test_it_goes_on_from_any_place_of_its_record_or_says_why_not(self) -> None:
        """And does no action again that is on record."""
        whole = self._run(ScriptedModel(self.script))
        await whole.whole(self.first)
        begin = next(n for n, event in enumerate(whole.events) if isinstance(event, ModelStarted)) + 1
        for index in range(begin, len(whole.events)):
            history = whole.events[:index]
            try:
                self.make_bot().check_resume(self.first, (), done=False)
            except UsageError:
                continue
            answered = sum(isinstance(event, ModelAnswered) for event in history)
            this = self._run(ScriptedModel([*list(self.script)[answered:], *[self.script[-1]] * 9]))
            finished = await this.again(history)
            assert finished.reason not in ("bug", "hook", "model"), finished.detail
            begun = sum(isinstance(event, ActionStarted) for event in history)
            assert len(this.of(ActionStarted)) <= len(whole.of(ActionStarted)) - begun


__all__ = ["ACTIONS", "BotConformance", "HookConformance"]
