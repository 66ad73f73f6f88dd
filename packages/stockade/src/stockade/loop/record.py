"""The only way an event comes to be: on disk first, then into the state and the conversation, then shown.

Beside what the loop puts there: what a run can go on from (checkpoints: its files and its exported variables), and what
its sandbox asks of the network, as it happens.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial

import anyio

from stockade.core.actions import Action, Answered, Failed, Observation, ReadFile, Refused, Shell
from stockade.core.events import ActionFinished, Checkpoint, NetworkRequested, RunEvent
from stockade.core.ports import Clock, NetworkApprover, OnEvent, RunStore, Sandbox, SnapshotStore
from stockade.core.secrets import Redactor
from stockade.loop.context import Context
from stockade.loop.state import RunState
from stockade_sandbox.port import HasDoorkeeper, RecordsFirst, ShowsOutput, TellsExports
from stockade_sandbox.results import NetworkRequest


@dataclass(slots=True)
class Record:
    """The events of one run, and what follows from them."""

    run_id: str
    store: RunStore
    context: Context
    listener: OnEvent | None = None
    redactor: Redactor = field(default_factory=Redactor)
    state: RunState = field(default_factory=RunState)
    turn: anyio.Lock = field(default_factory=partial(anyio.Lock, fast_acquire=True))

    async def add(self, *events: RunEvent) -> None:
        """Returns when `events` are on disk and taken in, without the secrets in them."""
        events = tuple(self.redactor.event(event) for event in events)
        with anyio.CancelScope(shield=True):  # else on disk, perhaps, and not in the state
            await self._add(events)

    async def _add(self, events: tuple[RunEvent, ...]) -> None:
        async with self.turn:  # what the network has to say comes at any time: one order on disk and here
            await self.store.append(self.run_id, events, durable=not all(_may_wait(event) for event in events))
            for event in events:
                self.state.apply(event)
                self.context.apply(event)
                if self.listener is not None:
                    self.listener(event)


def _may_wait(event: RunEvent) -> bool:
    """Whether it need not be synced before the model's next answer is: a power cut leaves its action "unknown" then.

    What a user said is: nobody says it again. docs/record.md has the whole reasoning.
    """
    if isinstance(event, ActionFinished):
        return not isinstance(event.observation, Answered | Refused)
    return isinstance(event, Checkpoint)


EXPORTS = "(s=$?; export -p; exit $s)"
"""Asks a shell that does not tell its environment by itself. Leaves `$?` as it was: a bot may look at it next."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Made after each action that may have left something; without a `keeper` there are none."""

    sandbox: Sandbox
    clock: Clock
    snapshots: SnapshotStore | None = None

    async def after(self, action: Action, observation: Observation, state: RunState) -> list[Checkpoint]:
        """None or one, for the same commit as the observation: durable together or not at all.

        Raises SandboxFailed when what was written cannot be kept: then the action is not on record as done either.
        """
        if self.snapshots is None or isinstance(action, ReadFile) or isinstance(observation, Refused | Failed):
            return []
        last = state.checkpoint
        files = await self.snapshots.keep()
        exports = last.exports if last else None
        if isinstance(action, Shell):
            exports = await self._exports() or exports
        return self.of(files, exports, state)

    def of(self, files: tuple[str | None, ...], exports: str | None, state: RunState) -> list[Checkpoint]:
        """None where nothing has changed since the last one."""
        last = state.checkpoint
        if files == (last.files if last else (None,) * len(files)) and exports == (last.exports if last else None):
            return []
        return [Checkpoint(at=self.clock.now(), turn=state.turns, files=files, exports=exports)]

    async def _exports(self) -> str | None:
        """None when they cannot be had, or are too long to be kept whole."""
        if isinstance(self.sandbox, TellsExports):
            return self.sandbox.exports
        with _unshown(self.sandbox):
            output = await self.sandbox.run(EXPORTS)
        if output.shell_event is not None or output.timed_out or output.truncated_bytes:
            return None
        return output.stdout.decode(errors="surrogateescape").encode(errors="replace").decode() or None


@contextmanager
def _unshown(sandbox: Sandbox) -> Iterator[None]:
    """Inside, its shell does what is none of the bot's commands."""
    if not isinstance(sandbox, ShowsOutput):
        yield
        return
    shown, sandbox.on_output = sandbox.on_output, None
    try:
        yield
    finally:
        sandbox.on_output = shown


PAUSE_S = 0.1
"""Between two writes: a bot that asks thousands of times a second costs ten commits."""
MANY = 64
"""From here on alike requests that wait for the next write become one event."""
MAX_EVENTS = 5000
"""Of one run; the rest is added up whatever its host."""
REST = "(others)"


@dataclass(slots=True)
class NetworkRecorder:
    """Requests wait here, in order, until they are on record. Bounded whatever a bot does."""

    record: Record
    waiting: list[NetworkRequested] = field(default_factory=list)
    written: int = 0
    news: anyio.Event = field(default_factory=anyio.Event)

    def note(self, request: NetworkRequest) -> None:
        """Never blocks."""
        event = NetworkRequested(**asdict(request))
        if len(self.waiting) < MANY and self.written + len(self.waiting) < MAX_EVENTS:
            self.waiting.append(event)
        else:
            self._merge(event)
        self.news.set()

    def _merge(self, event: NetworkRequested) -> None:
        """Into an alike one; where there is none and no room for it, into one for all that were treated alike."""
        if not self._merged(event):
            if len(self.waiting) >= 2 * MANY or self.written + len(self.waiting) >= MAX_EVENTS:
                event = event.model_copy(update={"host": REST, "port": 0, "method": "?", "reason": "", "status": 0})
            if not self._merged(event):
                self.waiting.append(event)

    def _merged(self, event: NetworkRequested) -> bool:
        for index, other in enumerate(self.waiting):
            if _kind(other) == _kind(event):
                self.waiting[index] = _sum(other, event)
                return True
        return False

    async def keep_writing(self) -> None:
        """Until cancelled; `write` then takes what is left."""
        while True:
            await self.news.wait()
            self.news = anyio.Event()
            await self.write()
            await anyio.sleep(PAUSE_S)  # a limit of the rate: what comes meanwhile is written together

    async def first(self, request: NetworkRequest) -> None:
        """Ends when it is on record."""
        self.note(request)
        await self.write()

    async def write(self) -> None:
        events, self.waiting = self.waiting, []
        self.written += len(events)
        if events:
            await self.record.add(*events)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _kind(event: NetworkRequested) -> tuple[object, ...]:
    return event.host, event.port, event.method, event.verdict, event.reason, event.status, event.credential


def _sum(one: NetworkRequested, other: NetworkRequested) -> NetworkRequested:
    added = {
        name: getattr(one, name) + getattr(other, name) for name in ("bytes_up", "bytes_down", "duration_s", "count")
    }
    return one.model_copy(update={"at": other.at, **added})


@asynccontextmanager
async def recorded(record: Record, sandbox: Sandbox, network: NetworkApprover | None = None) -> AsyncIterator[None]:
    """Around a sandbox from before its start to after its end. StoreFailed ends what is inside, as everywhere.
    `network` is who is asked for what its list does not have.
    """
    recorder = NetworkRecorder(record)
    sandbox.on_network = recorder.note
    if isinstance(sandbox, RecordsFirst):
        sandbox.on_record = recorder.write
    if network is not None and isinstance(sandbox, HasDoorkeeper):
        network.record, sandbox.doorkeeper = recorder.first, network
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(recorder.keep_writing)
            try:
                yield
            finally:
                group.cancel_scope.cancel()
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors
    finally:
        sandbox.on_network = None
        if isinstance(sandbox, RecordsFirst):
            sandbox.on_record = None
        await recorder.write()
