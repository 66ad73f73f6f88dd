"""Chromium as a program inside, and its DevTools protocol over that program's two streams: JSON messages, ended by NUL.

The browser may be in the hands of a page: what it says is bounded, and taken as data.
https://chromedevtools.github.io/devtools-protocol/
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import anyio

from stockade.core.errors import ActionFailed, UsageError
from stockade.core.ports import Program, Sandbox

PLACES = ("/usr/lib/chromium/chromium", "/usr/bin/chromium-browser", "/opt/google/chrome/chrome", "/usr/bin/chromium")
"""Debian's own binary first: its wrapper wants /etc, which a sandbox does not have."""
_FIND = 'for place in "$@"; do if [ -x "$place" ]; then echo "$place"; exit 0; fi; done; exit 1'
_START = (
    'place=$(mktemp -d) && exec 3<&0 4>&1 </dev/null 1>&2 && HOME=$place exec "$@" --user-data-dir="$place"'
    ' --proxy-server="${http_proxy:-http://127.0.0.1:9}" about:blank'
)
"""It reads commands from 3 and writes to 4; what it prints goes to standard error. The proxy is the only way
out; loopback, which is the sandbox's own, goes past it."""
_NOT_WANTED = ("IsolateOrigins", "site-per-process", "Translate", "MediaRouter", "OptimizationHints", "HttpsUpgrades",
               "AutofillServerCommunication", "CertificateTransparencyComponentUpdater", "NetworkTimeServiceQuerying",
               "PaintHolding")  # fmt: skip
_OWN_ERRANDS = ("clients2.google.com", "update.googleapis.com", "optimizationguide-pa.googleapis.com",
                "content-autofill.googleapis.com")  # fmt: skip
"""What Chromium asks for by itself. Past the proxy there is no network, so that it does not get it, nor is it noted."""
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # the sandbox is ours: Chromium's own wants namespaces, which are not to be had inside
    "--disable-gpu",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-service-autorun",
    "--disable-back-forward-cache",
    "--disable-background-networking",
    "--disable-backgrounding-occluded-windows",
    "--disable-breakpad",
    "--disable-component-extensions-with-background-pages",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-field-trial-config",
    "--disable-quic",
    "--disable-renderer-backgrounding",
    "--disable-search-engine-choice-screen",
    "--disable-sync",
    "--deny-permission-prompts",
    "--metrics-recording-only",
    "--mute-audio",
    "--password-store=basic",
    "--renderer-process-limit=2",
    "--disable-site-isolation-trials",  # frames of other sites are in the page's own tree; no login is to be kept apart
    f"--disable-features={','.join(_NOT_WANTED)}",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--window-size=1280,1000",
    f"--proxy-bypass-list={';'.join(_OWN_ERRANDS)}",
)
MAX_MESSAGE_BYTES = 32 << 20
_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
OnEvent = Callable[[str, dict[str, Any], str], None]
"""An event: its method, its parameters and its session; must not block."""


def chromium_argv(binary: str) -> list[str]:
    """The program that speaks DevTools on its standard input and output."""
    return ["sh", "-c", _START, "sh", binary, *FLAGS]


async def find_chromium(sandbox: Sandbox, places: Sequence[str] = PLACES) -> str:
    """The path of a Chromium inside. UsageError when there is none."""
    found = await sandbox.exec(["sh", "-c", _FIND, "sh", *places], timeout_s=20)
    path = found.stdout.decode(errors="replace").strip()
    if found.exit_code or not path:
        raise UsageError("the browser needs Chromium, which is not in the sandbox", "apt-get install chromium")
    return path


class BrowserError(ActionFailed):
    """A command could not be done; `gone` when there is no browser any more."""

    def __init__(self, message: str, *, gone: bool = False) -> None:
        super().__init__(message)
        self.gone = gone


class _Pending:
    def __init__(self) -> None:
        self.done = anyio.Event()
        self.result: dict[str, Any] = {}
        self.error: BrowserError | None = None


class DevTools:
    """Commands and their answers, several at a time. `listen` runs beside them as long as the browser lives."""

    def __init__(self, program: Program, on_event: OnEvent) -> None:
        self._program = program
        self._on_event = on_event
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
            self._on_event(
                method, parameters if isinstance(parameters, dict) else {}, session if isinstance(session, str) else ""
            )
