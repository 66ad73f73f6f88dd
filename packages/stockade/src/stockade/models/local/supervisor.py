"""The supervisor of one llama.cpp server: `python -P -m stockade.models.local.supervisor SOCKET NAME`, the listening
socket as its stdin. It starts the server, lends it to whoever connects, and ends it when the last user has been gone
for the keep time.

A connection is a lease: the kernel closes it however its user ends, so nothing has to be counted down in order. The
address and the key of the server travel over these connections only, never through a file.

A user's first line is `{"want": "lease", "keep_s": S, "spec": {...}}`; the first user's spec says what to start
(launch_spec.py). Answers are JSON lines: `status` (state `loading`), `ready`, `failed`, `died`, and `gone` where
another server should be asked for. Others ask for `status` and are answered once; `stop` ends a server that nobody
uses; one that is ending says nothing to them. The end is final: first the server, then the socket's name, while it
still listens, then the connections. So who finds no name, or the end of his connection, knows that nothing is left,
and starts another server (server_lease.py).
"""

import asyncio
import ctypes
import json
import os
import re
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from stockade.core.text import one_line

MAX_LINE_BYTES = 1 << 20
_MAX_LOG_BYTES = 8 << 20
_TAIL_BYTES = 64 * 1024
_FIRST_USER_S = 5.0
_HEALTH_S = 0.1
_PR_SET_PDEATHSIG = 1
_ENDS = ("failed", "died", "stopped")
# `0.00.005.845 E ` at the head of a line of llama.cpp's log: time and level.
_LOG_HEAD = re.compile(r"^(?:\d+\.)+\d+ (?P<level>[A-Z]) ")


@dataclass(eq=False)
class _Lease:
    """One user. `keep_s`: how long the server is to stay when this is the last one; `slot`: its own part of the
    server's cache, if any.
    """

    writer: asyncio.StreamWriter
    keep_s: float
    slot: int | None = None


class ServerSupervisor:
    """One server and its users. `path` is its socket."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state = "empty"
        self._spec: dict[str, Any] = {}
        self._server: asyncio.subprocess.Process | None = None
        self._log: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - as long as this process
        self._port = 0
        self._leases: list[_Lease] = []
        self._free_slots: list[int] = []
        self._keep_s, self._idle_since = _FIRST_USER_S, time.monotonic()
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._open: list[asyncio.StreamWriter] = []
        """Held to the end: since Python 3.13 a writer that nobody has closes its connection."""

    async def run(self, listener: socket.socket) -> None:
        """Until there is nothing to keep any more, and the server is gone; the process has to end then."""
        await asyncio.start_unix_server(self._serve, sock=listener, limit=MAX_LINE_BYTES)
        while (left := self._seconds_left()) != 0.0:
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        self._stop()
        if self._server is not None and self._server.returncode is None:
            with suppress(ProcessLookupError):
                self._server.kill()
            await self._server.wait()
        self._path.unlink(missing_ok=True)

    def _seconds_left(self) -> float | None:
        """Until it is time to end; None while somebody uses it."""
        if self._state in _ENDS:
            return 0.0
        if self._leases:
            return None
        # A server that was never ready is not worth keeping.
        keep_s = 0.0 if self._state == "loading" else self._keep_s
        return max(0.0, self._idle_since + keep_s - time.monotonic())

    def _stop(self) -> None:
        """Final, like every end."""
        self._state = self._state if self._state in _ENDS else "stopped"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, which stays open until the end where that has come."""
        with suppress(ValueError, KeyError, TypeError, RecursionError, OSError):  # who talks nonsense is left
            request = json.loads(await reader.readline())
            if request["want"] == "lease" and self._state in _ENDS:
                _say(writer, {"type": "gone"})
            elif request["want"] == "lease":
                await self._lend(request, reader, writer)
            elif self._seconds_left() != 0.0:
                if request["want"] == "stop" and not self._leases:
                    self._stop()
                _say(writer, self._status())
        if self._seconds_left() == 0.0:
            self._stop()
            self._open.append(writer)
        else:
            writer.close()
        self._changed.set()

    async def _lend(self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lease = _Lease(writer, float(request["keep_s"]))
        self._leases.append(lease)
        try:
            if self._state == "empty":
                await self._start(request["spec"])
            lease.slot = self._free_slots.pop() if self._free_slots else None
            if self._state in ("loading", "ready"):
                _say(writer, self._status() if self._state == "loading" else self._ready(lease))
            while await reader.read(1 << 16):
                pass
        finally:
            self._leases.remove(lease)
            if lease.slot is not None:
                # Taken again first: its cache most probably begins like the next run's prompt.
                self._free_slots.append(lease.slot)
            self._idle_since, self._keep_s = time.monotonic(), lease.keep_s

    async def _start(self, spec: dict[str, Any]) -> None:
        self._spec, self._state = spec, "loading"
        self._free_slots = list(range(int(spec["facts"]["slots"])))[::-1]
        settings = spec.get("told")
        try:
            self._server = await asyncio.create_subprocess_exec(
                *spec["argv"], stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE if settings else self._log,
                stderr=self._log, cwd="/", env={**os.environ, **spec["environment"]}, limit=MAX_LINE_BYTES,
                preexec_fn=_die_with_parent,
            )  # fmt: skip
        except OSError as error:
            self._end("failed", f"it cannot be started: {error.strerror}")
            return
        if settings:
            assert self._server.stdin is not None
            self._server.stdin.write(json.dumps(settings).encode() + b"\n")
        told_or_asked = self._hear_worker() if settings else self._ask_health(int(spec["health"]))
        self._tasks = [asyncio.create_task(work) for work in (told_or_asked, self._watch(self._server))]

    async def _hear_worker(self) -> None:
        """The worker's line; what runs at Python's start may have printed something before it."""
        assert self._server is not None
        assert self._server.stdout is not None
        while self._state == "loading":
            with suppress(ValueError):
                line = await self._server.stdout.readline()
                if not line:
                    return
                report = json.loads(line)
                if isinstance(report, dict) and "port" in report:
                    self._loaded(int(report["port"]))
                elif isinstance(report, dict):
                    self._end("failed", last_error(self._log) or str(report.get("error", "")))

    async def _ask_health(self, port: int) -> None:
        """A stock llama-server tells nobody when it is ready; it can only be asked."""
        while self._state == "loading":
            await asyncio.sleep(_HEALTH_S)
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(1):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    try:
                        writer.write(b"GET /health HTTP/1.0\r\n\r\n")
                        if (await reader.read(64)).split(b" ")[1:2] == [b"200"]:
                            self._loaded(port)
                    finally:
                        writer.close()

    async def _watch(self, server: asyncio.subprocess.Process) -> None:
        status = await server.wait()
        reason, said = exit_reason(status), last_error(self._log)
        if self._state == "loading":  # what was ended from outside has not said why
            self._end("failed", said if said and status >= 0 else f"its process {reason}{said and f': {said}'}")
        elif self._state == "ready":
            self._end("died", f"the embedded server {reason}: {last_error(self._log)}")

    def _loaded(self, port: int) -> None:
        self._port, self._state = port, "ready"
        for lease in self._leases:
            _say(lease.writer, self._ready(lease))

    def _end(self, state: str, reason: str) -> None:
        self._state = state
        for lease in self._leases:
            _say(lease.writer, {"type": state, "reason": reason})
        self._changed.set()

    def _ready(self, lease: _Lease) -> dict[str, Any]:
        if os.fstat(self._log.fileno()).st_size > _MAX_LOG_BYTES:
            os.ftruncate(self._log.fileno(), 0)
        return {**self._status(), "type": "ready", "api_key": self._spec["api_key"], "slot": lease.slot}

    def _status(self) -> dict[str, Any]:
        return {
            "type": "status", "state": self._state, "port": self._port, "keeper": os.getpid(),
            "pid": self._server.pid if self._server else None, "users": len(self._leases),
            "left_s": self._seconds_left(), "facts": self._spec.get("facts", {}),
        }  # fmt: skip


def _say(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")


def last_error(log: IO[bytes]) -> str:
    """Of llama.cpp's log the line that says why: the first error of its end, for the later ones only say that there was
    one.
    """
    size = os.fstat(log.fileno()).st_size
    tail = os.pread(log.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode(errors="replace")
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    errors = [line for line in lines if (head := _LOG_HEAD.match(line)) and head["level"] == "E"]
    line = (errors[:1] or lines[-1:] or [""])[0]
    return one_line(_LOG_HEAD.sub("", line), 300)


def exit_reason(status: int) -> str:
    """A process's return code in words: `ended with status 1`, `was ended by SIGKILL`."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
        return f"was ended by {name}{' (it was built for another processor)' if name == 'SIGILL' else ''}"
    except ValueError:
        return f"was ended by signal {-status}"


def _die_with_parent() -> None:
    """In the server's process, before it is one: the kernel ends it when the supervisor was killed."""
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
    asyncio.run(ServerSupervisor(Path(sys.argv[1])).run(listener))


if __name__ == "__main__":
    main()
