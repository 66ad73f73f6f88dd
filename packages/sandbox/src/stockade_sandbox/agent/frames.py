"""The agent's protocol as data: requests to bytes, bytes to replies. Pure; the sizes are bounded both ways."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

VERSION = 9
MAX_REQUEST_BYTES = 64 << 20
MAX_REPLY_BYTES = 128 << 10
MAX_ARGS = 4096

MAX_PROGRAMS = 128
MAX_CLIENTS = 64
CLIENT = 1 << 31
"""Set in the numbers of connections that clients inside have opened."""
WINDOW = 128 << 10
"""Bytes of one connection, each way, that may be under way without having been taken."""
PIECE = 64 << 10

_CONFIG, _RUN, _START, _KILL, _LISTEN, _DATA, _TAKEN, _CLOSE, _RESIZE, _SIGNAL = range(1, 11)
_HELLO, _OUT, _DONE, _LISTENING, _OPENED, _CAME, _WAS_TAKEN, _CLOSED, _ENDED, _EXPORTS = range(1, 11)

MAX_LISTENERS = 32
SSH_AGENT = "/tmp/.ssh-agent"
TIMED_OUT, KILLED, SHELL_RESTORED, SHELL_RESTARTED, SYNTAX, SPAWN_FAILED, OUT_OF_TURN = 1, 2, 4, 8, 16, 32, 64
READABLE = 128


class Malformed(ValueError):
    """Bytes that are no frame of this protocol."""


class Hello(NamedTuple):
    version: int
    pid: int


class Out(NamedTuple):
    """What a command wrote; `stream` is 1 for stdout, 2 for stderr."""

    id: int
    stream: int
    data: bytes


class Done(NamedTuple):
    """The end of a command (id 0: of the start). `error` says why there is no shell."""

    id: int
    status: int
    flags: int
    cwd: str
    error: str


class Listening(NamedTuple):
    """The port is listened on; not when `error` says why."""

    error: str


class Opened(NamedTuple):
    """A client inside has connected; `number` is the connection's, `address` and `port` are where to."""

    number: int
    address: int = 0x7F000001
    port: int = 0


class Data(NamedTuple):
    """From a client or a program; empty is its end. A program's output has its number, its errors the next."""

    number: int
    data: bytes


class Taken(NamedTuple):
    """The other side took `size` bytes: there is room for as many more."""

    number: int
    size: int


class Closed(NamedTuple):
    """The client is gone before its time."""

    number: int


class Ended(NamedTuple):
    """The program is gone, all it wrote was sent, and so are its two connections. `error` says why it never ran."""

    number: int
    status: int
    flags: int
    error: str


class Exports(NamedTuple):
    """What the shell exports from the command on whose end comes next, as `export -p` says it."""

    text: bytes


Reply = Hello | Out | Done | Listening | Opened | Data | Taken | Closed | Ended | Exports


def _frame(kind: int, payload: bytes) -> bytes:
    return struct.pack("<IB", len(payload), kind) + payload


def _strings(values: Sequence[str]) -> bytes:
    return struct.pack("<I", len(values)) + b"".join(_string(value) for value in values)


def _string(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape") + b"\0"


def config(
    processes: int, files: int, file_bytes: int, data_bytes: int, streams: int, cwd: str, shell: Sequence[str]
) -> bytes:
    """The first request: limits of every child (0: none), into how many pipes the shell writes (1: both streams into
    one; 2), the first folder, the shell's program and options.
    """
    numbers = struct.pack("<4QI", processes, files, file_bytes, data_bytes, streams)
    return _frame(_CONFIG, numbers + _string(cwd) + _strings(shell))


def run(job: int, timeout_ms: int, grace_ms: int, text: bytes) -> bytes:
    return _frame(_RUN, struct.pack("<3I", job, timeout_ms, grace_ms) + text)


Size = tuple[int, int]
"""Rows and columns of a terminal, 1 to 65535 each."""


def start(
    number: int,
    timeout_ms: int,
    grace_ms: int,
    cwd: str,
    argv: Sequence[str],
    terminal: Size | None = None,
    *,
    root: bool = False,
) -> bytes:
    """A program beside the shell, at any time. `number` is even and not in use; it is also that of the connection of
    its standard input and output, and the next one its standard error's. Without `cwd` it starts where the shell is,
    without `argv` it is an agent like this one, with a shell of its own. In a `terminal` all three are one.
    `root`: of the sandbox, where it has one.
    """
    numbers = struct.pack("<5I", number, timeout_ms, grace_ms, _packed(terminal), root)
    return _frame(_START, numbers + _string(cwd) + _strings(argv))


def _packed(size: Size | None) -> int:
    return 0 if size is None else size[0] << 16 | size[1]


def resize(number: int, size: Size) -> bytes:
    """The terminal of a program; without one it is passed over."""
    return _frame(_RESIZE, struct.pack("<2I", number, _packed(size)))


def signal(number: int, which: int) -> bytes:
    """To whom the program's terminal would send it: the group in the foreground; else to the program's group."""
    return _frame(_SIGNAL, struct.pack("<2I", number, which))


def kill(number: int) -> bytes:
    """A command or a program, as if its time were over: SIGTERM to all its processes, SIGKILL after the grace.
    0: all that runs, by SIGKILL.
    """
    return _frame(_KILL, struct.pack("<I", number))


def listen(port: int, *, everywhere: bool = False) -> bytes:
    """For connections to `port` of the sandbox's 127.0.0.1, or of all of its 127.0.0.0/8; 0: to SSH_AGENT inside. Not
    while a job runs.
    """
    return _frame(_LISTEN, struct.pack("<2I", port, everywhere))


def data(number: int, piece: bytes) -> bytes:
    """For a client's or a program's input; empty ends it."""
    return _frame(_DATA, struct.pack("<I", number) + piece)


def taken(number: int, count: int) -> bytes:
    return _frame(_TAKEN, struct.pack("<2I", number, count))


def close(number: int) -> bytes:
    """The other side gets what was sent so far; nothing more of it is wanted."""
    return _frame(_CLOSE, struct.pack("<I", number))


class Reader:
    """Replies out of bytes that arrive in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> Reply | None:
        """The next complete reply, None when there is none yet. Malformed when it is no reply."""
        if len(self._buffer) < 5:
            return None
        length, kind = struct.unpack_from("<IB", self._buffer)
        if length > MAX_REPLY_BYTES:
            raise Malformed(f"a reply of {length} bytes")
        if len(self._buffer) < 5 + length:
            return None
        payload = bytes(self._buffer[5 : 5 + length])
        del self._buffer[: 5 + length]
        return _reply(kind, payload)


def _reply(kind: int, payload: bytes) -> Reply:
    try:
        if kind == _OUT:
            job, stream = struct.unpack_from("<IB", payload)
            if stream in (1, 2):
                return Out(job, stream, payload[5:])
        if kind == _DONE:
            job, status, flags = struct.unpack_from("<3I", payload)
            cwd, nul, error = payload[12:].partition(b"\0")
            if nul and status <= 255:
                return Done(job, status, flags, cwd.decode("utf-8", "replace"), error.decode("utf-8", "replace"))
        if kind == _ENDED and payload.endswith(b"\0"):
            number, status, flags = struct.unpack_from("<3I", payload)
            if status <= 255:
                return Ended(number, status, flags, payload[12:-1].decode("utf-8", "replace"))
        if kind == _EXPORTS:
            return Exports(payload)
        if kind == _LISTENING and payload.endswith(b"\0"):
            return Listening(payload[:-1].decode("utf-8", "replace"))
        if kind == _HELLO:
            return Hello(*struct.unpack("<2I", payload))
        if kind == _CAME:
            return Data(struct.unpack_from("<I", payload)[0], payload[4:])
        if kind == _WAS_TAKEN:
            return Taken(*struct.unpack("<2I", payload))
        if kind == _OPENED:
            return Opened(*struct.unpack("<3I", payload))
        if kind == _CLOSED:
            return Closed(*struct.unpack("<I", payload))
    except struct.error as error:
        raise Malformed(f"a reply of kind {kind} is too short") from error
    raise Malformed(f"a reply of kind {kind} cannot be read")
