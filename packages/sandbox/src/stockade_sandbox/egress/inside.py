"""What a sandbox has of the proxy: a port on its own loopback, variables that say so, and nothing else."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
from anyio.abc import ByteStream

from stockade_sandbox.agent.session import AgentSession
from stockade_sandbox.policy import Network, Policy
from stockade_sandbox.results import NetworkRequest
from stockade_sandbox.stoppable import unwrap_exception_group

PORT = 3128
"""Of 127.0.0.1 inside a sandbox."""

OnRequest = Callable[[NetworkRequest], None]
Accept = Callable[[], Awaitable[ByteStream]]
"""The next connection of a client."""


class Server(Protocol):
    async def serve(self, accept: Accept) -> None:
        """Until it is cancelled."""
        ...


MakeServer = Callable[[Policy, OnRequest], Server]


def environment(network: Network) -> dict[str, str]:
    """What curl, git, pip, npm and Python read. curl wants `http_proxy` in lower case (a CGI header sets HTTP_*)."""
    if network.mode == "none":
        return {}
    proxy, local = f"http://127.0.0.1:{PORT}", "localhost,127.0.0.1,::1"
    return {"http_proxy": proxy, "https_proxy": proxy, "HTTPS_PROXY": proxy, "no_proxy": local, "NO_PROXY": local}


def guarantee(network: Network) -> str:
    if network.mode == "none":
        return "no network interface but an empty loopback"
    names = "every public name, ports 80 and 443" if network.mode == "open" else ", ".join(network.hosts)
    return f"no network interface but loopback; HTTP and TLS by name through the host's proxy only: {names}"


@asynccontextmanager
async def way_out(session: AgentSession, server: Server) -> AsyncIterator[None]:
    """Serves a sandbox while it runs. A bug in the server cancels what is inside, and is raised here."""
    async with unwrap_exception_group(), session.listening(PORT) as connections, anyio.create_task_group() as group:
        group.start_soon(server.serve, connections.accept)
        yield
        group.cancel_scope.cancel()
