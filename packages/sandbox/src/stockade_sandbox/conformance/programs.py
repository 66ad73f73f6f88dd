"""What every sandbox that carries programs beside the shell (port.Programs) must do, on any backend."""

import signal
from contextlib import AsyncExitStack

import anyio
import anyio.to_thread
import pytest

from stockade_sandbox.conformance.bench import Bench, output_of
from stockade_sandbox.policy import FolderRule, Limits, Policy
from stockade_sandbox.port import Freezable, Program, Programs, Shells


async def everything(found: Program) -> bytes:
    """What it writes until its end."""
    data = b""
    try:
        while True:
            data += await found.receive()
    except anyio.EndOfStream:
        return data


async def _until(found: Program, words: bytes) -> bytes:
    """What it writes up to them."""
    data = b""
    while not data.endswith(words):
        data += await found.receive()
    return data


class ProgramConformance:
    """A test module subclasses this and gives `bench` as a fixture."""

    pytestmark = pytest.mark.anyio

    async def test_it_is_spoken_to_between_commands_and_tells_its_end(self, bench: Bench) -> None:
        async with bench.make(Policy()) as box:
            assert isinstance(box, Programs)
            async with box.program(["sh", "-c", "pwd; cat; echo bye >&2; exit 7"]) as found:
                assert await output_of(box, "echo between") == "between\n"
                await found.send(b"x" * 300_000)
                await found.send_eof()
                assert await everything(found) == b"/workspace\n" + b"x" * 300_000
                assert (await found.exit_reason(), found.status) == ("bye", 7)

    async def test_the_first_may_end_before_the_second(self, bench: Bench) -> None:
        async with bench.make(Policy()) as box:
            assert isinstance(box, Programs)
            programs, first_is_there, second_is_there = box, anyio.Event(), anyio.Event()

            async def first() -> None:
                async with programs.program(["cat"]):
                    first_is_there.set()
                    await second_is_there.wait()

            async with anyio.create_task_group() as group:
                group.start_soon(first)
                await first_is_there.wait()
                async with box.program(["sh", "-c", "read x; cat"]) as second:
                    second_is_there.set()
                    with anyio.fail_after(30):
                        while (await output_of(box, "pgrep -cx cat || true")).strip() != "0":
                            await anyio.lowlevel.checkpoint()
                    await second.send(b"\nalone\n")
                    assert await second.receive() == b"alone\n"

    async def test_programs_overlap_by_their_own_stamps_beside_a_busy_shell(self, bench: Bench) -> None:
        meet = "date +%s%N; : > /tmp/$1; until [ -e /tmp/go ]; do sleep 0.05; done; date +%s%N"
        stamps: list[list[int]] = []
        async with bench.make(Policy(limits=Limits(command_timeout_s=120))) as box:

            async def one(name: str) -> None:
                done = await box.exec(["sh", "-c", meet, "sh", name])
                stamps.append([int(line) for line in done.stdout.split()])

            async with anyio.create_task_group() as group:
                for i in range(20):
                    group.start_soon(one, f"one-{i}")
                waits = "until [ $(ls /tmp | grep -c one-) = 20 ]; do sleep 0.05; done; : > /tmp/go"
                assert (await box.run(waits)).exit_code == 0
        assert len(stamps) == 20
        assert max(start for start, _ in stamps) < min(end for _, end in stamps)

    async def test_a_time_out_of_one_is_not_the_end_of_another(self, bench: Bench) -> None:
        """All that it has started ends, whatever it left; and nothing else."""
        tree = "(setsid sleep {0}1 &); (trap '' TERM; sleep {0}2) & sleep {0}3"
        async with bench.make(Policy()) as box, anyio.create_task_group() as group:
            group.start_soon(box.exec, ["sh", "-c", tree.format(75)])
            listing = ""
            with anyio.fail_after(60):
                while not all(f"sleep 75{i}" in listing for i in (1, 2, 3)):
                    listing = await output_of(box, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")
            assert (await box.exec(["sh", "-c", tree.format(74)], timeout_s=1)).timed_out
            listing = await output_of(box, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")
            assert [f"sleep 74{i}" in listing for i in (1, 2, 3)] == [False] * 3
            assert [f"sleep 75{i}" in listing for i in (1, 2, 3)] == [True] * 3
            group.cancel_scope.cancel()

    async def test_what_is_no_program_says_so(self, bench: Bench) -> None:
        async with bench.make(Policy()) as box:
            assert isinstance(box, Programs)
            async with box.program(["/no/such/program"]) as found:
                assert await everything(found) == b""
                assert "No such file" in await found.exit_reason()

    async def test_time_outs_of_commands_leave_it_alone_and_its_own_end_is_sure(self, bench: Bench) -> None:
        async with bench.make(Policy()) as box:
            assert isinstance(box, Programs)
            stubborn = "trap '' TERM HUP PIPE; read x; echo $x; while :; do sleep 765; done"
            async with box.program(["sh", "-c", stubborn]) as found:
                assert (await box.run("sleep 100", 0.3)).timed_out
                await found.send(b"still\n")
                assert await found.receive() == b"still\n"
            with anyio.fail_after(30):  # killed together, each takes its time to be gone
                while "sleep 765" in await output_of(box, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"):
                    await anyio.lowlevel.checkpoint()

    async def test_one_on_a_terminal(self, bench: Bench) -> None:
        """Its size, keys, signals and end; beside it a flood that nobody reads."""
        said = "trap w=1 WINCH; trap i=1 INT; tty; stty size; stty -echo; echo ready"
        waits = "until [ $w ]; do sleep 0.1; done; stty size; until [ $i ]; do sleep 0.1; done; i=; echo signal"
        asks = "until [ $i ]; do sleep 0.1; done; echo key; read x; echo $x last; exit 5"
        async with bench.make(Policy()) as box:
            assert isinstance(box, Programs)
            async with (
                box.program(["sh", "-c", "yes"], errors=True),
                box.program(["bash", "-c", f"{said}; {waits}; {asks}"], errors=True, terminal=(33, 77)) as found,
            ):
                seen = await _until(found, b"ready\r\n")
                assert seen.startswith(b"/dev/pts/")
                assert b"\r\n33 77\r\n" in seen
                await found.resize(50, 100)
                assert await _until(found, b"50 100\r\n") == b"50 100\r\n"
                await found.signal(signal.SIGINT)
                await _until(found, b"signal\r\n")
                await found.send(b"\x03")
                await _until(found, b"key\r\n")
                await found.send(b"the\n")
                assert (await everything(found)).removeprefix(b"\x03") == b"the last\r\n"  # gVisor hands the key on too
                assert (await found.wait(), found.error) == (5, "")

    async def test_a_signal_reaches_the_group_of_one_without_a_terminal(self, bench: Bench) -> None:
        async with bench.make(Policy()) as box:
            assert isinstance(box, Programs)
            catches = "trap 'echo caught' USR1; (trap 'exit 3' USR1; echo ready; while :; do sleep 0.05; done); exit $?"
            async with box.program(["bash", "-c", catches]) as found, box.program(["cat"]) as other:
                assert await _until(found, b"ready\n") == b"ready\n"
                await found.signal(signal.SIGUSR1)
                assert await everything(found) == b"caught\n"
                assert await found.wait() == 3
                await other.send(b"on")
                assert await other.receive() == b"on"

    async def test_further_shells_have_a_state_of_their_own_and_work_at_once(self, bench: Bench) -> None:
        """Each waits inside for all: they overlap, or none ends."""
        meet = "cd /tmp; x={0}; : > at-{0}; until [ -e at-1 ] && [ -e at-2 ] && [ -e at-3 ]; do sleep 0.05; done"
        async with bench.make(Policy()) as box, AsyncExitStack() as stack:
            assert isinstance(box, Shells)
            shells = [await stack.enter_async_context(box.shell()) for _ in range(3)]
            async with anyio.create_task_group() as group:
                for number, shell in enumerate(shells, 1):
                    group.start_soon(shell.run, meet.format(number))
            said = [(await shell.run("pwd; echo $x")).stdout for shell in shells]
            assert said == [b"/tmp\n1\n", b"/tmp\n2\n", b"/tmp\n3\n"]
            assert (await shells[0].run("sleep 100", 0.3)).timed_out
            assert (await shells[0].run("exit")).shell_event == "shell_restored"
            assert (await shells[0].run("echo $x")).stdout == b"1\n"
            assert await output_of(box, "pwd; echo $x") == "/workspace\n\n"


class FreezeConformance:
    """What every sandbox with snapshots (port.Freezable) must do. A test module subclasses this as the other."""

    pytestmark = pytest.mark.anyio

    async def test_nothing_in_it_writes_while_it_is_frozen_and_all_goes_on(self, bench: Bench) -> None:
        folder = bench.folder
        async with bench.make(Policy(folders=(FolderRule(host=str(folder), mode="rw"),))) as box:
            assert isinstance(box, Freezable)
            assert (await box.run("touch grows; (while :; do echo x >> grows; done) &")).exit_code == 0

            def size() -> int:
                return (folder / "grows").stat().st_size

            for _ in range(2):
                before = await anyio.to_thread.run_sync(size)
                with anyio.fail_after(60):
                    while await anyio.to_thread.run_sync(size) == before:
                        await anyio.lowlevel.checkpoint()
                async with box.frozen():
                    still = await anyio.to_thread.run_sync(size)
                    await anyio.sleep(0.3)
                    assert await anyio.to_thread.run_sync(size) == still
