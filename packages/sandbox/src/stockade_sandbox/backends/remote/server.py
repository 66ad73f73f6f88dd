"""The far side: sandboxes for whoever has the token, one a session, which outlives its connections for a while."""

import sys
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field

import anyio
from anyio.abc import ByteStream, Listener, TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from stockade_sandbox.backends.remote import messages
from stockade_sandbox.backends.remote.allowed import Allowed, granted
from stockade_sandbox.backends.remote.greeting import as_server
from stockade_sandbox.backends.remote.messages import (
    Cancel,
    Cancelled,
    Close,
    Closed,
    Exec,
    FromServer,
    Heard,
    Open,
    Opened,
    Run,
    Wrote,
)
from stockade_sandbox.backends.remote.wire import Link, LinkLost
from stockade_sandbox.errors import SandboxDied, SandboxFailed, StockadeError
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import OnNetwork, Sandbox, ShowsOutput
from stockade_sandbox.results import NetworkRequest, Stream

KEEP_S = 120.0
"""How long a sandbox waits for its client to come back."""
MAX_SESSIONS = 32
MAX_STRANGERS = 64
"""Connections at once that have not proved anything yet."""
_MAX_NEWS = 10_000
_PIECE_BYTES, _SHOWN_BYTES = 64 << 10, 4 << 20
"""Of a command's output as it comes: in one frame, and kept for a client that is slow or comes back."""
_OVERHEAD_BYTES = 128
"""What keeping a piece takes beside its bytes."""

OpenBox = Callable[[Policy, OnNetwork], AbstractAsyncContextManager[Sandbox]]
"""A sandbox for a policy that was granted; leaving takes everything of it away."""
Log = Callable[[str], None]


def to_stderr(line: str) -> None:
    print(f"stockade: {line}", file=sys.stderr, flush=True)


@dataclass(slots=True)
class Server:
    """`keep_s`: how long a sandbox is kept for a client whose connection broke."""

    token: bytes
    allowed: Allowed
    open_box: OpenBox
    keep_s: float = KEEP_S
    log: Log = to_stderr
    sessions: dict[str, "Session"] = field(default_factory=dict)
    _strangers: int = 0

    async def serve(self, listener: Listener[ByteStream]) -> None:
        """Until cancelled; then every sandbox ends."""
        async with anyio.create_task_group() as group:

            async def connection(stream: ByteStream) -> None:
                await self._connection(stream, group)

            await listener.serve(connection, group)

    async def _connection(self, stream: ByteStream, group: TaskGroup) -> None:
        """One connection; whatever comes over it ends nothing but itself."""
        try:
            link = await self._greeted(stream)
            if link is not None:
                await self._speak(link, group)
        except (LinkLost, SandboxFailed) as error:
            self.log(f"a connection ended: {error}")
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(stream)

    async def _greeted(self, stream: ByteStream) -> Link | None:
        if self._strangers >= MAX_STRANGERS:
            return None
        self._strangers += 1
        try:
            return await as_server(stream, self.token)
        finally:
            self._strangers -= 1

    async def _speak(self, link: Link, group: TaskGroup) -> None:
        text, _ = await link.receive()
        first = messages.from_client(text)
        if not isinstance(first, Open):
            raise LinkLost("the client did not begin with a session")
        session = self.sessions.get(first.session)
        if session is None:
            try:
                session = self._new(first)
            except StockadeError as error:
                await link.send(messages.text_of(messages.problem(error)))
                await link.send(messages.text_of(Closed()))
                return
            group.start_soon(session.live)
            group.start_soon(session.show)
        await session.attach(link)
        try:
            while True:
                text, raw = await link.receive()
                await session.take(messages.from_client(text), raw)
        except LinkLost:
            if not session.over:
                raise
        finally:
            session.detach(link)
            if session.link is None and not session.over:
                group.start_soon(session.expire, self.keep_s)

    def _new(self, first: Open) -> "Session":
        if first.again:
            raise SandboxDied("the sandbox is gone over there", "its server was started anew, or waited too long")
        if len(self.sessions) >= MAX_SESSIONS:
            raise SandboxFailed(f"the serving machine has {MAX_SESSIONS} sandboxes already", "try again later")
        policy = granted(first.policy, self.allowed)
        session = Session(first.session, policy, self)
        self.sessions[first.session] = session
        return session


@dataclass(slots=True)
class _Piece:
    """Of what a command writes: behind how many bytes it comes."""

    at: int
    stream: Stream
    data: bytes


class Session:
    """One sandbox and what is known of its requests. Of its connections only the last one counts."""

    def __init__(self, name: str, policy: Policy, server: Server) -> None:
        self.name, self.over = name, False
        self.link: Link | None = None
        self._policy, self._server = policy, server
        self._scope = anyio.CancelScope()
        self._opened: FromServer | None = None
        self._news: deque[NetworkRequest] = deque(maxlen=_MAX_NEWS)
        self._number = 0
        self._result: tuple[FromServer, bytes] | None = None
        self._running: anyio.CancelScope | None = None
        self._unwanted = False
        self._sent, self._waiting = deque[_Piece](), deque[_Piece]()
        self._written = self._kept = 0
        self._wrote = anyio.Event()
        self._showing = anyio.Lock()
        self._asker: Link | None = None
        """The connection over which the last request came: only there is it known how much the client has heard."""
        self._back = anyio.Event()
        send, receive = anyio.create_memory_object_stream[tuple[Run | Exec, bytes]](1)
        self._requests: MemoryObjectSendStream[tuple[Run | Exec, bytes]] = send
        self._queue: MemoryObjectReceiveStream[tuple[Run | Exec, bytes]] = receive

    async def live(self) -> None:
        """From its start to its end, whatever ends it; then nothing of it is left."""
        try:
            with self._scope:
                async with self._server.open_box(self._policy, self._news.append) as box:
                    self._opened = Opened(
                        backend=box.backend,
                        layers=tuple(layer for layer in box.layers if layer.strategy != "direct"),
                        guarantees=box.guarantees,
                    )
                    await self._say(self._opened)
                    async for request, raw in self._queue:
                        await self._do(box, request, raw)
        except StockadeError as error:
            self._opened = messages.problem(error)
            await self._say(self._opened)
        except (OSError, ValueError, RuntimeError, ExceptionGroup) as bug:  # of one sandbox; the others go on
            self._server.log(f"a sandbox ended by a bug: {type(bug).__name__}: {bug}")
            self._opened = messages.problem(SandboxFailed("the serving machine has failed: its log says how"))
            await self._say(self._opened)
        finally:
            self.over = True
            self._wrote.set()
            self._server.sessions.pop(self.name, None)
            self._requests.close()
            self._queue.close()
            with anyio.CancelScope(shield=True):
                await self._say(Closed())

    async def attach(self, link: Link) -> None:
        """From here on it is spoken to over `link`."""
        old, self.link = self.link, link
        self._back.set()
        if old is not None:
            await old.close()
        if self._opened is not None:
            await self._say(self._opened)

    def detach(self, link: Link) -> None:
        if self.link is link:
            self.link, self._back = None, anyio.Event()

    async def expire(self, keep_s: float) -> None:
        """The client has so long to come back."""
        with anyio.move_on_after(keep_s) as waited:
            await self._back.wait()
        if waited.cancelled_caught and self.link is None:
            self._scope.cancel()

    async def take(self, message: messages.FromClient, raw: bytes) -> None:
        """Something the client says. LinkLost when it does not fit."""
        match message:
            case Run() | Exec():
                await self._request(message, raw)
            case Cancel():
                await self._cancel(message.n)
            case Close():
                self._scope.cancel()
            case Open():
                raise LinkLost("the client began a second session on one connection")

    async def _request(self, request: Run | Exec, raw: bytes) -> None:
        if request.n == self._number:
            self._go_back(request)
            self._asker = self.link
            if self._result is not None:  # it came before the connection broke, and its result did not arrive
                await self._show()
                await self._say(*self._result)
            else:
                self._wrote.set()
            return
        if request.n != self._number + 1 or (self._number and self._result is None):
            raise LinkLost("the client counts its requests wrongly")
        self._number, self._result, self._unwanted = request.n, None, False
        self._sent, self._waiting, self._written, self._kept, self._asker = deque(), deque(), 0, 0, self.link
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._requests.send((request, raw))

    async def _cancel(self, n: int) -> None:
        if n == self._number + 1:  # the request itself never arrived
            self._number, self._result = n, (Cancelled(n=n), b"")
        if n != self._number:
            raise LinkLost("the client counts its requests wrongly")
        self._asker = self.link
        self._waiting.clear()  # nothing more of it is wanted
        if self._result is not None:
            await self._say(*self._result)
        else:
            self._unwanted = True
            if self._running is not None:
                self._running.cancel()

    async def _do(self, box: Sandbox, request: Run | Exec, raw: bytes) -> None:
        result: tuple[FromServer, bytes] = (Cancelled(n=request.n), b"")
        with anyio.CancelScope() as self._running:
            if self._unwanted:
                self._running.cancel()
            try:
                if isinstance(request, Run):
                    if isinstance(box, ShowsOutput):
                        box.on_output = self._take_output if request.heard is not None else None
                    output = await box.run(request.command, request.timeout_s)
                    result = (messages.Ran(n=request.n, output=output), b"")
                else:
                    done = await box.exec(request.argv, raw, request.timeout_s, request.max_output_bytes)
                    result = messages.executed(request.n, done)
            except StockadeError as error:
                result = (messages.problem(error, request.n), b"")
        self._running = None
        self._result = result
        await self._show()
        if self._asker is self.link:  # else it is asked for again
            await self._say(*result)

    def _go_back(self, request: Run | Exec) -> None:
        """To how much of the output the client has. LinkLost when there was not so much."""
        heard = (request.heard if isinstance(request, Run) else None) or 0
        if heard > self._written:
            raise LinkLost("the client heard what was not said")
        while self._sent and self._sent[-1].at >= heard:
            self._waiting.appendleft(self._sent.pop())

    def _take_output(self, stream: Stream, data: bytes) -> None:
        """Implements port.OnOutput. What waits for the client is put together; the oldest goes when it is too much."""
        last = self._waiting[-1] if self._waiting else None
        if last is not None and last.stream == stream and len(last.data) + len(data) <= _PIECE_BYTES:
            last.data += data
        else:
            self._waiting.append(_Piece(self._written, stream, data))
            self._kept += _OVERHEAD_BYTES
        self._written, self._kept = self._written + len(data), self._kept + len(data)
        while self._kept > _SHOWN_BYTES:
            gone = (self._sent or self._waiting).popleft()
            self._kept -= len(gone.data) + _OVERHEAD_BYTES
        self._wrote.set()

    async def show(self) -> None:
        """What the command writes, as it comes, until the end of the session."""
        while not self.over:
            await self._wrote.wait()
            self._wrote = anyio.Event()
            await self._show()

    async def _show(self) -> None:
        """To the client, when it is there: what is lost with a connection, it asks for by how much it has heard."""
        async with self._showing:
            while (link := self.link) is not None and link is self._asker and self._waiting:
                piece = self._waiting.popleft()
                self._sent.append(piece)
                try:
                    wrote = Wrote(n=self._number, stream=piece.stream, at=piece.at)
                    await link.send(messages.text_of(wrote), piece.data)
                except LinkLost:
                    return

    async def _say(self, message: FromServer, raw: bytes = b"") -> None:
        """To the client, when it is there: what is lost with a connection, it asks for again."""
        link = self.link
        if link is None:
            return
        with suppress(LinkLost):
            while self._news:
                event = self._news.popleft()
                await link.send(messages.text_of(Heard(event=event)))
            await link.send(messages.text_of(message), raw)
