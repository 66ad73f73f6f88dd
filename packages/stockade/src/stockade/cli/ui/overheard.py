"""`runs logs -f` of a run in another terminal: what its commands write, while they run. Nothing of it is on disk.

A socket in the run's folder, its user's alone: for each event its time alone, for what the command writes behind that
event its time, the stream and whole lines without secrets. Who does not keep up is told how much passed by.
"""

import os
import socket
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stockade.cli.ui.drawing import Lines
from stockade.core.secrets import Redactor
from stockade.paths import run_dir
from stockade.run_lock import LIVE
from stockade_sandbox.keeping import by_descriptor
from stockade_sandbox.results import Stream

MAX_FOLLOWERS = 16
_KEPT_BYTES, _MESSAGE_BYTES = 64 << 10, 32 << 10
_HEAD = struct.Struct("!d?")
"""When the event before it was (UNIX s), and whether it is stderr."""
_PATIENCE_S = 1.0


def _socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


@contextmanager
def _path(folder: Path) -> Iterator[str]:
    """One that is short, however deep the folder lies."""
    place = by_descriptor(folder)
    try:
        yield f"/proc/self/fd/{place}/{LIVE}"
    finally:
        os.close(place)


@dataclass(slots=True)
class _Follower:
    socket: socket.socket
    missed: int = 0

    def send(self, message: bytes) -> None:
        """OSError when nobody is there any more."""
        try:
            if self.missed:
                note = b"[... %d bytes came too fast ...]\n" % self.missed
                self.socket.send(message[: _HEAD.size] + note)
                self.missed = 0
            self.socket.send(message)
        except BlockingIOError:
            self.missed += len(message) - _HEAD.size


class Live:
    """The run's side, in its event loop. The last 64 KiB of the command that runs are kept for who comes."""

    def __init__(self, run_id: str, redactor: Redactor) -> None:
        self._listening, self._at = _socket(), 0.0
        self._made = {stream: partial(Lines, redactor, partial(self._lines, stream)) for stream in ("stdout", "stderr")}
        self._open: dict[Stream, Lines] = {}
        self._followers: list[_Follower] = []
        self._kept, self._kept_bytes = deque[bytes](), 0
        folder = run_dir(run_id)
        (folder / LIVE).unlink(missing_ok=True)
        with _path(folder) as path:
            self._listening.bind(path)
            os.chmod(path, 0o600)
        self._listening.listen(MAX_FOLLOWERS)
        self._listening.setblocking(False)

    def event(self, at: float) -> None:
        """Something is on record: what was written belongs to what came before."""
        for one in self._open.values():
            one.end()
        self._open.clear()
        self._at, self._kept_bytes = at, 0
        self._kept.clear()
        self._send(_HEAD.pack(at, False))

    def output(self, stream: Stream, data: bytes) -> None:
        """What the command that runs writes."""
        if stream not in self._open:
            self._open[stream] = self._made[stream]("")
        self._open[stream].add(data)

    def _lines(self, stream: Stream, lines: list[str], _style: str) -> None:
        data = "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")
        for first in range(0, len(data), _MESSAGE_BYTES):
            message = _HEAD.pack(self._at, stream == "stderr") + data[first : first + _MESSAGE_BYTES]
            self._kept.append(message)
            self._kept_bytes += len(message)
            while self._kept_bytes > _KEPT_BYTES:
                self._kept_bytes -= len(self._kept.popleft())
            self._send(message)

    def _send(self, message: bytes) -> None:
        for one in list(self._followers):
            try:
                one.send(message)
            except OSError:
                one.socket.close()
                self._followers.remove(one)

    def tick(self) -> None:
        """Takes who has come; called a few times a second."""
        with suppress(OSError):  # nobody, or somebody who has left again
            while True:
                there, _ = self._listening.accept()
                if len(self._followers) >= MAX_FOLLOWERS:
                    there.close()
                    continue
                there.setblocking(False)
                one = _Follower(there)
                for message in (_HEAD.pack(self._at, False), *self._kept):
                    one.send(message)
                self._followers.append(one)

    def close(self) -> None:
        for one in (self._listening, *(follower.socket for follower in self._followers)):
            one.close()


class Following:
    """The other side. Where there is no such run, nothing comes."""

    def __init__(self, run_id: str) -> None:
        self._socket: socket.socket | None = _socket()
        self._waiting: tuple[float, Stream, bytes] | None = None
        try:
            with _path(run_dir(run_id)) as path:
                self._socket.connect(path)
            self._socket.settimeout(_PATIENCE_S)
        except OSError:
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def before(self, at: float) -> Iterator[tuple[Stream, bytes]]:
        """What was written before an event that is on record, as far as nothing of it was taken yet."""
        while (message := self._next(_PATIENCE_S)) is not None and message[0] < at:
            self._waiting = None
            if message[2]:
                yield message[1:]

    def now(self, at: float) -> Iterator[tuple[Stream, bytes]]:
        """What has come behind the last event, which was then."""
        while (message := self._next(0)) is not None and message[0] <= at:
            self._waiting = None
            if message[2] and message[0] == at:
                yield message[1:]

    def _next(self, patience_s: float) -> tuple[float, Stream, bytes] | None:
        """It stays until it is taken."""
        if self._waiting is None and self._socket is not None:
            self._socket.settimeout(patience_s)
            try:
                data = self._socket.recv(_HEAD.size + _MESSAGE_BYTES)
            except (TimeoutError, BlockingIOError):
                return None
            except OSError:
                data = b""
            if len(data) < _HEAD.size:
                self.close()
                return None
            at, is_stderr = _HEAD.unpack_from(data)
            self._waiting = at, "stderr" if is_stderr else "stdout", data[_HEAD.size :]
        return self._waiting
