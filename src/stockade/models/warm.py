"""A lease on a running server: found again, or started by whoever comes first; held by a connection to its keeper."""

import itertools
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from stockade.core.data import Data
from stockade.core.errors import ModelUnavailable
from stockade.models.keeper import MAX_LINE_BYTES
from stockade.models.orders import clean_environment
from stockade.models.runtime import connect, listen, locked, runtime_folder, silent, sockets

STOP_PATIENCE_S = 10.0
_ANSWER_TIMEOUT_S = 10.0
_SILENCE_S = 60.0


class Running(Data):
    """A server that is there. `left_s`: how long it is kept from now on, None while it has users."""

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
        self._said = b""
        self.started = started
        self.facts: dict[str, Any] = {}
        self._end: str | None = None

    async def ready(self) -> bool:
        """Wait until the model is loaded; False when the server is about to go, and another should be asked for.

        ModelUnavailable says why it cannot be loaded, TimeoutError that its keeper is silent. From then on `facts` has
        port, api_key, slot, pid.
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

    async def end_heard(self, patience_s: float) -> None:
        """Wait for news of the server's end."""
        with anyio.move_on_after(patience_s):
            while self.died() is None:
                await anyio.wait_readable(self._socket)

    def _messages(self) -> list[dict[str, Any]]:
        """What was said since the last time."""
        with suppress(BlockingIOError):
            while self._end is None:
                try:
                    piece = self._socket.recv(1 << 16)
                except ConnectionError:
                    piece = b""
                if not piece or len(self._said) > MAX_LINE_BYTES:
                    self._end = "the embedded server's keeper was ended"
                self._said += piece
        *lines, self._said = self._said.split(b"\n")
        return [json.loads(line) for line in lines]

    async def leave(self) -> None:
        """Let go. When we were the last user and it is not kept, it is gone on return."""
        with anyio.CancelScope(shield=True), self._socket:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
            with anyio.move_on_after(STOP_PATIENCE_S):
                while self._end is None:
                    self._messages()
                    if self._end is None:
                        await anyio.wait_readable(self._socket)


def take(name: str, key: str, keep_s: float, order: Callable[[Path], dict[str, Any]], *, alone: bool = False) -> Lease:
    """A lease on the server of this key; `order` says what to start when there is none. Blocking, for moments.

    `order` may raise, and is given the folder, in which it may end servers that nobody uses. `key` names all that two
    users must have in common; `name` is for `ps`. `alone`: on one that nobody uses now; as all who take this key say
    so, nobody comes to it later.
    """
    folder = runtime_folder()
    keeper = None
    with locked(folder):
        path = _unused(folder, key) if alone else folder / f"{key}.sock"
        asked: dict[str, Any] = {"want": "lease", "keep_s": keep_s}
        connection = connect(path)
        if connection is None:
            asked["order"] = order(folder)
            try:
                keeper = _start(path, name)
            except OSError as error:
                raise ModelUnavailable(f"the embedded server's keeper cannot be started: {error.strerror}") from None
            connection = connect(path)
            if connection is None:
                raise ModelUnavailable(f"the embedded server's keeper ended with status {keeper.wait()}")
        with suppress(OSError):  # its end is noticed by whoever reads
            connection.sendall(json.dumps(asked).encode() + b"\n")
    if keeper is not None:
        keeper.wait()
    return Lease(connection, started=keeper is not None)


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
    """The keeper detaches itself: the process that is returned ends at once."""
    with listen(path) as listener:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "stockade.models.keeper", str(path), name],
            stdin=listener.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
            start_new_session=True, env=clean_environment(),
        )  # fmt: skip


def running() -> list[Running]:
    """Every server of ours that is there now. Blocking, for moments."""
    folder = runtime_folder()
    with locked(folder):
        found = [_asked(path, "status") for path in sockets(folder)]
    return [server for server in found if server is not None]


def stop_idle(folder: Path, path: str | None = None) -> list[Running]:
    """End servers that nobody uses (those of the model file `path`, or all); the caller holds the lock.

    Those that were ended are returned; sockets that nobody listens at any more are removed.
    """
    ended = []
    for found in sockets(folder):
        if path is not None and ((server := _asked(found, "status")) is None or server.path != path):
            continue
        if (server := _asked(found, "stop")) is None:
            found.unlink(missing_ok=True)
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
        said = b""
        try:
            connection.sendall(json.dumps({"want": want}).encode() + b"\n")
            while piece := connection.recv(1 << 16):
                said += piece
        except OSError as error:
            raise silent(path, error) from None
    line = said.partition(b"\n")[0]
    return _running(json.loads(line)) if line else None


def _running(said: dict[str, Any]) -> Running:
    facts = said["facts"]
    return Running(
        **{key: said[key] for key in ("state", "users", "left_s", "pid", "keeper")},
        **{key: facts.get(key, "") for key in ("path", "alias", "build")},
        window=facts.get("window", 0), slots=facts.get("slots", 0),
        address=f"http://{facts.get('host', '')}:{said['port']}/v1" if said["port"] else "",
    )  # fmt: skip
