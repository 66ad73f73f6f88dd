"""What a sandbox asks of the network, put on record as it happens, beside what the loop puts there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from stockade.core.events import NetworkRequested
from stockade.core.ports import Sandbox
from stockade.loop.record import Record

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

    def note(self, event: NetworkRequested) -> None:
        """Never blocks."""
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
        for place, other in enumerate(self.waiting):
            if _kind(other) == _kind(event):
                self.waiting[place] = _sum(other, event)
                return True
        return False

    async def keep_writing(self) -> None:
        """Until cancelled; `write` then takes what is left."""
        while True:
            await self.news.wait()
            self.news = anyio.Event()
            await self.write()
            await anyio.sleep(PAUSE_S)  # a limit of the rate: what comes meanwhile is written together

    async def write(self) -> None:
        events, self.waiting = self.waiting, []
        self.written += len(events)
        if events:
            with anyio.CancelScope(shield=True):  # else on disk, perhaps, and not in the state
                await self.record.add(*events)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _kind(event: NetworkRequested) -> tuple[object, ...]:
    return event.host, event.port, event.method, event.verdict, event.reason, event.status


def _sum(one: NetworkRequested, other: NetworkRequested) -> NetworkRequested:
    added = {
        name: getattr(one, name) + getattr(other, name) for name in ("bytes_up", "bytes_down", "duration_s", "count")
    }
    return one.model_copy(update={"at": other.at, **added})


@asynccontextmanager
async def recorded(record: Record, sandbox: Sandbox) -> AsyncIterator[None]:
    """Around a sandbox from before its start to after its end. StoreFailed ends what is inside, as everywhere."""
    recorder = NetworkRecorder(record)
    sandbox.on_network = recorder.note
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
        await recorder.write()
