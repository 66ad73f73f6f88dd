"""What a sandbox has of the proxy: a port on its own loopback, variables that say so, and nothing else."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
from anyio.abc import ByteStream

from stockade_sandbox.agent.session import AgentSession
from stockade_sandbox.policy import PROXY_PORT, Policy
from stockade_sandbox.results import NetworkRequest
from stockade_sandbox.stoppable import unwrap_exception_group

OnRequest = Callable[[NetworkRequest], None]
Accept = Callable[[], Awaitable[ByteStream]]
"""The next connection of a client."""


class Server(Protocol):
    async def serve(self, accept: Accept) -> None:
        """Until it is cancelled."""
        ...


MakeServer = Callable[[Policy, OnRequest], Server]


@asynccontextmanager
async def way_out(session: AgentSession, server: Server) -> AsyncIterator[None]:
    """Serves a sandbox while it runs. A bug in the server cancels what is inside, and is raised here."""
    async with (
        unwrap_exception_group(),
        session.listening(PROXY_PORT) as connections,
        anyio.create_task_group() as group,
    ):
        group.start_soon(server.serve, connections.accept)
        yield
        group.cancel_scope.cancel()
