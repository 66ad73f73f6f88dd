"""Two cannot drive one run: on both databases, with processes that are killed and stopped for real."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from stockade.core.errors import RunTaken
from stockade.store.lease import LEASE_S, Holder, holding, this_process
from stockade.store.record import SQLRecord
from stockade.testing.conformance.store import first, some
from tests.unit.store.conftest import OpenAgain

pytestmark = pytest.mark.anyio

DRIVER = """
import anyio, sys
from stockade.runtime.records import open_store
from stockade.testing.conformance.store import first

async def main() -> None:
    store = open_store(sys.argv[1])
    async with store.driving("r"):
        await store.append("r", [first("r")])
        print("driving", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


def driver(where: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen([sys.executable, "-c", DRIVER, where], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "driving\n"
    return process


async def _say_elsewhere(store: SQLRecord, silent_s: float) -> None:
    """As if the lease were held on another machine, without a sign for so long."""
    there = Holder(host="elsewhere", pid=1, began=1, boot="another").json
    sql = f"UPDATE leases SET holder=?, seen={store._db.now} - ? WHERE run_id='r'"
    await store._writer.write(lambda: store._db.execute(sql, (there, silent_s)))


async def test_who_drives_is_named_and_nobody_else_can_write(open_again: OpenAgain) -> None:
    async with open_again() as mine, open_again() as other:
        async with mine.driving("r"):
            await mine.append("r", [first("r")])
            with pytest.raises(RunTaken, match=f"is being driven by process {os.getpid()} on "):
                await other.append("r", some(1))
            with pytest.raises(RunTaken, match="is being driven by"):
                async with other.driving("r"):
                    pass
            with pytest.raises(RunTaken, match="is being driven by"):
                await other.remove("r")
            with pytest.raises(RunTaken):
                async with mine.driving("r"):
                    pass
            assert await other.driver("r") == f"process {os.getpid()} on {os.uname().nodename}"
            assert [run.driver is not None for run in await other.runs()] == [True]
            await mine.append("r", some(1))
        assert await other.driver("r") is None
        assert [run.driver for run in await other.runs()] == [None]
        await other.append("r", some(2))
        async with other.driving("r"):
            await other.append("r", some(3))
        assert len(await mine.events("r")) == 10


async def test_other_runs_are_free(open_again: OpenAgain) -> None:
    async with open_again() as mine, open_again() as other:
        async with mine.driving("r"), other.driving("s"):
            await mine.append("r", [first("r")])
            await other.append("s", [first("s")])


async def test_a_killed_driver_is_followed_at_once(open_again: OpenAgain, where: str) -> None:
    async with open_again() as store:
        with driver(where) as process:
            process.send_signal(signal.SIGSTOP)
            with pytest.raises(RunTaken, match=f"process {process.pid}"):
                await store.append("r", some(1))
            process.kill()
        async with store.driving("r"):
            await store.append("r", some(1))
        assert len(await store.events("r")) == 4


async def test_a_driver_elsewhere_is_followed_when_it_is_silent_for_long(open_again: OpenAgain) -> None:
    async with open_again() as mine, open_again() as other:
        async with mine.driving("r"):
            await mine.append("r", [first("r")])
            await _say_elsewhere(mine, LEASE_S / 2)
            with pytest.raises(RunTaken, match="process 1 on elsewhere"):
                await other.append("r", some(1))
            await _say_elsewhere(mine, LEASE_S * 2)
            async with other.driving("r"):
                await other.append("r", some(1))
                with pytest.raises(RunTaken, match="is being driven by"):
                    await mine.append("r", some(2))
            with pytest.raises(RunTaken, match="was taken over"):
                await mine.append("r", some(2))
        assert len(await other.events("r")) == 4


async def test_whoever_only_appends_shuts_a_lost_driver_out(open_again: OpenAgain) -> None:
    async with open_again() as mine, open_again() as other:
        async with mine.driving("r"):
            await mine.append("r", [first("r")])
            await _say_elsewhere(mine, LEASE_S * 2)
            await other.append("r", some(1))
            with pytest.raises(RunTaken, match="was taken over"):
                await mine.append("r", some(2))


async def test_only_one_of_many_gets_it(open_again: OpenAgain) -> None:
    stores = [open_again() for _ in range(6)]
    got: list[int] = []

    async def take(number: int, store: SQLRecord) -> None:
        try:
            async with store.driving("r"):
                got.append(number)
                await everybody_tried.wait()
        except RunTaken:
            refused.release()

    everybody_tried, refused = anyio.Event(), anyio.Semaphore(0)
    async with anyio.create_task_group() as group:
        for number, store in enumerate(stores):
            group.start_soon(take, number, store)
        for _ in stores[1:]:
            await refused.acquire()
        everybody_tried.set()
    assert len(got) == 1
    for store in stores:
        await store.close()


async def test_a_driver_gives_signs_while_it_waits(open_again: OpenAgain) -> None:
    async with open_again() as other:
        async with open_again(beat_s=0.02) as mine, mine.driving("r"):
            await _say_elsewhere(mine, LEASE_S * 2)
            with anyio.fail_after(60):
                while await other.driver("r") is None:  # asking is what takes the time
                    await anyio.lowlevel.checkpoint()


def test_a_process_id_that_was_given_again_is_another_process() -> None:
    with holding() as me:
        assert me.is_alive(1e9)
        assert not replace(me, began=me.began - 1).is_alive(0)
        assert not replace(me, pid=2**22 + 1).is_alive(0)
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as later:  # than this one, by more than a clock tick
            assert not replace(me, pid=later.pid).is_alive(0)
    assert not me.is_alive(0)


def test_elsewhere_only_time_tells() -> None:
    there = replace(this_process(), boot="another")
    assert there.is_alive(LEASE_S - 1)
    assert not there.is_alive(LEASE_S + 1)
    assert not replace(this_process(), boot="").is_alive(LEASE_S + 1)
