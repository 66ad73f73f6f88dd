"""The keeper of one embedded server: `python -P -m stockade.models.keeper SOCKET NAME`, its stdin the listening socket.

It starts the server, lends it to whoever connects, and ends it when the last of them has been gone for the keep time.
A connection is a lease: the kernel closes it however its user ends, so nothing has to be counted down in order. The
address and the key of the server travel over these connections only, never through a file.

A user's first line is `{"want": "lease", "keep_s": S, "order": {...}}`; the first user's order says what to start
(models/order.py). Answers are JSON lines: `status` (state `loading`), `ready`, `failed`, `died`. Others ask for
`status` and are answered once; `stop` ends a server that nobody uses. Whoever connects, and the keeper when it ends,
holds the folder's lock, so that nobody connects to a server that is about to go. Standard library only: it is small.
"""

import ctypes
import fcntl
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from stockade.models.last_words import ending, last_words_of

LOCK = "lock"
MAX_LINE_BYTES = 1 << 20
_MAX_LOG_BYTES = 8 << 20
_LOCK_RETRY_S = 0.05
_HEALTH_S = 0.1
_PR_SET_PDEATHSIG = 1


@dataclass(eq=False)
class _User:
    """One connection. `leased` once it asked for a lease; `slot` is its own part of the server's cache, if any.

    `keep_s`: how long the server is to stay when this is its last user.
    """

    socket: socket.socket
    said: bytes = b""
    leased: bool = False
    keep_s: float = 0.0
    slot: int | None = None


@dataclass(eq=False)
class Keeper:
    """One server and its users, in one thread around one selector."""

    listener: socket.socket
    path: Path
    state: str = "empty"
    keep_s: float = 0.0
    order: dict[str, Any] = field(default_factory=dict)
    server: "subprocess.Popen[bytes] | None" = None
    log: IO[bytes] | None = None
    port: int = 0
    users: list[_User] = field(default_factory=list)
    leaving: list[_User] = field(default_factory=list)
    free_slots: list[int] = field(default_factory=list)
    idle_since: float = field(default_factory=time.monotonic)
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    reported: bytes = b""

    def serve(self) -> None:
        """Until there is nothing to keep any more; then everything of it is gone."""
        read, write = socket.socketpair()
        read.setblocking(False)
        write.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(write.fileno())
        self.listener.setblocking(False)
        self._watch(read, lambda: self._server_ended(read))
        self._watch(self.listener, self._accept)
        while (left := self._seconds_left()) is None or left > 0 or not self._ended():
            self._work(left)
            if self.state == "loading" and self.order.get("health"):
                self._ask_health()

    def _watch(self, file: socket.socket | IO[bytes], handle: Callable[[], None]) -> None:
        self.selector.register(file, selectors.EVENT_READ, handle)

    def _leases(self) -> int:
        return sum(user.leased for user in self.users)

    def _seconds_left(self) -> float | None:
        """Until this must look again; 0 when it is time to end."""
        if self.state in ("failed", "died", "stopped"):
            return 0.0
        if self.users and (self._leases() or self.state == "empty"):
            return _HEALTH_S if self.state == "loading" and self.order.get("health") else None
        # A server that was never ready is not worth keeping.
        keep_s = self.keep_s if self.state == "ready" else 0.0
        return max(0.0, self.idle_since + keep_s - time.monotonic())

    def _ended(self) -> bool:
        """End if nobody is about to connect: whoever does holds the lock until he has said what he wants."""
        if self.state == "stopped":  # whoever asked for it holds the lock
            self._end()
            return True
        lock = os.open(self.path.parent / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            while self._work(0):
                pass
            if self._seconds_left() == 0.0:
                self._end()
                return True
        except BlockingIOError:
            self._work(_LOCK_RETRY_S)
        finally:
            os.close(lock)
        while self.leaving and self._seconds_left() != 0.0:
            self.leaving.pop().socket.close()
        return False

    def _work(self, patience_s: float | None) -> bool:
        """Do what has come up; False when nothing did."""
        found = self.selector.select(patience_s)
        for key, _ in found:
            key.data()
        return bool(found)

    def _end(self) -> None:
        """The server first, its users' connections last: who sees the end of his knows that nothing is left."""
        self.path.unlink(missing_ok=True)
        if self.server is not None:
            self.server.kill()
            self.server.wait()
        for user in (*self.users, *self.leaving):
            user.socket.close()

    def _accept(self) -> None:
        try:
            connection, _ = self.listener.accept()
        except BlockingIOError:
            return
        connection.setblocking(False)
        if not _is_ours(connection):
            connection.close()
            return
        user = _User(connection)
        self.users.append(user)
        self._watch(connection, lambda: self._hear(user))

    def _hear(self, user: _User) -> None:
        try:
            said = user.socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        user.said += said
        line, newline, _ = user.said.partition(b"\n")
        if not said or len(user.said) > MAX_LINE_BYTES:
            self._leave(user)
        elif newline and not user.leased:
            try:
                self._answer(user, json.loads(line))
            except (ValueError, KeyError, TypeError):
                self._leave(user)

    def _answer(self, user: _User, asked: dict[str, Any]) -> None:
        want = asked["want"]
        if want == "lease" and self.state in ("failed", "died"):
            self._say(user, {"type": "gone"})
        elif want == "lease":
            user.leased, user.keep_s = True, float(asked["keep_s"])
            if self.state == "empty":
                self._start(asked["order"])
            user.slot = self.free_slots.pop() if self.free_slots else None
            self._say(user, self._status() if self.state == "loading" else self._ready(user))
        else:
            if want == "stop" and not self._leases():
                self.state = "stopped"
            self._say(user, self._status())
            if self.state != "stopped":
                self._leave(user)

    def _leave(self, user: _User) -> None:
        self.selector.unregister(user.socket)
        self.users.remove(user)
        if user.leased:
            if user.slot is not None:
                # Taken again first: its cache most probably begins like the next run's prompt.
                self.free_slots.append(user.slot)
            if not self._leases():
                self.idle_since, self.keep_s = time.monotonic(), user.keep_s
                if self._seconds_left() == 0.0:
                    self.leaving.append(user)
                    return
        user.socket.close()

    def _start(self, order: dict[str, Any]) -> None:
        self.order, self.state = order, "loading"
        self.free_slots = list(range(int(order["facts"]["slots"])))[::-1]
        log_file = order.get("log_file")
        try:
            self.log = open(log_file, "a+b") if log_file else tempfile.TemporaryFile("a+b")  # noqa: SIM115
            self.server = subprocess.Popen(
                order["argv"], stdin=subprocess.PIPE, stdout=subprocess.PIPE if order.get("told") else self.log,
                stderr=self.log, cwd="/", env={**os.environ, **order["environment"]}, preexec_fn=_die_with_parent,
            )  # fmt: skip
        except OSError as error:
            self._fail(f"it cannot be started: {error.strerror}")
            return
        if order.get("told"):
            assert self.server.stdin is not None
            assert self.server.stdout is not None
            # A reader that ended already is noticed by its SIGCHLD.
            with suppress(BrokenPipeError):
                self.server.stdin.write(json.dumps(order["told"]).encode() + b"\n")
                self.server.stdin.flush()
            self._watch(self.server.stdout, self._hear_report)

    def _hear_report(self) -> None:
        """The worker's line; what runs at Python's start may have printed something before it."""
        assert self.server is not None
        assert self.server.stdout is not None
        piece = os.read(self.server.stdout.fileno(), 1 << 16)
        self.reported += piece
        *lines, self.reported = self.reported[-MAX_LINE_BYTES:].split(b"\n")
        for line in lines:
            with suppress(ValueError):
                report = json.loads(line)
                if isinstance(report, dict) and self.state == "loading":
                    if "port" in report:
                        self._loaded(int(report["port"]))
                    else:
                        self._fail(self._words() or str(report.get("error", "")))
        if not piece:
            self.selector.unregister(self.server.stdout)

    def _ask_health(self) -> None:
        """A stock llama-server tells nobody when it is ready; it can only be asked."""
        port = int(self.order["health"])
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            if connection.recv(64).split(b" ")[1:2] == [b"200"]:
                self._loaded(port)

    def _loaded(self, port: int) -> None:
        self.port, self.state = port, "ready"
        for user in list(self.users):
            if user.leased:
                self._say(user, self._ready(user))

    def _server_ended(self, woken: socket.socket) -> None:
        with suppress(BlockingIOError):
            woken.recv(4096)
        if self.server is None or self.server.poll() is None or self.state in ("failed", "died", "stopped"):
            return
        words = f"{ending(self.server.returncode)}: {self._words()}"
        if self.state == "loading":
            self._fail(self._words() or f"its process {ending(self.server.returncode)}")
        else:
            self.state = "died"
            self._tell({"type": "died", "reason": f"the embedded server {words}"})

    def _fail(self, reason: str) -> None:
        self.state = "failed"
        self._tell({"type": "failed", "reason": reason})

    def _tell(self, message: dict[str, Any]) -> None:
        for user in list(self.users):
            if user.leased:
                self._say(user, message)

    def _words(self) -> str:
        return last_words_of(self.log) if self.log else ""

    def _ready(self, user: _User) -> dict[str, Any]:
        if self.log is not None and os.fstat(self.log.fileno()).st_size > _MAX_LOG_BYTES:
            os.ftruncate(self.log.fileno(), 0)
        return {**self._status(), "type": "ready", "api_key": self.order["api_key"], "slot": user.slot}

    def _status(self) -> dict[str, Any]:
        leases = self._leases()
        return {
            "type": "status", "state": self.state, "port": self.port, "keeper": os.getpid(),
            "pid": self.server.pid if self.server else None, "users": leases,
            "left_s": None if leases else self._seconds_left(), "facts": self.order.get("facts", {}),
        }  # fmt: skip

    def _say(self, user: _User, message: dict[str, Any]) -> None:
        # Who has gone, or does not read, is found out when it is heard.
        with suppress(OSError):
            user.socket.sendall(json.dumps(message).encode() + b"\n")


def _is_ours(connection: socket.socket) -> bool:
    """Whether the other end runs as our user; the folder's mode says so too."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", peer)[1] == os.geteuid())


def _die_with_parent() -> None:
    """In the server's process, before it is one: the kernel ends it when the keeper was killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Serve in a process that is nobody's child."""
    if os.fork():
        os._exit(0)
    # Ctrl-C in a terminal is for its users, whose connections close then.
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    listener = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    Keeper(listener, Path(sys.argv[1])).serve()


if __name__ == "__main__":
    main()
