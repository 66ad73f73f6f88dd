"""JSON lines on two descriptors, for the SDK's connection: each line of a bounded length, each answered if it is none.

The SDK's own reader keeps a line of any length, and ends at one that is JSON and no object.
"""

import json
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio

from stockade.core.lines import bounded_lines
from stockade.core.text import one_line

MAX_LINE_BYTES = 32 << 20
"""Images of 12 MB in base64, and what is said beside them."""
_PIECE = 1 << 16
_UNREADABLE, _NO_REQUEST, _INTERNAL = -32700, -32600, -32603


class Wire:
    """Implements acp's Transport. `gone` is called once nothing can be written any more."""

    def __init__(self, source: int, sink: int, gone: Callable[[], None]) -> None:
        self._sink, self._gone, self._lines = sink, gone, bounded_lines(source, MAX_LINE_BYTES)
        self._waiting: deque[tuple[bytes, anyio.Event]] = deque()
        self._news = anyio.Event()
        self._lost: OSError | None = None
        os.set_blocking(sink, False)

    async def send(self, message: dict[str, Any]) -> None:
        """Returns when it is written. ConnectionError when that is not possible any more."""
        if self._lost is None:
            written = anyio.Event()
            self._waiting.append((json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n", written))
            self._news.set()
            await written.wait()
        if self._lost is not None:
            raise ConnectionError(str(self._lost))

    async def receive(self) -> dict[str, Any] | None:
        """The next message that is one; None at the end."""
        async for line in self._lines:
            if line is None:
                await self._refuse(_UNREADABLE, f"a message is longer than {MAX_LINE_BYTES} bytes")
                continue
            if not line.strip():
                continue
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                await self._refuse(_UNREADABLE, "this line is no JSON")
                continue
            if isinstance(message, dict) and isinstance(message.get("method", ""), str):
                if not isinstance(message.get("error", {}), dict):  # the SDK's connection would end at it
                    message["error"] = {"code": _INTERNAL, "message": one_line(str(message["error"]), 200)}
                return message
            await self._refuse(_NO_REQUEST, "this is no message of JSON-RPC")
        return None

    async def _refuse(self, code: int, message: str) -> None:
        with suppress(ConnectionError):
            await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}})

    async def write(self) -> None:
        """What is sent, message by message, until it is cancelled: who waits for one may be cancelled in the middle."""
        while True:
            while self._waiting:
                data, written = self._waiting.popleft()
                if self._lost is None:
                    try:
                        await self._write(memoryview(data))
                    except OSError as error:
                        self._lost = error
                        self._gone()
                written.set()
            self._news = anyio.Event()
            await self._news.wait()

    async def _write(self, data: memoryview) -> None:
        while data:
            try:
                data = data[os.write(self._sink, data[:_PIECE]) :]
            except BlockingIOError:
                await anyio.wait_writable(self._sink)

    async def close(self) -> None:
        """Implements Transport: who made it ends `write`."""
