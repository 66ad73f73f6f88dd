"""An agent as a child of the test, without a sandbox around it: as pid 1 of a pid namespace, or beside us.

Commands that reach for other processes (`kill -9 -1`) belong in a namespace only; `deadly` makes sure of that.
"""

import contextlib
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import anyio.to_thread

from stockade_sandbox.agent.session import AgentConfig, AgentSession, agent_memfd

NAMESPACE = ("unshare", *(() if os.geteuid() == 0 else ("-Ur",)), "-pf", "--kill-child", "--mount-proc")
LARGE = 64 << 20


def deadly(command: str) -> str:
    """`command`, but only when it runs in another pid namespace than the test's: else the shell ends with 99."""
    ours = os.readlink("/proc/self/ns/pid")
    return f'[[ $(readlink /proc/self/ns/pid) != "{ours}" ]] || exit 99; {command}'


def start_agent(
    prefix: tuple[str, ...] = NAMESPACE, extra: tuple[int, ...] = (), machine: str | None = None
) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Our end of its stream, and the process that was started (`prefix` puts the agent into a namespace).

    It inherits `extra` as well; `machine` is whose program it is.
    """
    ours, theirs = socket.socketpair()
    program = agent_memfd(machine)
    try:
        argv = [*prefix, f"/proc/self/fd/{program}", str(theirs.fileno())]
        return ours, subprocess.Popen(argv, pass_fds=[program, theirs.fileno(), *extra], cwd="/")
    finally:
        theirs.close()
        os.close(program)


@contextlib.asynccontextmanager
async def agent(
    config: AgentConfig | None = None,
    prefix: tuple[str, ...] = NAMESPACE,
    extra: tuple[int, ...] = (),
    machine: str | None = None,
) -> AsyncIterator[tuple[AgentSession, subprocess.Popen[bytes]]]:
    """A session and the process behind it, which has ended afterwards."""
    ours, process = start_agent(prefix, extra, machine)
    try:
        session = await AgentSession.open(ours, config or AgentConfig(cwd="/tmp", grace_s=0.2, timeout_s=20))
        try:
            yield session, process
        finally:
            await session.close()
    finally:
        await anyio.to_thread.run_sync(process.wait, 10)


@contextlib.asynccontextmanager
async def shell(**settings: Any) -> AsyncIterator[AgentSession]:
    """A session with an agent that is pid 1."""
    config = AgentConfig(**{"cwd": "/tmp", "grace_s": 0.2, "timeout_s": 20, **settings})
    async with agent(config) as (session, _):
        yield session
