"""The hook port: whatever watches or holds a run is a `Hook`.

Approval, budgets, `--check`, loop detection and help for small models are hooks, and so is whatever a user adds. A
hook sees typed events and answers with the dataclasses below. It can add words, refuse one action, send a finish back,
choose the next sampling or end the run with a named reason. It cannot hide a tool, change what a bot wrote, or delete a
turn. All that it does is on record under its name; a command that it runs too (`HookContext.exec`).

Hooks are asked in the order of the run (`RunStarted.hooks`). Messages and words of all of them are added; the first
that refuses, sends back, accepts or ends decides.
"""

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args

import anyio

from stockade.core.actions import Action, Finish, HookWords, Observation, Refused, Step
from stockade.core.budget import Account
from stockade.core.errors import HookFailed, SandboxFailed, StoreFailed
from stockade.core.events import (
    CheckFinished,
    Checkpoint,
    HookRan,
    MessageInjected,
    RunEvent,
    RunStarted,
    Status,
    StopReason,
)
from stockade.core.messages import Sampling
from stockade.core.ports import Clock, ExecResult, Sandbox
from stockade.core.text import is_text
from stockade.loop.record import Checkpoints, Record
from stockade.loop.state import HookAct, RunState
from stockade.loop.verdict import Judge, argv_of, observed, standing_still

DEFAULT_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class AddMessage:
    """Said to the model before its next turn. `rule` names what in the hook spoke, for the record."""

    text: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class AddWords:
    """Said to the model behind an observation, before that is first sent; marked with the hook's name."""

    text: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The action is not done. `reason` is shown to the user and to the model."""

    reason: str
    rule: str = ""
    by: str = ""
    """Who refused, where that is not the hook itself: the user."""


@dataclass(frozen=True, slots=True)
class Accept:
    """The finish stands, and no later hook is asked."""


@dataclass(frozen=True, slots=True)
class SendBack:
    """The finish does not stand; `text` says to the model why. Empty where an event has said so already."""

    text: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class EndRun:
    """The run ends here. `detail` is for the user."""

    status: Status
    reason: StopReason
    detail: str = ""


class EndedByHook(Exception):
    """A hook ends the run in the middle of what a bot with a way of its own does."""

    def __init__(self, end: EndRun) -> None:
        super().__init__(end.detail)
        self.end = end


@dataclass(frozen=True, slots=True)
class HookContext:
    """What a hook sees. `state` is the fold over the events so far; hooks read it and never change it.

    `attended`: a user is there to answer questions. `spoken`: the finish was read from plain words without a call.
    """

    started: RunStarted
    record: Record
    account: Account
    checkpoints: Checkpoints
    judge: Judge | None = None
    attended: bool = False
    spoken: bool = False
    hook: str = ""

    @property
    def state(self) -> RunState:
        return self.record.state

    @property
    def clock(self) -> Clock:
        return self.checkpoints.clock

    @property
    def sandbox(self) -> Sandbox:
        return self.checkpoints.sandbox

    def count(self, kind: HookAct) -> int:
        """How often this hook has spoken, refused or sent something in this task."""
        return self.state.hook_acts[self.hook, kind]

    def _seconds_for_a_check(self, now: float) -> float | None:
        """The longest that a command may take, but no more than the run has left; a usual command's time it has."""
        limits, left = self.started.policy.limits, self.account.seconds_left(now)
        bounds = [limits.most_seconds or None, None if left is None else max(left, limits.command_timeout_s)]
        return min((bound for bound in bounds if bound is not None), default=None)

    async def check(self, command: str) -> CheckFinished:
        """Whether `command` passes on what the bot wrote, on record with its result. Raises SandboxFailed.

        It runs in a fresh sandbox where there can be one, else in this one beside the bot's shell.
        """
        begun, checkpoints, state = self.clock.now(), self.checkpoints, self.state
        limit_s = self._seconds_for_a_check(begun)
        apart = self.judge is not None and checkpoints.snapshots is not None
        kept: list[Checkpoint] = []
        if self.judge is not None and checkpoints.snapshots is not None:
            async with standing_still(self.sandbox):
                names = await checkpoints.snapshots.keep()
            kept = checkpoints.of(names, state.checkpoint.exports if state.checkpoint else None, state)
            output = observed(await self.judge(command, state.layers, names, self.sandbox.on_network, limit_s))
        else:
            output = observed(await self.sandbox.exec(argv_of(command), timeout_s=limit_s))
            kept = await checkpoints.after(Finish(answer=""), output, state)
        done = CheckFinished(
            at=self.clock.now(),
            turn=state.turns,
            command=command,
            passed=output.exit_code == 0,
            observation=replace(output, duration_s=self.clock.now() - begun),
            apart=apart,
        )
        await self.record.add(*kept, done)
        return done

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = 20.0, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        """Run a program in the sandbox, beside the bot's shell. It is on record. Raises SandboxFailed."""
        result = await self.sandbox.exec(argv, stdin, timeout_s, max_output_bytes)
        turn, now = self.state.turns, self.clock.now()
        await self.record.add(HookRan(at=now, turn=turn, hook=self.hook, argv=tuple(argv), exit_code=result.exit_code))
        return result

    async def add(self, event: RunEvent) -> None:
        """Put an event on record."""
        await self.record.add(event)


class Hook:
    """Base of all hooks: each method may be left out. `name` goes on record.

    A method that raises, takes longer than `timeout_s` (seconds, None for no limit) or returns something else than is
    said here ends the run as a configuration error that names the hook. One that blocks is noticed in the main thread.
    """

    name: str = "hook"
    timeout_s: float | None = DEFAULT_TIMEOUT_S

    async def before_turn(self, ctx: HookContext) -> AddMessage | EndRun | None:
        """Before the model is asked."""
        return None

    async def before_action(self, ctx: HookContext, action: Action) -> Refuse | EndRun | None:
        """Before an action is done; the action itself cannot be changed."""
        return None

    async def after_action(self, ctx: HookContext, step: Step, observation: Observation) -> AddWords | None:
        """After it, before the model hears of it."""
        return None

    async def before_finish(self, ctx: HookContext, finish: Finish) -> Accept | SendBack | EndRun | None:
        """When the bot says that it is done."""
        return None

    def sampling(self, ctx: HookContext, sampling: Sampling) -> Sampling:
        """How the next answer is drawn."""
        return sampling


@dataclass(frozen=True, slots=True)
class Hooks:
    """Asks the hooks of a run in their order, guards each, and puts what they say on record."""

    ctx: HookContext
    hooks: Sequence[Hook]
    _ctxs: dict[int, HookContext] = field(default_factory=dict)
    _watching: dict[str, tuple[Hook, ...]] = field(default_factory=dict)

    async def before_turn(self, turn: int) -> EndRun | None:
        """What is said goes on record for `turn`. An end where a hook wants one."""
        for hook in self._who("before_turn"):
            reply = await _guarded(hook, (AddMessage, EndRun), hook.before_turn, self._of(hook))
            if isinstance(reply, EndRun):
                return reply
            if isinstance(reply, AddMessage) and reply.text:
                await self._inject(hook, turn, reply.text, reply.rule)
        return None

    async def before_action(self, action: Action) -> tuple[Refused | None, EndRun | HookFailed | None]:
        """The first refusal, as an observation; and what ends the run once that is on record."""
        for hook in self._who("before_action"):
            try:
                reply = await _guarded(hook, (Refuse, EndRun), hook.before_action, self._of(hook), action)
            except HookFailed as broken:
                return Refused(reason="a hook is broken, and the run ends", by=hook.name), broken
            if isinstance(reply, EndRun):
                return Refused(reason="the run ends here", by=hook.name), reply
            if isinstance(reply, Refuse):
                return Refused(reason=reply.reason, by=reply.by or hook.name, rule=reply.rule), None
        return None, None

    async def after_action(
        self, step: Step, observation: Observation
    ) -> tuple[tuple[HookWords, ...], HookFailed | None]:
        """The words of all hooks; and the first that is broken, for what was done has to go on record before."""
        words: list[HookWords] = []
        for hook in self._who("after_action"):
            try:
                reply = await _guarded(hook, (AddWords,), hook.after_action, self._of(hook), step, observation)
            except HookFailed as broken:
                return tuple(words), broken
            if isinstance(reply, AddWords) and reply.text:
                words.append(HookWords(hook=hook.name, text=reply.text, rule=reply.rule))
        return tuple(words), None

    async def before_finish(self, finish: Finish, *, spoken: bool) -> EndRun | None:
        """How the run ends; None when the bot has to go on, and has been told why."""
        for hook in self._who("before_finish"):
            kinds = (Accept, SendBack, EndRun)
            reply = await _guarded(hook, kinds, hook.before_finish, self._of(hook, spoken), finish)
            if isinstance(reply, EndRun):
                return reply
            if isinstance(reply, Accept):
                break
            if isinstance(reply, SendBack):
                if reply.text:
                    await self._inject(hook, self.ctx.state.turns, reply.text, reply.rule)
                return None
        if finish.gave_up:
            return EndRun("stopped", "gave_up", "the bot says that the task cannot be done")
        return EndRun("done", "finish")

    def sampling(self, sampling: Sampling) -> Sampling:
        """`sampling` as the hooks want it next."""
        for hook in self._who("sampling"):
            with _faults_of(hook), alarm(hook.timeout_s):
                chosen = hook.sampling(self._of(hook), sampling)
            if not isinstance(chosen, Sampling):
                raise _broken(hook, f"it chose {type(chosen).__name__} where a Sampling is wanted")
            sampling = chosen
        return sampling

    async def _inject(self, hook: Hook, turn: int, text: str, rule: str) -> None:
        now = self.ctx.clock.now()
        await self.ctx.add(MessageInjected(at=now, turn=turn, source=hook.name, text=text, rule=rule))

    def _who(self, moment: str) -> tuple[Hook, ...]:
        """The hooks that have a method of their own for it."""
        if moment not in self._watching:
            base = getattr(Hook, moment)
            own = [hook for hook in self.hooks if getattr(getattr(hook, moment), "__func__", None) is not base]
            self._watching[moment] = tuple(own)
        return self._watching[moment]

    def _of(self, hook: Hook, spoken: bool = False) -> HookContext:
        """The context under the hook's name, made once."""
        ctx, own = self.ctx, self._ctxs.get(id(hook))
        if own is None or own.spoken != spoken:
            own = replace(ctx, spoken=spoken, hook=hook.name)
            self._ctxs[id(hook)] = own
        return own


@contextmanager
def _faults_of(hook: Hook) -> Iterator[None]:
    """What the hook does wrong inside is HookFailed; failures that are not its own pass."""
    try:
        yield
    except (HookFailed, SandboxFailed, StoreFailed):
        raise
    except anyio.get_cancelled_exc_class() as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise  # The run is cancelled, not something of the hook's own.
        raise _broken(hook, "it was cancelled from within") from error
    except (Exception, SystemExit) as error:
        raise _broken(hook, f"it raised {type(error).__name__}: {error}") from error
    except Blocked as error:
        raise _broken(hook, f"it blocked for {hook.timeout_s:g} s without awaiting anything") from error


async def _guarded(hook: Hook, kinds: tuple[type[Any], ...], method: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """What the hook answered, if it is None or one of `kinds`; else HookFailed."""
    reply: Any = None
    limit = None
    with _faults_of(hook):
        if hook.timeout_s is None:
            reply = await method(*args)
        else:
            with anyio.move_on_after(hook.timeout_s) as limit:
                reply = await Stepwise(method(*args), hook.timeout_s)
    if limit is not None and limit.cancelled_caught:
        raise _broken(hook, f"it did not answer within {hook.timeout_s:g} s")
    if reply is None:
        return None
    if not isinstance(reply, kinds):
        expected = ", ".join(kind.__name__ for kind in kinds)
        raise _broken(hook, f"it answered {type(reply).__name__}; wanted is one of {expected} or None")
    for one in fields(reply):
        if not (isinstance(value := getattr(reply, one.name), str) and is_text(value)):
            raise _broken(hook, f"{type(reply).__name__}.{one.name} is no text: {repr(value)[:60]}")
    if isinstance(reply, EndRun) and not (reply.status in get_args(Status) and reply.reason in get_args(StopReason)):
        raise _broken(hook, f"there is no end {reply.status!r}, {reply.reason!r}")
    return reply


def _broken(hook: Hook, what: str) -> HookFailed:
    return HookFailed(f"the hook {hook.name!r} is broken: {what}", f"mend it, or run without it: -o hooks=-{hook.name}")


class Blocked(BaseException):
    """Raised where it blocks. No Exception: what blocks is not to catch it."""


class Stepwise:
    """Awaits `work`; Blocked when one step of it, from one point where it waits to the next, takes `seconds`.

    Bounds nothing outside the main thread. An alarm that the program has set waits until then.
    """

    def __init__(self, work: Awaitable[Any], seconds: float) -> None:
        self._work, self._seconds = work, seconds

    def __await__(self) -> Generator[Any, Any, Any]:
        if not isinstance(self._work, Awaitable):
            raise TypeError(f"{type(self._work).__name__} cannot be awaited")
        steps = self._work.__await__()
        thrown: BaseException | None = None
        while True:
            try:
                with alarm(self._seconds):
                    waits_for = next(steps) if thrown is None else steps.throw(thrown)
            except StopIteration as end:
                return end.value
            try:
                yield waits_for
                thrown = None
            except BaseException as error:  # noqa: BLE001 - what is thrown in is for the work
                thrown = error


@contextmanager
def alarm(seconds: float | None) -> Iterator[None]:
    """Blocked in what is done inside, once `seconds` are over; with the same exceptions."""
    before = signal.getsignal(signal.SIGALRM) if threading.current_thread() is threading.main_thread() else None
    if seconds is None or before is None:
        yield
        return
    signal.signal(signal.SIGALRM, _blocked)
    other_s, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    begun = time.monotonic()
    try:
        yield
    finally:
        left_s = max(1e-3, other_s - (time.monotonic() - begun)) if other_s else 0
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left_s)


def _blocked(*_: object) -> None:
    raise Blocked
