"""Sandboxes that outlive their maker: a process of its own, the holder, has each, and who is the same user may use it.

The holder listens at a socket in the sandbox's folder, which is its user's alone; both sides ask the kernel who the
other is (SO_PEERCRED, unix(7)). Each call is a connection: a byte, with which descriptors come, then frames of a u32
length and msgpack. A call ends where its connection does, so a client that is killed takes along what it was running,
and nothing else. What a program reads and writes goes over sockets of its own, so one that is not read stops no other.
"""

import os
import socket
import struct
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self, TypeVar

import anyio
import msgspec
from anyio import to_thread
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Meta

from stockade_sandbox.backends.remote.messages import Problem, error_of
from stockade_sandbox.errors import ActionFailed, SandboxDied, SandboxFailed, UsageError
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import OnNetwork
from stockade_sandbox.processes import BOX, boxes_dir, start_time
from stockade_sandbox.records import Record
from stockade_sandbox.results import CommandOutput, ExecResult, FolderLayer, Snapshot
from stockade_sandbox.stoppable import unwrap_exception_group
from stockade_sandbox.unix_streams import UnixStream, connected

SOCKET = "socket"
MAX_FRAME = 256 << 20
END_S = 60.0
GREETING_S = 10.0
UNUSED_S = 60.0
"""How long a holder waits for its first client: its maker may have been ended meanwhile."""
_LENGTH = struct.Struct("!I")
_PEER = struct.Struct("3i")
BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, anyio.IncompleteRead, OSError)
T = TypeVar("T")
Side = Annotated[int, Meta(ge=1, le=65535)]
LAST_SIGNAL = 64


class Spec(Record):
    """What a holder is started with."""

    policy: Policy
    backend: str
    expires_s: Annotated[float, Meta(gt=0)]
    origin: Snapshot | None = None


class Held(Record, tag_field="t", tag=True):
    """Holder: what it holds. `made` is UNIX time; `clients` are attached now; `idle_s` since the last of them left."""

    base: str
    policy: Policy
    backend: str
    layers: tuple[FolderLayer, ...]
    guarantees: tuple[str, ...]
    made: float
    expires_s: float
    clients: int
    idle_s: float
    alive: bool


class Look(Record, tag_field="t", tag=True):
    """Client: what is it?"""


class Attach(Record, tag_field="t", tag=True):
    """Client: the same, and it is in use while this connection is there."""


class Run(Record, tag_field="t", tag=True):
    command: str
    timeout_s: float | None = None


class Exec(Record, tag_field="t", tag=True):
    argv: tuple[bytes, ...]
    stdin: bytes
    timeout_s: float | None
    max_output_bytes: int
    root: bool = False


class Start(Record, tag_field="t", tag=True):
    """Client: a program. Its stream is the first descriptor, its standard error the second, where it is given."""

    argv: tuple[bytes, ...]
    cwd: bytes | None = None
    timeout_s: float | None = None
    terminal: tuple[Side, Side] | None = None
    root: bool = False


class Signal(Record, tag_field="t", tag=True):
    """Client: to the program of this connection."""

    number: Annotated[int, Meta(ge=1, le=LAST_SIGNAL)]


class Resize(Record, tag_field="t", tag=True):
    """Client: its terminal."""

    rows: Side
    columns: Side


class Kill(Record, tag_field="t", tag=True):
    """Client: the program of this connection shall end."""


class Leave(Record, tag_field="t", tag=True):
    """Client: the same, however, and that is all of this connection."""


class Stop(Record, tag_field="t", tag=True):
    """Client: nothing shall run in it any more; what was written stays."""


class Destroy(Record, tag_field="t", tag=True):
    """Client: nothing of it shall be left."""


class Take(Record, tag_field="t", tag=True):
    """Client: a snapshot."""


class Taken(Record, tag_field="t", tag=True):
    names: tuple[str | None, ...]


class Ran(Record, tag_field="t", tag=True):
    output: CommandOutput


class Executed(Record, tag_field="t", tag=True):
    result: ExecResult


class Started(Record, tag_field="t", tag=True):
    """Holder: the program runs, or its end says why not."""


class Ended(Record, tag_field="t", tag=True):
    """Holder: the program's end. `words` are port.Program.exit_reason."""

    status: int | None
    timed_out: bool
    error: str
    words: str


class Done(Record, tag_field="t", tag=True):
    """Holder: it is so."""


Asked = Look | Attach | Run | Exec | Start | Signal | Resize | Kill | Leave | Take | Stop | Destroy
Reply = Held | Taken | Ran | Executed | Started | Ended | Done | Problem
ASKED: msgspec.msgpack.Decoder[Asked] = msgspec.msgpack.Decoder(Asked)
REPLY: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def _bytes(argv: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(os.fsencode(word) for word in argv)


@dataclass
class Line:
    """One connection."""

    stream: UnixStream
    reader: BufferedByteReceiveStream = field(init=False)

    def __post_init__(self) -> None:
        self.reader = BufferedByteReceiveStream(self.stream)
        _, uid, _ = _PEER.unpack(self.stream.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if uid != os.geteuid():
            raise SandboxFailed(f"another user ({uid}) is at the other end of the sandbox's socket")

    async def send(self, message: Asked | Reply) -> None:
        """ActionFailed for strings that are no text, and for what is too large."""
        try:
            data = msgspec.msgpack.encode(message)
        except UnicodeEncodeError:
            raise ActionFailed("it holds half a surrogate pair, which is no text") from None
        if len(data) > MAX_FRAME:
            raise ActionFailed(f"it is over the limit of {MAX_FRAME >> 20} MiB")
        await self.stream.send(_LENGTH.pack(len(data)) + data)

    async def receive(self, decoder: msgspec.msgpack.Decoder[T]) -> T:
        """One of BROKEN, also for nonsense."""
        (length,) = _LENGTH.unpack(await self.reader.receive_exactly(_LENGTH.size))
        if length > MAX_FRAME:
            raise anyio.BrokenResourceError
        try:
            return decoder.decode(await self.reader.receive_exactly(length))
        except (msgspec.MsgspecError, RecursionError):
            raise anyio.BrokenResourceError from None


def by_descriptor(folder: Path) -> int:
    return os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)


class KeptSandbox:
    """Implements port.Sandbox and port.Programs for one that a holder has. Leaving lets go of it."""

    def __init__(self, base: Path) -> None:
        self.on_network: OnNetwork | None = None
        self.base = base
        self._running = AsyncExitStack()
        self.held: Held | None = None

    @property
    def _held(self) -> Held:
        if self.held is None:
            raise SandboxDied("this sandbox is not attached", "use it inside `with`")
        return self.held

    @property
    def backend(self) -> str:
        return self._held.backend

    @property
    def layers(self) -> tuple[FolderLayer, ...]:
        return self._held.layers

    @property
    def guarantees(self) -> tuple[str, ...]:
        return self._held.guarantees

    @asynccontextmanager
    async def _line(self, request: Asked, fds: Sequence[int] = ()) -> AsyncIterator[Line]:
        """A call. SandboxDied when there is no holder any more, or it ends meanwhile."""
        try:
            folder = by_descriptor(self.base)
            try:
                stream = await connected(f"/proc/self/fd/{folder}/{SOCKET}")
            finally:
                os.close(folder)
            async with stream:
                line = Line(stream)
                socket.send_fds(stream.connection, [b"\0"], fds)  # the first byte has room
                await line.send(request)
                yield line
        except BROKEN as error:
            raise SandboxDied(f"the holder of the sandbox {id_of(self.base)} is gone") from error

    async def ask(self, request: Asked) -> Reply:
        """One question and its answer; an error that the holder met is raised here."""
        async with self._line(request) as line:
            return _checked(await line.receive(REPLY))

    async def __aenter__(self) -> Self:
        line = await self._running.enter_async_context(self._line(Attach()))
        try:
            found = _checked(await line.receive(REPLY))
            if not isinstance(found, Held):
                raise SandboxFailed("the holder answered out of turn")
        except BaseException:
            await self._running.aclose()
            raise
        self.held = found
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.held = None
        await self._running.aclose()

    @property
    def policy(self) -> Policy:
        return self._held.policy

    async def stop(self) -> None:
        """Nothing runs in it any more; what was written stays."""
        await self.ask(Stop())

    async def snapshot(self) -> tuple[str | None, ...]:
        reply = await self.ask(Take())
        assert isinstance(reply, Taken)
        return reply.names

    async def destroy(self) -> None:
        """Nothing of it is left, but what undo needs. SandboxFailed when its holder does not end it."""
        if not is_held(self.base):
            if self.base.exists():
                await to_thread.run_sync(remove_tree, self.base)
            return
        with anyio.move_on_after(END_S) as waited, suppress(SandboxDied):
            await self.ask(Destroy())
        if waited.cancelled_caught:
            raise SandboxFailed(f"the holder of {id_of(self.base)} does not end it", "end its process by hand")

    async def run(self, command: str, timeout_s: float | None = None) -> CommandOutput:
        reply = await self.ask(Run(command=command, timeout_s=timeout_s))
        assert isinstance(reply, Ran)
        return reply.output

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20,
        *, root: bool = False,
    ) -> ExecResult:  # fmt: skip
        """Implements port.Sandbox and port.Rooted."""
        asked = Exec(argv=_bytes(argv), stdin=stdin, timeout_s=timeout_s, max_output_bytes=max_output_bytes, root=root)
        reply = await self.ask(asked)
        assert isinstance(reply, Executed)
        return reply.result

    @asynccontextmanager
    async def program(
        self, argv: Sequence[str], cwd: str | None = None, timeout_s: float | None = None, *, errors: bool = False,
        terminal: tuple[int, int] | None = None, root: bool = False,
    ) -> AsyncIterator["_KeptProgram"]:  # fmt: skip
        """Implements port.Programs."""
        pairs = [socket.socketpair() for _ in range(2 if errors else 1)]
        folder = None if cwd is None else os.fsencode(cwd)
        asked = Start(argv=_bytes(argv), cwd=folder, timeout_s=timeout_s, terminal=terminal, root=root)
        async with AsyncExitStack() as stack:
            streams = []
            for ours, theirs in pairs:
                stack.callback(theirs.close)
                streams.append(await stack.enter_async_context(UnixStream(ours)))
            line = await stack.enter_async_context(self._line(asked, [theirs.fileno() for _, theirs in pairs]))
            _checked(await line.receive(REPLY))
            for _, theirs in pairs:
                theirs.close()
            found = _KeptProgram(line, streams, terminal is not None)
            async with unwrap_exception_group(), anyio.create_task_group() as group:
                group.start_soon(found.listen)
                try:
                    yield found
                finally:  # it finds its streams closed, then this connection, and the holder's answer is the last
                    with anyio.CancelScope(shield=True):
                        for stream in streams:
                            await stream.aclose()
                        with suppress(*BROKEN):
                            await line.send(Leave())
                            await found.over.wait()
                    group.cancel_scope.cancel()


class _KeptProgram:
    """Implements port.StartedProgram."""

    def __init__(self, line: Line, streams: Sequence[UnixStream], on_terminal: bool) -> None:
        self._on_terminal = on_terminal
        self._line, self._stream, self._errors = line, streams[0], streams[-1]
        self._ended: Ended | None = None
        self.over = anyio.Event()

    @property
    def status(self) -> int | None:
        return self._ended.status if self._ended else None

    @property
    def timed_out(self) -> bool:
        return self._ended is not None and self._ended.timed_out

    @property
    def error(self) -> str:
        return self._ended.error if self._ended else ""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._stream.receive(max_bytes)

    async def receive_error(self, max_bytes: int = 65536) -> bytes:
        return await self._errors.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await (self.send(b"\x04") if self._on_terminal else self._stream.send_eof())

    async def kill(self) -> None:
        await self._tell(Kill())

    async def signal(self, number: int) -> None:
        if not 0 < number <= LAST_SIGNAL:
            raise ValueError(f"no signal has the number {number}")
        await self._tell(Signal(number=number))

    async def resize(self, rows: int, columns: int) -> None:
        if not (0 < rows < 1 << 16 and 0 < columns < 1 << 16):
            raise ValueError(f"no terminal has {rows} rows and {columns} columns")
        await self._tell(Resize(rows=rows, columns=columns))

    async def _tell(self, asked: Asked) -> None:
        with suppress(*BROKEN):
            await self._line.send(asked)

    async def wait(self) -> int | None:
        await self.over.wait()
        return self.status

    async def exit_reason(self) -> str:
        await self.over.wait()
        return self._ended.words if self._ended else ""

    async def listen(self) -> None:
        """Until its end, or the holder's."""
        try:
            with suppress(*BROKEN):
                reply = await self._line.receive(REPLY)
                self._ended = reply if isinstance(reply, Ended) else None
        finally:
            self.over.set()


def _checked(reply: Reply) -> Reply:
    if isinstance(reply, Problem):
        raise error_of(reply)
    return reply


async def hold(policy: Policy, backend: str, expires_s: float, origin: Snapshot | None) -> KeptSandbox:
    """A new one. Raises what making a sandbox raises."""
    try:
        spec = msgspec.msgpack.encode(Spec(policy=policy, backend=backend, expires_s=expires_s, origin=origin))
    except UnicodeEncodeError:
        raise UsageError("the policy holds a name that is not UTF-8", "rename it") from None
    argv = [sys.executable, "-P", "-m", "stockade_sandbox.holder"]
    done = await anyio.run_process(argv, input=spec, check=False, start_new_session=True)
    try:
        reply = _checked(REPLY.decode(done.stdout))
    except msgspec.MsgspecError:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise SandboxFailed(f"the holder of the sandbox did not start: {said[-1]}") from None
    assert isinstance(reply, Held)
    return KeptSandbox(Path(reply.base))


def id_of(base: Path) -> str:
    return base.name.rpartition("-")[2]


def kept() -> list[Path]:
    """The folders of all kept sandboxes of this user, also of those whose holder is gone."""
    return sorted(one.parent for one in boxes_dir().glob(f"{BOX}-*-*-*/{SOCKET}"))


def find(name: str) -> KeptSandbox:
    """By its id. UsageError when there is none, or its holder is gone."""
    base = next((one for one in kept() if id_of(one) == name), None)
    if base is None:
        raise UsageError(f"there is no kept sandbox {name!r}", "see `stockade sandbox list`")
    return KeptSandbox(base)


def is_held(base: Path) -> bool:
    """Whether its holder lives: the folder is named after it."""
    _, pid, started, _ = base.name.split("-")
    return start_time(int(pid), zombies=False) == int(started)


async def look(base: Path) -> Held | None:
    """What it is; None when its holder is gone."""
    if not is_held(base):
        return None
    try:
        reply = await KeptSandbox(base).ask(Look())
    except SandboxDied:
        return None
    return reply if isinstance(reply, Held) else None
