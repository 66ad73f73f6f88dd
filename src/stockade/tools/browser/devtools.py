"""Chromium's DevTools protocol over a program's two streams: JSON messages that end with a NUL byte.

The browser may be in the hands of a page: what it says is bounded, and taken as data.
https://chromedevtools.github.io/devtools-protocol/
"""

import json
from collections.abc import Callable
from typing import Any

import anyio

from stockade.core.ports import Program

MAX_MESSAGE_BYTES = 32 << 20
_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)

Heard = Callable[[str, dict[str, Any], str], None]
"""An event: its method, its parameters and its session; must not block."""


class BrowserError(Exception):
    """A command could not be done; `gone` when there is no browser any more. The message is for the model."""

    def __init__(self, message: str, *, gone: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.gone = gone


class _Pending:
    def __init__(self) -> None:
        self.done = anyio.Event()
        self.result: dict[str, Any] = {}
        self.error: BrowserError | None = None


class DevTools:
    """Commands and their answers, several at a time. `listen` runs beside them as long as the browser lives."""

    def __init__(self, program: Program, heard: Heard) -> None:
        self._program = program
        self._heard = heard
        self._pending: dict[int, _Pending] = {}
        self._next = 0
        self._writing = anyio.Lock()

    async def call(self, method: str, session: str = "", timeout_s: float = 20.0, **parameters: Any) -> dict[str, Any]:
        """What the command gives. BrowserError when it fails, takes too long, or the browser ends."""
        self._next += 1
        number, pending = self._next, _Pending()
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        self._pending[number] = pending
        try:
            with anyio.fail_after(timeout_s):
                async with self._writing:
                    with anyio.CancelScope(shield=True):  # half a message would spoil all that come after it
                        await self._program.send(json.dumps(message).encode() + b"\0")
                await pending.done.wait()
        except TimeoutError:
            raise BrowserError(f"the browser did not answer within {timeout_s:g} s") from None
        except _GONE:
            raise BrowserError("the browser has ended", gone=True) from None
        finally:
            del self._pending[number]
        if pending.error is not None:
            raise pending.error
        return pending.result

    async def listen(self) -> None:
        """Until the browser ends; then every command that waits fails."""
        held = bytearray()
        skipping = False
        try:
            while True:
                data = await self._program.receive(1 << 20)
                *whole, rest = data.split(b"\0")
                for piece in whole:
                    held += piece
                    if not skipping:
                        self._take(bytes(held))
                    held.clear()
                    skipping = False
                held += rest
                if len(held) > MAX_MESSAGE_BYTES:
                    held.clear()
                    skipping = True
                    self._fail(BrowserError("the page is too large to be looked at"))
        except _GONE:
            self._fail(BrowserError("the browser has ended", gone=True))

    def _fail(self, error: BrowserError) -> None:
        for pending in self._pending.values():
            pending.error = error
            pending.done.set()

    def _take(self, message: bytes) -> None:
        try:
            found = json.loads(message)
        except (ValueError, RecursionError):
            return
        if not isinstance(found, dict):
            return
        pending = self._pending.get(found["id"]) if isinstance(found.get("id"), int) else None
        if pending is not None:
            if isinstance(error := found.get("error"), dict):
                pending.error = BrowserError(str(error.get("message", "it failed"))[:300])
            elif isinstance(result := found.get("result"), dict):
                pending.result = result
            pending.done.set()
        elif isinstance(method := found.get("method"), str):
            parameters, session = found.get("params"), found.get("sessionId")
            self._heard(
                method, parameters if isinstance(parameters, dict) else {}, session if isinstance(session, str) else ""
            )
