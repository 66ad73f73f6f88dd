"""HTTP to one `stockade serve`. Only this file knows that httpx2 does it; its errors, and the server's, become ours."""

import os
import random
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio import to_thread
from pydantic import ValidationError

from stockade.core import errors
from stockade.core.errors import (
    Conflict,
    ModelUnavailable,
    NotAllowed,
    NotFound,
    RequestRefused,
    RunRemoved,
    ServerFailed,
    ServerUnavailable,
    StockadeError,
    StoreFailed,
    TooManyRequests,
    UsageError,
)
from stockade.core.text import one_line
from stockade.models.http import cause, proxy_of, words
from stockade.models.providers import is_own
from stockade.server.models import Problem
from stockade_sandbox.backends.remote.endpoint import read_token, token_path
from stockade_sandbox.errors import ReviewOutdated

CONNECT_S, ANSWER_S = 10.0, 600.0
SILENT_S = 60.0
"""Without a byte of events: the server says at least every 15 s that it is there."""
_MAX_EVENT_BYTES = 64 << 20
_TYPE = "urn:stockade:"
_BY_NAME: dict[str, type[StockadeError]] = {
    name: getattr(errors, name)
    for name in ("ChangedOnHost", "LayerLost", "ModelUnavailable", "RunRemoved", "RunTaken", "SandboxFailed",
                 "StoreFailed")
}  # fmt: skip
_BY_STATUS: dict[int, type[StockadeError]] = {
    401: NotAllowed, 403: NotAllowed, 404: NotFound, 409: Conflict, 410: RunRemoved, 412: ReviewOutdated,
    429: TooManyRequests, 502: ModelUnavailable, 503: StoreFailed,
}  # fmt: skip
_PROBLEM = "application/problem+json"
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


class Connection:
    """`ca`: PEM of those who vouch for the server; `fingerprint`: the SHA-256 of its certificate, instead. What may be
    said again is, for `patience_s`, when a server that had answered does not any more: it may be restarting.
    """

    def __init__(
        self, url: str, token: str | Path | None, ca: Path | None, fingerprint: str | None, patience_s: float
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise UsageError(f"{url!r} is no address of a server", "https://HOST:PORT")
        if parts.scheme == "http" and not is_own(url):
            raise UsageError(f"the token would travel readable to {parts.netloc}", f"https://{parts.netloc}")
        self._url, self.server, self._token = url.rstrip("/"), parts.netloc, _token(token)
        self._ca, self._pin = ca, None if fingerprint is None else fingerprint.replace(":", "").lower()
        if self._pin is not None and (ca is not None or not _FINGERPRINT.fullmatch(self._pin)):
            raise UsageError("the fingerprint is no SHA-256 in hex, or beside a `ca`", "as `stockade serve` prints it")
        self._patience_s = patience_s
        self._answered = False
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        secure = self._url.startswith("https:")
        try:
            context = await to_thread.run_sync(self._tls) if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            proxy = None if is_own(self._url) else proxy_of(self._url)
        except (OSError, ValueError) as error:
            raise ServerUnavailable(f"no server at {self.server}: {_words(error)}") from None
        self._http = await self._stack.enter_async_context(httpx2.AsyncClient(
            base_url=self._url, headers={"Authorization": f"Bearer {self._token}"}, verify=context, proxy=proxy,
            trust_env=False, timeout=httpx2.Timeout(ANSWER_S, connect=CONNECT_S),
        ))  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self._stack.aclose()

    def _tls(self) -> ssl.SSLContext:
        """Blocks. With a fingerprint: that very certificate is asked for, and nothing else is trusted."""
        if self._pin is None:
            return ssl.create_default_context(cafile=self._ca)
        parts = urlsplit(self._url)
        pem = ssl.get_server_certificate((str(parts.hostname), parts.port or 443), timeout=CONNECT_S)
        if (found := sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()) != self._pin:
            raise NotAllowed(f"the certificate of {self.server} has another fingerprint: {found}", status=0)
        context = ssl.create_default_context(cadata=pem)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.check_hostname = False
        return context

    async def ask(
        self, method: str, path: str, *, again: bool = False, json: object = None,
        params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None,
        content: AsyncIterable[bytes] | None = None,
    ) -> httpx2.Response:  # fmt: skip
        """The answer, which is no error. `again`: it may be said twice, when the connection breaks."""
        again = again or method == "GET"
        wait = _Waiting(self._patience_s)
        while True:
            request = self._http.build_request(
                method, path, json=json, params=_there(params), headers=headers, content=content
            )
            try:
                answer = await self._http.send(request)
                if not _is_down(answer):
                    self._answered = True
                    early = answer.status_code == 429 and "Retry-After" in answer.headers and content is None
                    if early and await wait.on(float(answer.headers["Retry-After"])):
                        continue
                    await _check(answer)
                    return answer
                lost = self._unavailable(f"it is away ({answer.status_code})")
            except httpx2.HTTPError as error:
                lost = self._unavailable(_words(error))
                again = again or (isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout) and content is None)
            if not (again and self._answered and await wait.on()):
                raise lost

    async def events(self, path: str, last: int, params: Mapping[str, Any]) -> AsyncGenerator[tuple[int, str, str]]:
        """Number, name and data of each behind number `last`, once and in order, until the server says that it was the
        last. A connection that breaks is made again, and goes on where it was. What has no number has that before it.
        """
        wait = _Waiting(self._patience_s)
        while True:
            headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": str(last)} if last >= 0 else {})
            try:
                async with self._http.stream(
                    "GET", path, params=_there(params), headers=headers,
                    timeout=httpx2.Timeout(SILENT_S, connect=CONNECT_S),
                ) as answer:  # fmt: skip
                    if not _is_down(answer):
                        self._answered = True
                        await _check(answer)
                        async for event in httpx2.EventSource(answer, _MAX_EVENT_BYTES):
                            if event.event == "end":
                                return
                            if event.event != "output":
                                if (number := int(event.id)) <= last:
                                    continue
                                if number != last + 1:
                                    raise ServerFailed(f"{self.server} left out event {last + 1} of {path}")
                                last = number
                            wait.over()
                            yield last, event.event, event.data
                lost = self._unavailable("the connection ended before the events did")
            except TooManyRequests as error:
                lost = ServerUnavailable(error.message, error.hint)
            except httpx2.SSEError as error:
                raise ServerFailed(f"{self.server}: {one_line(str(error), 300)}") from None
            except httpx2.HTTPError as error:
                lost = self._unavailable(_words(error))
            if not (self._answered and await wait.on()):
                raise lost

    def _unavailable(self, why: str) -> ServerUnavailable:
        if self._answered:
            return ServerUnavailable(f"the connection to {self.server} was lost: {one_line(why, 300)}")
        return ServerUnavailable(f"no server at {self.server}: {one_line(why, 300)}", "stockade serve")


class _Waiting:
    """Between two tries, longer each time, until `most_s` have gone by since the last that did something."""

    def __init__(self, most_s: float) -> None:
        self._most_s, self._next_s = most_s, 0.0
        self._until: float | None = None
        self.over()

    def over(self) -> None:
        self._next_s, self._until = 0.05, None

    async def on(self, least_s: float = 0.0) -> bool:
        """False: there is no time left."""
        now = anyio.current_time()
        self._until = self._until or now + self._most_s
        pause = max(least_s, self._next_s * random.uniform(0.5, 1))
        if now + pause > self._until:
            return False
        self._next_s = min(2.0, self._next_s * 2)
        await anyio.sleep(pause)
        return True


def _token(token: str | Path | None) -> str:
    if isinstance(token, str):
        found = token
    elif token is None and (variable := os.environ.get("STOCKADE_TOKEN")):
        found = variable
    else:
        found = read_token(token or token_path()).decode(errors="replace")
    if not (found := found.strip()).isascii() or not found.isprintable() or not found:
        raise UsageError("the token holds what no token of a server does", "as `stockade serve token new` printed it")
    return found


def _there(params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return {key: value for key, value in params.items() if value is not None} if params else None


def _is_down(answer: httpx2.Response) -> bool:
    """What a proxy says while the server behind it is away."""
    return answer.status_code in (502, 503, 504) and not answer.headers.get("Content-Type", "").startswith(_PROBLEM)


async def _check(answer: httpx2.Response) -> None:
    """The server's error, as ours."""
    if answer.is_success:
        return
    status = answer.status_code
    try:
        found = Problem.model_validate_json(await answer.aread())
    except ValidationError:
        raise ServerFailed(f"{answer.request.url.netloc.decode()} answered {status}, and no server of ours") from None
    message, hint = one_line(found.detail, 1000), one_line(found.hint, 1000) if found.hint else None
    kind = _BY_NAME.get(found.type.removeprefix(_TYPE)) or _BY_STATUS.get(status)
    if kind is None:
        kind = ServerFailed if status >= 500 else RequestRefused
    raise kind(message, hint, status) if issubclass(kind, RequestRefused) else kind(message, hint)


def _words(error: BaseException) -> str:
    if isinstance(first := cause(error), ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {first.verify_message} (`ca` or `fingerprint` say which is)"
    return words(error)
