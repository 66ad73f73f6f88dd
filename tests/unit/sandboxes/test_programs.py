"""Programs beside the shell, with a real agent."""

import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from stockade.core.errors import ActionFailed, SandboxDied
from stockade_sandbox.agent import frames
from stockade_sandbox.agent.programs import RunningProgram, program
from stockade_sandbox.agent.programs import shell as further_shell
from stockade_sandbox.agent.session import AgentSession
from tests.unit.sandboxes.session_support import agent, shell

pytestmark = pytest.mark.anyio
ECHO = ["sh", "-c", "echo started >&2; cat; echo bye >&2; exit 7"]


async def exactly(found: RunningProgram, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += await found.receive()
    return data


async def everything(found: RunningProgram) -> bytes:
    data = b""
    try:
        while True:
            data += await found.receive()
    except anyio.EndOfStream:
        return data


def child_of(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


async def listing(session: AgentSession) -> str:
    return (await session.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout.decode()


async def there(session: AgentSession, words: str) -> None:
    """A program is started before it has begun: what it starts is there in its time."""
    with anyio.fail_after(20):
        while words not in await listing(session):
            await anyio.lowlevel.checkpoint()


async def gone(session: AgentSession, words: str) -> None:
    """Its group was killed together; each process of it takes its time to be gone."""
    with anyio.fail_after(20):
        while words in await listing(session):
            await anyio.lowlevel.checkpoint()


async def test_it_is_spoken_to_between_and_beside_commands() -> None:
    async with shell() as session, program(session, ECHO) as found:
        await found.send(b"one")
        assert await exactly(found, 3) == b"one"
        assert (await session.run("echo x")).stdout == b"x\n"
        async with anyio.create_task_group() as group:
            group.start_soon(session.run, "sleep 0.3")
            await found.send(b"two")
            assert await exactly(found, 3) == b"two"
        await found.send_eof()
        assert await everything(found) == b""
        assert await found.exit_reason() == "started\nbye"
        assert found.status == 7


async def test_megabytes_both_ways() -> None:
    data = bytes(range(256)) * 20_000
    async with shell() as session, program(session, ["cat"]) as found:
        async with anyio.create_task_group() as group:
            group.start_soon(found.send, data)
            assert await exactly(found, len(data)) == data


async def test_all_that_it_wrote_is_there_after_its_death() -> None:
    async with shell() as session:
        for _ in range(5):
            async with program(session, ["sh", "-c", "head -c 300000 /dev/zero; echo why >&2; kill -9 $$"]) as found:
                assert len(await everything(found)) == 300_000
                assert (await found.exit_reason(), found.status) == ("why", 137)


async def test_what_is_no_program_says_so() -> None:
    async with shell() as session:
        async with program(session, ["/no/such/program"]) as found:
            assert await everything(found) == b""
            assert await found.exit_reason() == "/no/such/program: No such file or directory"
        with pytest.raises(ActionFailed):
            async with program(session, ["a\0b"]):
                pass


async def test_a_time_out_of_a_command_leaves_it_alone() -> None:
    async with shell() as session, program(session, ["sh", "-c", "sleep 1000 & cat"]) as found:
        assert (await session.run("sleep 100", 0.2)).timed_out
        assert (await session.exec(["sleep", "100"], timeout_s=0.2)).timed_out
        await found.send(b"still")
        assert await exactly(found, 5) == b"still"


async def test_one_that_does_not_end_is_killed_with_its_group() -> None:
    async with shell() as session:
        async with program(session, ["sh", "-c", "trap '' TERM HUP PIPE; sleep 765 & while :; do sleep 766; done"]):
            await there(session, "sleep 765")
            await there(session, "sleep 766")
        await gone(session, "sleep 76")


async def test_a_flood_that_nobody_reads_holds_up_nothing() -> None:
    async with shell() as session, program(session, ["sh", "-c", "yes >&2 & yes"]):
        assert (await session.run("echo here")).stdout == b"here\n"
        assert len((await session.exec(["head", "-c", "500000", "/dev/zero"])).stdout) == 500_000


async def test_many_one_after_the_other_and_too_many_at_once() -> None:
    async with shell() as session:
        for _ in range(40):
            async with program(session, ["true"]) as found:
                assert await everything(found) == b""
        async with AsyncExitStack() as stack:
            for _ in range(frames.MAX_PROGRAMS):
                await stack.enter_async_context(program(session, ["cat"]))
            with pytest.raises(ActionFailed, match="too many"):
                async with program(session, ["cat"]):
                    pass
        assert (await session.run("echo here")).stdout == b"here\n"


async def test_cancelled_it_is_gone_and_the_session_is_not() -> None:
    async with shell() as session:
        for delay_s in (0.0, 0.001, 0.01, 0.1):
            with anyio.move_on_after(delay_s):
                async with program(session, ["sleep", "876"]) as found:
                    await everything(found)
            await gone(session, "sleep 876")


async def test_the_end_of_the_sandbox_is_its_end() -> None:
    async with agent() as (session, process), program(session, ["cat"]) as found:
        os.kill(child_of(process.pid), signal.SIGKILL)
        with pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)):
            await found.receive()
        assert await found.exit_reason() == ""
        with pytest.raises(SandboxDied):
            await session.run("echo")


def test_frames_are_read_back() -> None:
    reader = frames.Reader()
    reader.feed(b"\x0f\0\0\0\x09\x06\0\0\0\x7f\0\0\0\x20\0\0\0no\0" + b"\x0d\0\0\0\x09\x08\0\0\0\x89\0\0\0\0\0\0\0\0")
    assert reader.next() == frames.Ended(6, 127, frames.SPAWN_FAILED, "no")
    assert reader.next() == frames.Ended(8, 137, 0, "")


async def test_all_that_was_written_on_a_terminal_comes_before_its_end() -> None:
    script = "stty -onlcr; seq 1 100000; (sleep 100) & exit 3"
    async with shell() as session, program(session, ["bash", "-c", script], errors=True, terminal=(24, 80)) as found:
        assert await everything(found) == b"".join(b"%d\n" % i for i in range(1, 100_001))
        assert await found.wait() == 3


async def test_a_job_that_floods_a_terminal_does_not_hold_up_the_end() -> None:
    script = "(trap '' HUP; yes) & sleep 0.2; exit 3"
    async with shell() as session, program(session, ["bash", "-c", script], errors=True, terminal=(24, 80)) as found:
        with anyio.fail_after(60):
            assert set((await everything(found)).split()) == {b"y"}
            assert await found.wait() == 3


async def test_the_end_of_input_on_a_terminal_and_its_hangup() -> None:
    async with shell() as session:
        async with program(session, ["cat"], errors=True, terminal=(24, 80)) as found:
            await found.send(b"x\n")
            assert await exactly(found, 6) == b"x\r\nx\r\n"
            await found.send_eof()
            assert await found.wait() == 0
        async with program(session, ["/no/such"], errors=True, terminal=(24, 80)) as found:
            assert (await found.wait(), "No such file" in found.error) == (127, True)
        async with program(session, ["sleep", "1234"], errors=True, terminal=(24, 80)):
            await there(session, "sleep 1234")
        await gone(session, "sleep 1234")


@pytest.mark.parametrize("number", [0, -1, 65, 1 << 33])
async def test_what_is_no_signal_or_size_is_refused_here(number: int) -> None:
    async with shell() as session, program(session, ["cat"], errors=True, terminal=(24, 80)) as found:
        with pytest.raises(ValueError, match="no signal"):
            await found.signal(number)
        with pytest.raises(ValueError, match="no terminal"):
            await found.resize(24, number if number != 65 else 0)
        await found.send(b"on\n")
        assert (await exactly(found, 4)).startswith(b"on")


async def ended_from_inside(session: AgentSession) -> None:
    async with further_shell(session) as found:
        assert (await found.run("x=1; echo $x")).stdout == b"1\n"
        await session.run("kill -9 $(pgrep -x exe)")
        await found.run("echo $x")


async def test_a_further_shell_that_is_ended_from_inside_is_no_end_of_the_sandbox() -> None:
    async with shell() as session:
        with pytest.raises(ActionFailed, match="ended from inside"):
            await ended_from_inside(session)
        assert (await session.run("echo on")).stdout == b"on\n"
        async with further_shell(session) as found:
            assert (await found.run("echo again")).stdout == b"again\n"
            await found.run("sleep 4321 &")
            await there(session, "sleep 4321")
        await gone(session, "sleep 4321")
