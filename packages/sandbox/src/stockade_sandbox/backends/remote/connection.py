"""A sandbox's way to its server: requests that are sent again until they are answered, over connections that break."""

import base64
import math
import secrets
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import BinaryIO, TypeVar

import anyio
import httpx2
import msgspec

from stockade_sandbox.backends.remote.calls import (
    PIECE,
    WAIT_S,
    Closed,
    Health,
    Heard,
    Opened,
    Opening,
    State,
    encoded,
    error_in,
)
from stockade_sandbox.backends.remote.folders import SNAPSHOT, spooled
from stockade_sandbox.errors import SandboxDied, SandboxFailed, UsageError
from stockade_sandbox.policy import Policy, is_loopback
from stockade_sandbox.results import NetworkRequest, Stream

ANSWER_S = 60.0
"""How long a server may be silent, beyond what it was asked to wait."""
CLOSE_S = 30.0
OPEN_S = 600.0
"""Starting a sandbox may copy a folder first."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
_TRIES = 5
"""Of a server that never was one."""
_AGAIN = (502, 503, 504)
T = TypeVar("T")
Body = Callable[[], AsyncIterator[bytes]]
"""What is sent, from its beginning each time that it is."""


class RemoteGone(SandboxDied):
    """The server answers, and has no such sandbox."""


class Connection:
    """To one sandbox of one server, by its `name` there; `opened` is what the server said of it."""

    def __init__(self, url: str, token: str, patience_s: float, on_network: Callable[[NetworkRequest], None]) -> None:
        self.url, self._token, self._patience_s = checked(url), token, patience_s
        self._on_network = on_network
        self.opened: Opened | None = None
        self.name, self._heard = "", 0
        self.dead: str | None = None
        self._client: httpx2.AsyncClient | None = None
        self._presence: httpx2.Response | None = None

    def start(self) -> None:
        """UsageError when the certificates of this machine cannot be read."""
        try:
            verify = httpx2.create_ssl_context() if self.url.startswith("https:") else False
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"the certificates of this machine cannot be read: {error}", "see SSL_CERT_FILE") from None
        self._client = httpx2.AsyncClient(
            base_url=self.url, headers={"Authorization": f"Bearer {self._token}"} if self._token else {}, verify=verify,
            trust_env=not is_loopback(httpx2.URL(self.url).host),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
        )  # fmt: skip

    async def send(self, n: str, at: int, piece: bytes, *, end: bool) -> None:
        await self.ask("POST", f"/programs/{n}/stdin", piece, params={"at": at, "end": int(end)}, wait_s=WAIT_S)

    async def state(self, n: str) -> State:
        """When it has ended."""
        while True:
            params = {"wait": int(WAIT_S), "network": self._heard}
            found = _read(State, await self.ask("GET", f"/programs/{n}", params=params, wait_s=WAIT_S))
            self._hear(found.network)
            if found.ended:
                return found

    async def events(self, n: str) -> AsyncGenerator[tuple[int, Stream, bytes]]:
        """What a program writes, until its end: where in it each piece ends, and the piece. Over as many connections as
        it takes.
        """
        at, patience = 0, _Patience(self._patience_s)
        while True:
            try:
                headers = {"Last-Event-ID": str(at)}
                async with self._stream(f"/programs/{n}/events", headers) as answer:
                    async for event in httpx2.EventSource(answer, 4 * PIECE):
                        patience.met()
                        if event.event == "end":
                            return
                        if event.event in ("stdout", "stderr"):
                            data = base64.b64decode(event.data)
                            at = int(event.id or 0)
                            yield at, "stdout" if event.event == "stdout" else "stderr", data
                patience.met()
            except (httpx2.TransportError, httpx2.SSEError, ValueError) as error:
                await self._broken(error, patience)

    @asynccontextmanager
    async def _stream(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[httpx2.Response]:
        timeout = httpx2.Timeout(ANSWER_S)
        async with self._live.stream("GET", self._at(path), headers=dict(headers), timeout=timeout) as answer:
            if answer.status_code != 200:
                raise self._error(answer.status_code, await answer.aread())
            yield answer

    @property
    def _live(self) -> httpx2.AsyncClient:
        if self.dead or self._client is None:
            raise SandboxDied(self.dead or "this sandbox is not running")
        return self._client

    def _at(self, path: str) -> str:
        return f"/v1/sandboxes/{self.name}{path}"

    async def ask(
        self, method: str, path: str, body: bytes | Body = b"", headers: Mapping[str, str] | None = None, *,
        params: Mapping[str, int] | None = None, wait_s: float = 0.0, whole: str | None = None,
    ) -> bytes:  # fmt: skip
        """The answer to one request, over as many connections as it takes."""
        patience, timeout = _Patience(self._patience_s), httpx2.Timeout(ANSWER_S + wait_s, connect=10.0)
        while True:
            try:
                answer = await self._live.request(
                    method, whole or self._at(path), content=body() if callable(body) else body,
                    headers=dict(headers or {}),
                    params=dict(params or {}), timeout=timeout,
                )  # fmt: skip
                if answer.status_code not in _AGAIN:
                    if answer.is_success:
                        return answer.content
                    raise self._error(answer.status_code, answer.content)
                patience.met()
            except httpx2.TransportError as error:
                await self._broken(error, patience)
            await self._appear()

    def _error(self, status: int, body: bytes) -> Exception:
        found = error_in(status, body, self.url)
        if status == 404 and isinstance(found, SandboxDied):
            return RemoteGone(found.message, found.hint)
        if self.opened is not None and isinstance(found, UsageError) and status == 401:
            return self.died(f"{self.url} takes the token no more")
        return found

    async def _broken(self, error: Exception, patience: "_Patience") -> None:
        """Waits a little. SandboxDied when it was tried for long enough; SandboxFailed before there was a sandbox."""
        await self._vanish()
        if self.opened is None and isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout)):
            words, hint = f"no sandbox server answers at {self.url}", "on that machine: stockade sandbox serve"
            if "CERTIFICATE" in str(error).upper():
                words, hint = f"{self.url} has a certificate that nobody vouches for here", "name it by SSL_CERT_FILE"
            raise SandboxFailed(words, hint) from error
        if self.opened is None and patience.tries >= _TRIES:
            words = f"what answers at {self.url} is no sandbox server: {type(error).__name__}"
            raise SandboxFailed(words, "https:// is one with a certificate, http:// one of this machine") from error
        if patience.is_over():
            raise self.died(f"the connection to {self.url} is lost: {type(error).__name__}") from error
        await patience.pause()

    async def open(self, policy: Policy, sent: Mapping[int, Body] | None = None) -> None:
        """`sent`: the folders of the policy that are this machine's, each as a tar."""
        name, sent = secrets.token_hex(16), sent or {}
        self.name, self._heard = name, 0
        body, headers = encoded(Opening(policy=policy, sent=tuple(sent))), {"Idempotency-Key": name}
        found = _read(Opened, await self.ask("POST", "", body, headers, whole="/v1/sandboxes", wait_s=OPEN_S))
        for number in found.wants:
            if number not in sent:
                raise SandboxFailed("the server asks for a folder that is not its own")
            await self.ask("PUT", f"/folders/{number}", sent[number], wait_s=OPEN_S)
        if found.wants:
            found = _read(Opened, await self.ask("GET", "", wait_s=OPEN_S))
        self.opened = found
        await self._appear()

    async def changes(self, number: int, since: str, out: BinaryIO) -> str | None:
        """What was written to a folder that was sent, behind the snapshot `since`, as a tar in an empty file; the name
        of what it leads to. None where nothing was.
        """
        patience, timeout = _Patience(self._patience_s), httpx2.Timeout(ANSWER_S, read=OPEN_S)
        while True:
            try:
                async with self._live.stream(
                    "GET", self._at(f"/folders/{number}/changes"), params={"since": since}, timeout=timeout
                ) as answer:
                    if answer.status_code == 204:
                        return None
                    if answer.status_code == 200:
                        out.seek(0)
                        out.truncate()
                        await spooled(answer.aiter_raw(), out)
                        return answer.headers.get(SNAPSHOT, "")
                    if answer.status_code not in _AGAIN:
                        raise self._error(answer.status_code, await answer.aread())
                patience.met()
            except httpx2.TransportError as error:
                await self._broken(error, patience)
            await self._appear()

    async def _appear(self) -> None:
        """A connection that only says that we are there: it is held, and not read."""
        if self._presence is not None or self.opened is None or self._client is None:
            return
        with suppress(httpx2.TransportError):
            request = self._client.build_request("GET", self._at("/events"), timeout=httpx2.Timeout(10.0, read=None))
            answer = await self._client.send(request, stream=True)
            if answer.status_code == 200:
                self._presence = answer
            else:
                await answer.aclose()

    async def _vanish(self) -> None:
        answer, self._presence = self._presence, None
        if answer is not None:
            with anyio.CancelScope(shield=True), suppress(httpx2.TransportError):
                await answer.aclose()

    def _hear(self, found: Heard) -> None:
        for event in found.events[max(0, self._heard - found.at) :]:
            self._on_network(event)
        self._heard = max(self._heard, found.at + len(found.events))

    async def end(self) -> None:
        """Nothing is left over there when this returns, as far as it can be reached."""
        client = self._client
        if client is None:
            return
        with anyio.move_on_after(CLOSE_S, shield=True):
            self._patience_s = 0.0
            await self._vanish()
            try:
                if self.name:
                    url, params = self._at(""), {"network": self._heard}
                    for _ in range(2):
                        with suppress(httpx2.TransportError):
                            answer = await client.delete(url, params=params, timeout=CLOSE_S)
                            if answer.is_success:
                                self._hear(_read(Closed, answer.content).network)
                            break
            finally:
                self.dead = self.dead or "the sandbox was closed"
                self._client = None
                await client.aclose()

    def died(self, message: str) -> SandboxDied:
        self.dead = self.dead or message
        return SandboxDied(self.dead)


class _Patience:
    """With a server that cannot be reached."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s, self._pause_s, self._since = limit_s, _FIRST_PAUSE_S, math.inf
        self.tries = 0

    def met(self) -> None:
        self._since, self._pause_s = math.inf, _FIRST_PAUSE_S

    def is_over(self) -> bool:
        self._since = min(self._since, anyio.current_time())
        return anyio.current_time() - self._since >= self._limit_s

    async def pause(self) -> None:
        self.tries += 1
        await anyio.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


async def probe(url: str) -> None:
    """SandboxFailed when no sandboxes are served there."""
    line = Connection(url, "", 0.0, lambda _: None)
    line.start()
    try:
        body = await line.ask("GET", "", whole="/healthz")
        if not _read(Health, body).sandboxes:
            raise SandboxFailed(f"what answers at {url} serves no sandboxes", "on that machine: stockade sandbox serve")
    finally:
        await line.end()


def _read(kind: type[T], body: bytes) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SandboxFailed("what the server says is not of ours", "is that address a sandbox server's?") from error


def checked(url: str) -> str:
    """UsageError for what is none, and where the token would travel in the clear."""
    try:
        found = httpx2.URL(url)
    except httpx2.InvalidURL:
        found = httpx2.URL("")
    if found.scheme not in ("http", "https") or not found.host or found.path not in ("", "/") or found.query:
        raise UsageError(f"{url!r} is no address of a server", "write https://HOST:8711")
    if found.userinfo:
        raise UsageError("the address of a server holds no token", "put it into a file: STOCKADE_TOKEN_FILE")
    if found.scheme == "http" and not is_loopback(found.host):
        raise UsageError(f"over http:// the token would travel to {found.host} in the clear", "write https://")
    return url.rstrip("/")
