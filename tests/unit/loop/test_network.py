"""Requests of a sandbox on record: in order, beside the loop's own events, bounded."""

from typing import Any

import anyio
import pytest

from stockade.core.errors import SandboxDied, StoreFailed
from stockade.core.events import NetworkRequested
from stockade.loop import record
from stockade.loop.context import Context
from stockade.loop.record import MANY, REST, NetworkRecorder, Record
from stockade.loop.run import run
from stockade.testing import MemorySandbox, MemoryStore, say
from stockade_sandbox.results import CommandOutput, NetworkRequest
from tests.unit.loop.helpers import Bench, started

pytestmark = pytest.mark.anyio


def request(host: str = "a.org", **other: Any) -> NetworkRequest:
    fields = {"at": 1, "host": host, "port": 443, "method": "CONNECT", "verdict": "allowed", "bytes_up": 1, **other}
    return NetworkRequest(**fields)


class AskingSandbox(MemorySandbox):
    """Each command asks for the host it names; `bye` is asked for when it ends."""

    async def run(self, command: str, timeout_s: float | None = None) -> CommandOutput:
        assert self.on_network is not None
        self.on_network(request(command))
        if command == "die":
            raise SandboxDied("gone")
        await anyio.wait_all_tasks_blocked()
        return CommandOutput(exit_code=0)

    async def __aexit__(self, *error: object) -> None:
        assert self.on_network is not None
        self.on_network(request("bye"))


async def test_requests_are_on_record_before_the_command_is_over_and_at_the_end() -> None:
    bench = Bench([say("shell", command="one"), say("finish", answer="ok")], AskingSandbox())
    await bench.run()
    assert bench.types()[-7:] == [
        "action_started", "network_requested", "action_finished", "model_answered", "answer_understood",
        "network_requested", "run_finished",
    ]  # fmt: skip
    assert [event.host for event in bench.shown if isinstance(event, NetworkRequested)] == ["one", "bye"]
    assert bench.sandbox.on_network is None


async def test_a_sandbox_that_dies_leaves_its_requests_and_its_name() -> None:
    bench = Bench([say("shell", command="die")], AskingSandbox())
    finished = await bench.run()
    assert (finished.reason, finished.detail) == ("sandbox", "gone")
    assert [event.host for event in bench.shown if isinstance(event, NetworkRequested)] == ["die", "bye"]


class FullStore(MemoryStore):
    async def append(self, run_id: str, events: object, *, durable: bool = True) -> None:
        if isinstance(events, tuple) and isinstance(events[0], NetworkRequested):
            raise StoreFailed("the disk is full")


async def test_a_record_that_cannot_be_written_ends_the_run() -> None:
    bench = Bench([say("shell", command="one")], AskingSandbox())
    parts = bench.parts
    full = type(parts)(**{name: getattr(parts, name) for name in parts.__slots__} | {"store": FullStore()})
    with pytest.raises(StoreFailed, match="the disk is full"):
        await run(started(), full)


def recorder(store: MemoryStore) -> NetworkRecorder:
    bench = Bench([])
    return NetworkRecorder(Record("r1", store, Context(bench.parts.protocol)))


async def test_a_flood_of_alike_requests_is_one_event() -> None:
    store = MemoryStore()
    found = recorder(store)
    for _ in range(1000):
        found.note(request())
    await found.write()
    events = [event for event in await store.events("r1") if isinstance(event, NetworkRequested)]
    assert len(events) == MANY
    assert sum(event.count for event in events) == sum(event.bytes_up for event in events) == 1000


async def test_a_flood_of_many_hosts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MAX_EVENTS", 300)
    store = MemoryStore()
    found = recorder(store)
    for number in range(2000):
        found.note(request(f"x{number}.org", verdict="refused" if number % 2 else "allowed"))
        if number % 500 == 0:
            await found.write()
    await found.write()
    events = [event for event in await store.events("r1") if isinstance(event, NetworkRequested)]
    assert len(events) <= 310
    assert sum(event.count for event in events) == 2000
    assert {event.verdict for event in events if event.host == REST} == {"allowed", "refused"}
