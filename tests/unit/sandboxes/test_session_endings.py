"""Time-outs, lost shells, cancelling, and the death of the agent."""

import os
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from stockade.core.errors import SandboxDied
from stockade_sandbox.agent.session import AgentConfig
from tests.unit.sandboxes.session_support import NAMESPACE, agent, deadly, shell

pytestmark = pytest.mark.anyio
LEFT = "pgrep -fc '^(sleep 6|yes|cat|sh -c|bash -c)'"


@pytest.mark.parametrize(
    "command",
    [
        "sleep 60",
        "while :; do :; done",
        "sleep 61; echo went on > /tmp/stockade-went-on",
        "(nohup sleep 60 >/dev/null 2>&1 &); setsid -f sleep 60; setsid sh -c 'sleep 60 & sleep 60' & wait",
        "trap '' TERM; bash -c 'trap \"\" TERM; while :; do sleep 1; done'",
        "sleep 60 | sleep 60",
        "kill -STOP $BASHPID",
        "exec sleep 60",
        "cat <(sleep 60)",
        "yes",
        "sh -c 'kill -STOP $$'",
    ],
)
async def test_a_time_out_ends_all_of_it_and_state_stays(command: str) -> None:
    async with shell() as session:
        await session.run("cd /usr; x=kept; sleep 1000 & old=$!")
        out = await session.run(command, timeout_s=0.2)
        assert (out.exit_code, out.timed_out, out.shell_event) == (124, True, "shell_restored")
        after = await session.run(f"echo $x $PWD; kill -0 $old && echo lives; {LEFT}")
        assert after.stdout == b"kept /usr\nlives\n0\n"


async def test_an_interrupted_command_says_what_it_wrote_and_state_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "begun"
    os.mkfifo(pipe)
    async with shell() as session:
        assert not await session.interrupt("nobody hears this")
        await session.run("x=kept; sleep 1000 & old=$!")
        async with anyio.create_task_group() as group:

            async def interrupt() -> None:
                await to_thread.run_sync(pipe.read_bytes)
                assert await session.interrupt("enough")

            group.start_soon(interrupt)
            out = await session.run(f"echo begun; echo > {pipe}; sleep 60")
        assert (out.exit_code, out.timed_out, out.shell_event) == (130, False, None)
        assert out.stdout == b"begun\nstockade: enough\n"
        assert (await session.run("echo $x; kill -0 $old && echo lives")).stdout == b"kept\nlives\n"


async def test_state_stays_where_the_killed_die_slowly() -> None:
    """What runs when hardly anything else would needs a while to die beside older jobs that take every processor."""
    async with shell() as session:
        await session.run("x=kept; for i in $(seq $(($(nproc) * 2))); do setsid sh -c 'while :; do :; done' & done")
        out = await session.run(
            "nice -n 19 sh -c 'sleep 60; :' & nice -n 19 sh -c 'while :; do :; done'", timeout_s=0.2
        )
        assert (out.exit_code, out.timed_out, out.shell_event) == (124, True, "shell_restored")
        assert (await session.run("echo $x")).stdout == b"kept\n"


async def test_exec_times_out_alone() -> None:
    async with shell() as session:
        await session.run("x=kept; (while :; do sleep 0.01; done) & loop=$!")
        result = await session.exec(["sh", "-c", "echo so far; setsid -f sleep 60; sleep 60"], timeout_s=0.2)
        assert (result.exit_code, result.timed_out, result.stdout) == (124, True, b"so far\n")
        out = await session.run("pgrep -x -f 'sleep 60'; kill $loop && echo $x")
    assert (out.stdout, out.shell_event) == (b"kept\n", None)


@pytest.mark.parametrize(
    ("command", "status", "event"),
    [
        ("exit 3", 3, "shell_restored"),
        ("exec false", 1, "shell_restored"),
        ("set -e; false; echo no", 1, "shell_restored"),
        ("kill -9 $BASHPID", 137, "shell_restored"),
        ("kill -SEGV $BASHPID", 139, "shell_restored"),
        ("kill -9 $PPID; kill -TERM $PPID; kill -STOP $PPID; echo on", 0, None),
        ("kill 0", 143, "shell_restored"),
        ("kill -9 -1; echo on", 0, None),
        ("kill -9 -1; exit 5", 5, "shell_restarted"),
        ("sh -c 'kill -9 -1'", 137, "shell_restarted"),
        ("exec 50<&- 51<&- 52<&- {3..99}>&-; for i in {3..99}; do exec {i}>&-; done", None, "shell_restored"),
    ],
)
async def test_a_lost_shell_comes_back(command: str, status: int | None, event: str | None) -> None:
    async with shell() as session:
        await session.run("cd /usr; x=kept")
        out = await session.run(deadly(command), timeout_s=5)
        assert status is None or out.exit_code == status
        assert (out.shell_event, out.timed_out) == (event, False)
        after = await session.run("echo $x; pwd")
        assert after.stdout == (b"\n/usr\n" if event == "shell_restarted" else b"kept\n/usr\n")
        assert after.shell_event is None


async def test_a_shell_is_restored_again_and_again() -> None:
    async with shell() as session:
        await session.run("n=0")
        for i in range(20):
            assert (await session.run("n=$((n+1)); echo $n")).stdout == b"%d\n" % (i + 1)
            assert (await session.run("n=999; exit 1")).shell_event == "shell_restored"


async def test_a_fork_bomb_under_a_limit_of_processes() -> None:
    drop = ("setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "--inh-caps=-all")
    config = AgentConfig(cwd="/", grace_s=0.2, processes=60)
    async with agent(config, (*NAMESPACE, *drop)) as (session, _):
        out = await session.run("bomb() { bomb | bomb & }; bomb; sleep 60", timeout_s=0.5)
        assert (out.exit_code, out.timed_out) == (124, True)
        assert (await session.run("echo on", timeout_s=10)).stdout == b"on\n"
        assert int((await session.run("ls -d /proc/[0-9]* | wc -l")).stdout) < 12


async def test_limits_hold_for_commands() -> None:
    async with shell(file_bytes=4096, open_files=100, streams="separate") as session:
        out = await session.run("ulimit -c; ulimit -n; ulimit -f; head -c 9999 /dev/zero > $(mktemp)")
    assert out.stdout == b"0\n100\n4\n"
    assert out.exit_code == 153


async def test_cancelling_ends_the_command_and_leaves_the_session() -> None:
    async with shell() as session:
        await session.run("x=kept")
        with anyio.move_on_after(0.1) as scope:
            await session.run("yes; sleep 60")
        assert scope.cancelled_caught
        out = await session.run("echo $x; pgrep -c yes")
        assert out.stdout == b"kept\n0\n"
        with anyio.move_on_after(0.1) as scope:
            await session.exec(["sleep", "60"])
        assert scope.cancelled_caught
        assert (await session.run("pgrep -c sleep")).stdout == b"0\n"


async def test_callers_wait_for_each_other() -> None:
    results: list[bytes] = []
    async with shell() as session, anyio.create_task_group() as group:

        async def one(word: str) -> None:
            results.append((await session.run(f"sleep 0.01; echo {word}")).stdout)

        for i in range(5):
            group.start_soon(one, str(i))
    assert sorted(results) == [b"%d\n" % i for i in range(5)]


async def test_a_killed_agent_is_a_dead_sandbox() -> None:
    async with agent() as (session, process), anyio.create_task_group() as group:

        async def command() -> None:
            with pytest.raises(SandboxDied, match=r"ended during the command 'sleep 60'"):
                await session.run("sleep 60")

        group.start_soon(command)
        await anyio.wait_all_tasks_blocked()
        process.kill()
    with pytest.raises(SandboxDied):
        await session.run("echo on")


async def test_killing_the_agent_from_inside_when_it_is_not_pid_1() -> None:
    async with agent(prefix=()) as (session, process):
        with pytest.raises(SandboxDied):
            await session.run(f"kill -9 {process.pid}")
