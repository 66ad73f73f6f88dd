"""The near side: a Sandbox whose commands run on another machine. Its connection may break and come back."""

import math
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import anyio

from stockade_sandbox.backends.remote import messages
from stockade_sandbox.backends.remote.greeting import GREETING_S, as_client
from stockade_sandbox.backends.remote.messages import (
    Cancelled,
    Closed,
    Executed,
    FromServer,
    Heard,
    Opened,
    Problem,
    Ran,
    Wrote,
)
from stockade_sandbox.backends.remote.wire import MAX_FRAME_BYTES, Link, LinkLost
from stockade_sandbox.errors import ActionFailed, SandboxDied, SandboxFailed, UsageError
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import OnNetwork, OnOutput
from stockade_sandbox.records import replace
from stockade_sandbox.results import CommandOutput, ExecResult, FolderLayer

PATIENCE_S = 60.0
"""How long a broken connection is tried again before the sandbox counts as dead."""
SLACK_S = 60.0
"""How long after a command's own limit the server may be silent."""
CLOSE_S = 30.0
OPEN_S = 600.0
"""Starting a sandbox may copy a folder first."""
_ROOM_BYTES = 1 << 20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def of(cls, text: str) -> Self:
        """`HOST:PORT`, an IPv6 host in brackets. UsageError for anything else."""
        host, _, port = text.rpartition(":")
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not host or not port.isascii() or not port.isdecimal() or int(port) > 65535:
            raise UsageError(f"{text!r} is no address", "write HOST:PORT, as 192.0.2.7:1199 or [::1]:1199")
        return cls(host=host, port=int(port))


class RemoteSandbox:
    """Implements port.Sandbox. Folders of the policy are folders of the serving machine.

    Each request is done once, however often the connection breaks: it is sent again under its number, and the server
    sends what came of it. One request at a time; callers wait for each other.
    """

    def __init__(self, policy: Policy, address: Address, token: bytes, patience_s: float = PATIENCE_S) -> None:
        self.on_network: OnNetwork | None = None
        self.on_output: OnOutput | None = None
        """Implements port.ShowsOutput."""
        self._policy, self._address, self._token, self._patience_s = policy, address, token, patience_s
        self._session = secrets.token_hex(16)
        self._link: Link | None = None
        self._asked = False
        self._opened: Opened | None = None
        self._number = self._heard = 0
        self._turn = anyio.Lock()
        self._dead: str | None = None

    @property
    def backend(self) -> str:
        return f"remote={self._address}"

    @property
    def layers(self) -> tuple[FolderLayer, ...]:
        return self._opened.layers if self._opened else ()

    @property
    def guarantees(self) -> tuple[str, ...]:
        if self._opened is None:
            return ()
        return (f"on {self._address}, by {self._opened.backend}", *self._opened.guarantees)

    async def __aenter__(self) -> Self:
        """SandboxFailed when no server answers, UsageError when it does not take the token or the policy."""
        try:
            with anyio.move_on_after(OPEN_S):
                await self._open()
                return self
            raise SandboxFailed(f"{self._address} did not start a sandbox within {OPEN_S:g} s")
        except BaseException:
            await self._end()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def run(self, command: str, timeout_s: float | None = None) -> CommandOutput:
        async with self._turn:
            request = messages.Run(n=self._number + 1, command=command, timeout_s=timeout_s)
            reply, _ = await self._ask(request, b"", timeout_s)
        if not isinstance(reply, Ran):
            raise await self._died("the server answered out of turn")
        return reply.output

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        async with self._turn:
            request = messages.Exec(
                n=self._number + 1, argv=tuple(argv), timeout_s=timeout_s, max_output_bytes=max_output_bytes
            )
            reply, raw = await self._ask(request, stdin, timeout_s)
        if not isinstance(reply, Executed):
            raise await self._died("the server answered out of turn")
        return messages.exec_result(reply, raw)

    async def _ask(
        self, request: messages.Run | messages.Exec, raw: bytes, timeout_s: float | None
    ) -> tuple[FromServer, bytes]:
        """The reply to a new request. Cancelling ends it over there first, so that the next one finds order."""
        self._heard = 0

        def text() -> bytes:
            shown = isinstance(request, messages.Run) and self.on_output is not None
            return messages.text_of(replace(request, heard=self._heard) if shown else request)

        if len(text()) + len(raw) > MAX_FRAME_BYTES - _ROOM_BYTES:
            raise ActionFailed(f"a request is over the limit of {(MAX_FRAME_BYTES - _ROOM_BYTES) >> 20} MiB")
        self._number = request.n
        limit = timeout_s or self._policy.limits.command_timeout_s or math.inf
        try:
            with anyio.move_on_after(limit + SLACK_S + self._patience_s):
                return self._checked(await self._until(request.n, text, raw))
        except anyio.get_cancelled_exc_class():
            if self._dead is None:
                with anyio.move_on_after(CLOSE_S, shield=True) as scope, suppress(SandboxFailed):
                    end = messages.text_of(messages.Cancel(n=request.n))
                    await self._until(request.n, lambda: end, b"")
                if scope.cancelled_caught:
                    await self._died("the server did not end a command")
            raise
        raise await self._died(f"{self._address} fell silent")

    def _checked(self, reply: tuple[FromServer, bytes]) -> tuple[FromServer, bytes]:
        if isinstance(problem := reply[0], Problem):
            error = messages.error_of(problem)
            if isinstance(error, SandboxDied):
                self._dead = error.message
            raise error
        return reply

    async def _until(self, n: int, text: Callable[[], bytes], raw: bytes) -> tuple[FromServer, bytes]:
        """Says it until the reply with that number has come whole, over as many connections as it takes."""
        lost_at, pause_s = math.inf, _FIRST_PAUSE_S
        while True:
            if self._dead:
                raise SandboxDied(self._dead)
            try:
                link = self._link or await self._open()
                await link.send(text(), raw)
                lost_at = math.inf
                return await self._reply(link, n)
            except (LinkLost, SandboxFailed) as error:
                await self._drop()
                if isinstance(error, SandboxDied) or self._opened is None:
                    raise
                lost_at = min(lost_at, anyio.current_time())
                if anyio.current_time() - lost_at > self._patience_s:
                    raise await self._died(f"the connection to {self._address} is lost: {error}") from error
            except UsageError as error:  # it took the token before
                raise await self._died(f"the connection to {self._address} is lost: {error.message}") from error
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _reply(self, link: Link, n: int) -> tuple[FromServer, bytes]:
        while True:
            text, raw = await link.receive()
            message = messages.from_server(text)
            match message:
                case Heard():
                    if self.on_network is not None:
                        self.on_network(message.event)
                case Wrote() if message.n == n:
                    missing, self._heard = message.at - self._heard, message.at + len(raw)
                    if self.on_output is not None:
                        if missing > 0:
                            self.on_output(message.stream, b"\n[... %d bytes came too fast ...]\n" % missing)
                        self.on_output(message.stream, raw)
                case Ran() | Executed() | Cancelled() if message.n == n:
                    return message, raw
                case Problem() if message.n in (n, None):
                    return message, raw
                case Wrote() | Ran() | Executed() | Cancelled() | Problem() | Opened():
                    pass  # of an earlier connection
                case Closed():
                    raise SandboxDied(self._dead or "the sandbox was closed over there")

    async def _open(self) -> Link:
        """A connection to the sandbox of this object, which is made when it is not there yet."""
        if self._dead:
            raise SandboxDied(self._dead)
        await self._drop()
        self._link = link = await self._greeted()
        again, self._asked = self._asked, True
        try:
            await link.send(messages.text_of(messages.Open(session=self._session, policy=self._policy, again=again)))
            opened, _ = self._checked(await self._first(link))
        except LinkLost as error:
            if self._opened is None:
                raise SandboxFailed(f"the connection to {self._address} broke: {error}") from error
            raise
        if not isinstance(opened, Opened):
            raise SandboxFailed(f"{self._address} answered out of turn")
        self._opened = opened
        return link

    async def _first(self, link: Link) -> tuple[FromServer, bytes]:
        while True:
            text, raw = await link.receive()
            message = messages.from_server(text)
            if isinstance(message, Heard):
                if self.on_network is not None:
                    self.on_network(message.event)
            elif isinstance(message, Opened) or (isinstance(message, Problem) and message.n is None):
                return message, raw

    async def _greeted(self) -> Link:
        where = self._address
        try:
            with anyio.fail_after(GREETING_S):
                stream = await anyio.connect_tcp(where.host, where.port)
        except (OSError, TimeoutError) as error:
            raise SandboxFailed(
                f"no sandbox server answers at {where}", "on that machine: stockade sandbox serve"
            ) from error
        try:
            return await as_client(stream, self._token)
        except LinkLost as error:
            await anyio.aclose_forcefully(stream)
            raise SandboxFailed(f"what answers at {where} is no sandbox server of ours: {error}") from error
        except BaseException:
            await anyio.aclose_forcefully(stream)
            raise

    async def _end(self) -> None:
        """Nothing is left over there when this returns, as far as it can be reached."""
        with anyio.move_on_after(CLOSE_S, shield=True):
            try:
                if self._asked:
                    await self._say_close()
            finally:
                self._asked = False
                self._dead = self._dead or "the sandbox was closed"
                await self._drop()

    async def _say_close(self) -> None:
        """Over the connection that is there; over a new one when it is broken."""
        for _ in range(2):
            try:
                link = self._link or await self._reopened()
                await link.send(messages.text_of(messages.Close()))
                while not isinstance(message := messages.from_server((await link.receive())[0]), Closed):
                    if isinstance(message, Heard) and self.on_network is not None:
                        self.on_network(message.event)
            except LinkLost:
                await self._drop()
            except (SandboxFailed, UsageError):
                return
            else:
                return

    async def _reopened(self) -> Link:
        """Only to say that it shall end: whether it is still there does not matter."""
        self._link = link = await self._greeted()
        await link.send(messages.text_of(messages.Open(session=self._session, policy=self._policy, again=True)))
        return link

    async def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _died(self, message: str) -> SandboxDied:
        self._dead = self._dead or message
        await self._drop()
        return SandboxDied(self._dead)
