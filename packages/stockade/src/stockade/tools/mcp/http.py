"""HTTP from inside the sandbox: what a client here sends goes over a small program there, so the run's own network
rules decide what is reached, and put it on record. A name goes to the sandbox's proxy, an address of its loopback
directly.
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
import httpcore2
import httpx2
from anyio.abc import ByteStream, TaskGroup, TaskStatus

from stockade.core.errors import ActionFailed
from stockade.core.ports import Program, Programs
from stockade.tools.fetch import Dialer, Transport

_PROXY_URL = "http://127.0.0.1:3128"
"""Where a sandbox with a network has its proxy (stockade_sandbox/egress/inside.py)."""
MAX_RESPONSE_BYTES = 64 << 20
READ_S = 300.0
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_CARRY = """
exec 4<&0
if ! { exec 3<>"/dev/tcp/$1/$2"; } 2>/dev/null; then echo "nothing answers there" >&2; exit 1; fi
printf +
{ cat <&4 >&3; kill 0; } & cat <&3; kill 0
"""
"""Carries one connection between its standard streams and $1:$2; says + once it is there. Either end ends all of it."""


class _Carried(ByteStream):
    """A connection from inside. `finished` ends the program that carries it."""

    def __init__(self, program: Program, finished: anyio.Event) -> None:
        self._program = program
        self._finished = finished

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._program.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._program.send(item)

    async def send_eof(self) -> None:
        await self._program.send_eof()

    async def aclose(self) -> None:
        self._finished.set()


class _Inside(Dialer):
    """Connections that begin in the sandbox; each is held by a task of `group`."""

    def __init__(self, programs: Programs, group: TaskGroup) -> None:
        self._programs = programs
        self._group = group

    async def dial(self, host: str, port: int) -> ByteStream:
        carried: ByteStream = await self._group.start(self._hold, host, port)
        return carried

    async def _hold(self, host: str, port: int, *, task_status: TaskStatus[ByteStream]) -> None:
        finished = anyio.Event()
        try:
            async with self._programs.program(["bash", "-c", _CARRY, "bash", host, str(port)]) as program:
                try:
                    await program.receive(1)
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    why = await program.exit_reason()
                    raise httpcore2.ConnectError(f"{host}:{port} cannot be reached: {why}") from None
                task_status.started(_Carried(program, finished))
                await finished.wait()
        except ActionFailed as error:  # there is no room for one more
            raise httpcore2.ConnectError(error.message) from None


@asynccontextmanager
async def client_inside(url: str, headers: Mapping[str, str], programs: Programs) -> AsyncIterator[httpx2.AsyncClient]:
    """A client for `url`, whose connections begin inside and end with this. Follows no redirect, keeps no cookie."""
    host = urlsplit(url).hostname
    async with anyio.create_task_group() as group:
        backend, context = _Inside(programs, group), ssl.create_default_context()
        pool = (
            httpcore2.AsyncConnectionPool(ssl_context=context, network_backend=backend)
            if host in _LOOPBACK
            else httpcore2.AsyncHTTPProxy(_PROXY_URL, ssl_context=context, network_backend=backend)
        )
        try:
            async with httpx2.AsyncClient(
                transport=Transport(pool, MAX_RESPONSE_BYTES),
                headers={**headers, "accept-encoding": "identity"},
                timeout=httpx2.Timeout(30.0, read=READ_S),
                trust_env=False,
            ) as client:
                yield client
        finally:
            group.cancel_scope.cancel()
