"""Programs at once, beside each other and beside the shell, with a real agent."""

import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stockade_sandbox.agent import frames
from stockade_sandbox.agent.programs import program
from stockade_sandbox.agent.session import AgentConfig, AgentSession
from stockade_sandbox.errors import SandboxDied, SandboxFailed
from stockade_sandbox.results import ExecResult
from tests.support.scale import scaled
from tests.unit.sandboxes.session_support import LARGE, shell, start_agent

pytestmark = pytest.mark.anyio
MEET = 'date +%s%N; : > "$1/$2"; until [ -e "$1/go" ]; do sleep 0.05; done; date +%s%N'
"""Tells when it starts, waits for a sign, tells when it ends."""


async def listing(session: AgentSession) -> str:
    """What runs, but for who asks."""
    done = await session.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    return done.stdout.decode()


async def at_once(session: AgentSession, programs: Sequence[Sequence[str]]) -> list[ExecResult]:
    results: list[ExecResult] = []

    async def one(argv: Sequence[str]) -> None:
        results.append(await session.exec(argv))

    async with anyio.create_task_group() as group:
        for argv in programs:
            group.start_soon(one, argv)
    return results


@pytest.mark.parametrize("count", [3, 100])
async def test_programs_overlap_by_their_own_stamps_beside_a_busy_shell(count: int, tmp_path: Path) -> None:
    results: list[ExecResult] = []
    async with shell(cwd=str(tmp_path), timeout_s=120) as session:

        async def work() -> None:
            results.extend(await at_once(session, [["sh", "-c", MEET, "sh", ".", str(i)] for i in range(count)]))

        async with anyio.create_task_group() as group:
            group.start_soon(work)
            busy = await session.run(f"until [ $(ls | wc -l) = {count} ]; do sleep 0.05; done; : > go", 120)
        assert busy.exit_code == 0
    assert [one.exit_code for one in results] == [0] * count
    stamps = [list(map(int, one.stdout.split())) for one in results]
    assert max(start for start, _ in stamps) < min(end for _, end in stamps)


async def test_more_than_there_are_places_for_wait_for_their_turn() -> None:
    count = frames.MAX_PROGRAMS + 40
    async with shell() as session:
        results = await at_once(session, [["sh", "-c", f"echo {i}; exit {i % 7}"] for i in range(count)])
    assert sorted(int(one.stdout) for one in results) == list(range(count))
    assert all(one.exit_code == int(one.stdout) % 7 for one in results)


async def test_one_killed_the_others_go_on() -> None:
    results: list[ExecResult] = []
    async with shell() as session, program(session, ["cat"]) as server:

        async def one(*argv: str) -> None:
            results.append(await session.exec(argv))

        async with anyio.create_task_group() as group:
            group.start_soon(one, "sleep", "981")
            with anyio.move_on_after(0.3) as scope:
                await session.exec(["sleep", "982"])
            late = await session.exec(["sleep", "983"], timeout_s=0.2)
            left = await listing(session)
            await session.run("pkill -9 -x -f 'sleep 981'")
        assert (scope.cancelled_caught, late.timed_out, late.exit_code) == (True, True, 124)
        assert [name for name in ("sleep 981", "sleep 982", "sleep 983") if name in left] == ["sleep 981"]
        assert [one.exit_code for one in results] == [137]
        await server.send(b"still")
        assert await server.receive() == b"still"


async def test_a_time_out_ends_all_that_a_program_has_started_and_nothing_else() -> None:
    """Whatever it left, in whichever session; although another program and a command do the same just then."""
    tree = "setsid sleep {0}1 & (setsid sleep {0}2 &); (trap '' TERM; sleep {0}3) & sleep {0}4"
    async with shell() as session:

        async def late() -> None:
            assert (await session.exec(["sh", "-c", tree.format(97)], timeout_s=0.5)).timed_out

        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(session.exec, ["sh", "-c", tree.format(96)])
                await late()
                left = await listing(session)
                assert (await session.run("setsid sleep 951 & sleep 952", 0.3)).timed_out
                beside = await listing(session)
                scope.cancel()
        after = await listing(session)
    assert [f"sleep 97{i}" in left for i in range(1, 5)] == [False] * 4
    assert [f"sleep 96{i}" in left for i in range(1, 5)] == [True] * 4
    assert [f"sleep 96{i}" in beside for i in range(1, 5)] == [True] * 4
    assert "sleep 95" not in beside
    assert "sleep 96" not in after


async def test_what_a_program_leaves_goes_on_and_its_pipes_delay_nothing() -> None:
    async with shell() as session:
        done = await session.exec(["sh", "-c", "sleep 961 & echo here"])
        assert (done.stdout, done.exit_code) == (b"here\n", 0)
        assert "sleep 961" in await listing(session)
        assert (await session.run("sleep 100", 0.2)).timed_out
        assert "sleep 961" in await listing(session)


async def test_a_flood_of_the_shell_delays_no_program_nor_a_program_the_others() -> None:
    async with shell(timeout_s=300) as session, anyio.create_task_group() as group:
        group.start_soon(session.run, "yes")
        group.start_soon(session.exec, ["yes"])
        async with program(session, ["cat"]) as server:
            for i in range(20):
                assert (await session.exec(["echo", str(i)])).stdout == b"%d\n" % i
                await server.send(b"%d" % i)
                assert await server.receive() == b"%d" % i
        group.cancel_scope.cancel()


async def test_streams_are_whole_and_apart() -> None:
    script = "import sys\nfor i in range(20000): print(i); print(-i, file=sys.stderr)"
    async with shell() as session:
        results = await at_once(session, [["python3", "-c", script]] * 5)
    for one in results:
        assert one.stdout == b"".join(b"%d\n" % i for i in range(20000))
        assert one.stderr == b"".join(b"%d\n" % -i for i in range(20000))


async def test_its_streams_are_pipes_which_can_be_opened_by_name() -> None:
    async with shell() as session:
        done = await session.exec(["sh", "-c", "cat /dev/stdin > /dev/stdout; echo oh > /dev/stderr"], b"in")
        assert (done.stdout, done.stderr) == (b"in", b"oh\n")


async def test_a_program_that_closes_its_input_is_not_held_up_by_it() -> None:
    async with shell() as session:
        done = await session.exec(["sh", "-c", "head -c 1; exec <&-; sleep 0.2; echo; echo on"], b"x" * 5_000_000)
    assert (done.stdout, done.exit_code) == (b"x\non\n", 0)


async def test_where_they_start() -> None:
    async with shell(cwd="/tmp") as session:
        await session.run("cd /usr")
        assert (await session.exec(["pwd"])).stdout == b"/usr\n"
        async with program(session, ["pwd"]) as found:
            assert await found.receive() == b"/tmp\n"
        running = await session.start(["pwd"], "/no/such/folder")
        await session.until(lambda: running.is_over)
        assert running.ended is not None
        assert (running.ended.status, running.ended.error) == (127, "/no/such/folder: No such file or directory")


async def test_the_one_who_reads_for_all_may_leave_at_any_time() -> None:
    async with shell(output_bytes=LARGE) as session:
        for delay_s in (0.0, 0.001, 0.01, 0.05):
            async with anyio.create_task_group() as group:
                group.start_soon(session.exec, ["sleep", "0.2"])
                with anyio.move_on_after(delay_s):
                    await session.exec(["sleep", "100"])
                assert len((await session.run("head -c 300000 /dev/zero")).stdout) == 300_000
        assert (await session.exec(["echo", "here"])).stdout == b"here\n"


NUMBERS = st.integers(0, 9) | st.sampled_from([frames.CLIENT, frames.CLIENT + 1, 2**32 - 1])
REQUESTS = st.one_of(
    st.builds(frames.start, NUMBERS, st.sampled_from([0, 1, 50]), st.sampled_from([0, 1]), st.sampled_from(["", "/no"]),
              st.sampled_from([["true"], ["cat"], ["yes"], ["/no"], ["sleep", "9"]])),
    st.builds(frames.data, NUMBERS, st.binary(max_size=9) | st.just(bytes(frames.WINDOW))),
    st.builds(frames.taken, NUMBERS, st.integers(0, 9) | st.just(frames.WINDOW)),
    st.builds(frames.close, NUMBERS),
    st.builds(frames.kill, NUMBERS),
    st.binary(max_size=20),
)  # fmt: skip


@settings(max_examples=scaled(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(REQUESTS, max_size=12))
def test_whatever_is_asked_the_agent_does_or_ends(requests: list[bytes]) -> None:
    """It never dies of a signal, and at the end of the stream it is gone, with all that it had started."""
    stream, process = start_agent()
    with stream:
        stream.sendall(frames.config(0, 0, 0, 0, 1, "/", ["/bin/bash"]))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for request in requests:
                stream.sendall(request)
            stream.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while stream.recv(1 << 16):
                pass
    assert process.wait(60) in (0, 1)


async def _ends(work: Callable[[], Awaitable[object]]) -> None:
    """In an answer, or the sandbox's death."""
    with contextlib.suppress(SandboxFailed, SandboxDied), anyio.fail_after(20):
        await work()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.binary(max_size=40)), max_size=20))
def test_whatever_the_agent_says_is_taken_or_ends_the_session(said: list[tuple[int, bytes]]) -> None:
    """A hostile agent, amid a command and two programs."""

    async def main() -> None:
        ours, theirs = socket.socketpair()
        hello = struct.pack("<IB2I", 8, 1, frames.VERSION, 1)
        done = struct.pack("<IB3I", 13, 3, 0, 0, 0) + b"\0"
        with theirs:
            theirs.sendall(hello + done)
            session = await AgentSession.open(ours, AgentConfig())
            theirs.sendall(b"".join(struct.pack("<IB", len(payload), kind) + payload for kind, payload in said))
            theirs.shutdown(socket.SHUT_WR)
            async with anyio.create_task_group() as group:
                group.start_soon(_ends, lambda: session.run("echo"))
                for _ in range(2):
                    group.start_soon(_ends, lambda: session.exec(["a"], b"x"))
            await session.close()

    anyio.run(main)
