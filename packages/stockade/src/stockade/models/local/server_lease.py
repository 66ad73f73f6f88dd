"""A lease on a running server: found again, or started by whoever comes first; held by a connection to its supervisor.

Servers are found in a folder for its owner alone, by a socket each. Whoever looks for one, starts or stops one holds
the folder's lock for that moment.
"""

import itertools
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio

from stockade.core.data import Data
from stockade.core.errors import ModelUnavailable
from stockade.models.local.launch_spec import clean_environment
from stockade.models.local.supervisor import MAX_LINE_BYTES
from stockade_sandbox.locks import lock_within, open_lock, release

_STOP_PATIENCE_S = 10.0
_LOCK = "lock"
_ANSWER_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 5.0
_SILENCE_S = 60.0
_LOCK_PATIENCE_S = 20.0
_MAX_FOLDER_BYTES = 84
_SHOWN: dict[str, Any] = {"path": "", "alias": "", "build": "", "window": 0, "slots": 0}
"""What is shown of the facts, and of a server that has not been told any yet."""


class Running(Data):
    """A server that is there. `left_s`: how long it is kept from now on, None while it has users. `keeper` is its
    supervisor's process.
    """

    state: str
    path: str
    alias: str
    address: str
    window: int
    slots: int
    build: str
    users: int
    left_s: float | None
    pid: int | None
    keeper: int


class Lease:
    """One user's hold on a server. `started`: this one started it. Not for concurrent use."""

    def __init__(self, connection: socket.socket, *, started: bool) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._received = b""
        self.started = started
        self.facts: dict[str, Any] = {}
        self._end: str | None = None

    async def ready(self) -> bool:
        """Wait until the model is loaded; False when the server is about to go, and another should be asked for.

        ModelUnavailable says why it cannot be loaded, TimeoutError that its supervisor is silent. From then on `facts`
        has port, api_key, slot, pid.
        """
        while True:
            for message in self._messages():
                if message["type"] == "gone":
                    return False
                self.facts |= message
                if message["type"] == "ready":
                    return True
                if message["type"] == "failed":
                    raise ModelUnavailable(str(message["reason"]))
            if self._end is not None:
                return False
            with anyio.fail_after(None if self.facts else _SILENCE_S):
                await anyio.wait_readable(self._socket)

    def died(self) -> str | None:
        """A sentence when the server is gone; None while it lives."""
        for message in self._messages():
            if message["type"] == "died":
                self._end = str(message["reason"])
        return self._end

    async def wait_died(self, patience_s: float) -> None:
        """Wait for news of the server's end."""
        with anyio.move_on_after(patience_s):
            while self.died() is None:
                await anyio.wait_readable(self._socket)

    def _messages(self) -> list[dict[str, Any]]:
        """What came since the last time."""
        with suppress(BlockingIOError):
            while self._end is None:
                try:
                    piece = self._socket.recv(1 << 16)
                except ConnectionError:
                    piece = b""
                if not piece or len(self._received) > MAX_LINE_BYTES:
                    self._end = "the embedded server's supervisor was ended"
                self._received += piece
        *lines, self._received = self._received.split(b"\n")
        return [json.loads(line) for line in lines]

    async def leave(self) -> None:
        """Let go. When we were the last user and it is not kept, it is gone on return."""
        with anyio.CancelScope(shield=True), self._socket:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
            await self.wait_died(_STOP_PATIENCE_S)


def take(name: str, key: str, keep_s: float, spec: Callable[[Path], dict[str, Any]], *, alone: bool = False) -> Lease:
    """A lease on the server of this key; `spec` says what to start when there is none. Blocking, for moments.

    `spec` may raise, and is given the folder, in which it may end servers that nobody uses. `key` names all that two
    users must have in common; `name` is for `ps`. `alone`: on one that nobody uses now; as all who take this key say
    so, nobody comes to it later.
    """
    folder = runtime_folder()
    supervisor = None
    with locked(folder):
        path = _unused(folder, key) if alone else folder / f"{key}.sock"
        request: dict[str, Any] = {"want": "lease", "keep_s": keep_s}
        connection = connect(path)
        if connection is None:
            request["spec"] = spec(folder)
            supervisor = _start(path, name)
            connection = connect(path)
            if connection is None:
                raise ModelUnavailable(f"the embedded server's supervisor ended with status {supervisor.wait()}")
        with suppress(OSError):  # its end is noticed by whoever reads
            connection.sendall(json.dumps(request).encode() + b"\n")
    if supervisor is not None:
        supervisor.wait()
    return Lease(connection, started=supervisor is not None)


def _unused(folder: Path, key: str) -> Path:
    """Where the first server of this key is that has no users, or may be started. The caller holds the lock."""
    for number in itertools.count():
        # No longer than the others: a socket's path has few bytes.
        path = folder / f"{key[:12]}-{number}.sock"
        server = _asked(path, "status")
        if server is None or not server.users:
            return path
    raise AssertionError("there is always a next number")


def _start(path: Path, name: str) -> "subprocess.Popen[bytes]":
    """The supervisor detaches itself: the process that is returned ends at once."""
    try:
        with listen(path) as listener:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "stockade.models.local.supervisor", str(path), name],
                stdin=listener.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
                start_new_session=True, env=clean_environment(),
            )  # fmt: skip
    except OSError as error:
        raise ModelUnavailable(f"the embedded server's supervisor cannot be started: {error.strerror}") from None


def running() -> list[Running]:
    """Every server of ours that is there now. Blocking, for moments."""
    folder = runtime_folder()
    with locked(folder):
        return [server for path in sockets(folder) if (server := _asked(path, "status")) is not None]


def in_use(path: Path) -> Running | None:
    """The server of this model file that has users; one that nobody uses is ended."""
    real = os.path.realpath(path)
    stop_all_idle(real)
    return next((server for server in running() if server.path == real), None)


def stop_idle(folder: Path, path: str | None = None) -> list[Running]:
    """End servers that nobody uses (those of the model file `path`, or all); the caller holds the lock.

    Those that were ended are returned; sockets that nobody listens at any more are removed.
    """
    ended = []
    for socket_path in sockets(folder):
        if path is not None and ((server := _asked(socket_path, "status")) is None or server.path != path):
            continue
        if (server := _asked(socket_path, "stop")) is None:
            socket_path.unlink(missing_ok=True)
        elif not server.users:
            ended.append(server)
    return ended


def stop_all_idle(path: str | None = None) -> list[Running]:
    """The same without the lock."""
    folder = runtime_folder()
    with locked(folder):
        return stop_idle(folder, path)


def _asked(path: Path, want: str) -> Running | None:
    """The server's own words; None when there is none. Returns when it is gone, where `want` is `stop` and it does."""
    connection = connect(path)
    if connection is None:
        return None
    with connection:
        connection.settimeout(_ANSWER_TIMEOUT_S)
        answer = b""
        try:
            connection.sendall(json.dumps({"want": want}).encode() + b"\n")
            while piece := connection.recv(1 << 16):
                answer += piece
        except ConnectionError:
            pass  # it has ended, before it had read this
        except OSError as error:
            raise _silent(path, error) from None
    if not answer:
        return None
    said = json.loads(answer)
    said |= {key: said["facts"].get(key, missing) for key, missing in _SHOWN.items()}
    address = f"http://{said['facts']['host']}:{said['port']}/v1" if said["port"] else ""
    return Running(address=address, **{key: said[key] for key in Running.model_fields if key != "address"})


def sockets(folder: Path) -> list[Path]:
    """Of every server, running or killed."""
    return sorted(folder.glob("*.sock"))


def connect(path: Path) -> socket.socket | None:
    """The supervisor at this socket; None when there is none. Ours: nobody else can write into its folder."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_CONNECT_TIMEOUT_S)
    try:
        connection.connect(os.fspath(path))
    except OSError as error:
        connection.close()
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            return None
        raise _silent(path, error) from None
    return connection


def _silent(path: Path, error: OSError) -> ModelUnavailable:
    """Of a supervisor that hangs. It has the path among its arguments, and the server dies with it."""
    return ModelUnavailable(f"the server at {path} does not answer: {error}", f"end it: pkill -KILL -f {path}")


def listen(path: Path) -> socket.socket:
    """A listening socket in the place of a dead one."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(path))
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener


def runtime_folder() -> Path:
    """`$XDG_RUNTIME_DIR/stockade` where that is a folder of ours, else `/tmp/stockade-UID`; made when it is missing.

    ModelUnavailable when it is somebody else's, or open to others: whoever can write there could pose as our server.
    """
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere")
    folder = base / "stockade" if _is_ours(base) else Path(tempfile.gettempdir()) / f"stockade-{os.geteuid()}"
    hint = "set XDG_RUNTIME_DIR to a folder of yours"
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = folder.lstat()
    except OSError as error:
        message = f"the folder for running servers, {folder}, cannot be made: {error.strerror}"
        raise ModelUnavailable(message, hint) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise ModelUnavailable(f"{folder} is not a folder of yours alone: servers in it cannot be trusted", hint)
    if len(os.fsencode(folder)) > _MAX_FOLDER_BYTES:
        raise ModelUnavailable(f"the path {folder} is too long for a socket", hint)
    return folder


def _is_ours(folder: Path) -> bool:
    """After `su` or `sudo` the variable may name a folder that is gone, or another user's."""
    try:
        return folder.is_dir() and folder.stat().st_uid == os.geteuid()
    except OSError:
        return False


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time connects to, starts or ends servers; blocking, held for moments only."""
    descriptor = open_lock(folder / _LOCK)
    try:
        if not lock_within(descriptor, _LOCK_PATIENCE_S):
            raise ModelUnavailable(f"another process holds {folder / _LOCK} and does not let go", "end it")
        yield
    finally:
        release(descriptor)
