"""What a sandbox has of the proxy: ports on its own loopback, variables that say so, and nothing else."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import anyio
from anyio.abc import ByteStream

from stockade_sandbox.agent.session import AgentSession
from stockade_sandbox.policy import PROXY_PORT, Policy
from stockade_sandbox.port import Doorkeeper
from stockade_sandbox.results import NetworkRequest
from stockade_sandbox.stoppable import unwrap_exception_group

if TYPE_CHECKING:
    from stockade_sandbox.egress.credentials import Credentials

OnRequest = Callable[[NetworkRequest], None]
Accept = Callable[[], Awaitable[ByteStream]]
"""The next connection of a client."""


class Server(Protocol):
    @property
    def ports(self) -> Sequence[int]:
        """All over the loopback inside, beside the proxy's own."""
        ...

    async def serve(self, accept: Accept) -> None:
        """Until it is cancelled."""
        ...

    def with_credentials(self, credentials: "Credentials") -> "Server":
        """One that puts these in."""
        ...

    def asking(self, doorkeeper: Doorkeeper) -> "Server":
        """One that asks it for names that are not on the list."""
        ...


MakeServer = Callable[[Policy, OnRequest], Server]


@asynccontextmanager
async def way_out(session: AgentSession, server: Server) -> AsyncIterator[None]:
    """Serves a sandbox while it runs. A bug in the server cancels what is inside, and is raised here."""
    async with (
        unwrap_exception_group(),
        session.listening(PROXY_PORT, server.ports) as connections,
        anyio.create_task_group() as group,
    ):
        group.start_soon(server.serve, connections.accept)
        yield
        group.cancel_scope.cancel()
