"""HTTP to one model server: a question in one piece, an answer as it comes. Only this file knows that httpx2 does it.

Its transport and not its client, so that nothing happens by itself: redirects are answers like any other (a key is sent
to nobody but who was named), and no cookie is kept.
"""

import base64
import functools
import os
import socket
import ssl
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Self
from urllib.parse import unquote, urlsplit

import anyio
import httpx2

from stockade.core.errors import ModelFailed, ModelOverloaded, ModelUnavailable
from stockade.core.text import one_line
from stockade.models.providers import is_own

KEEP_S = 4.0
"""How long a connection is kept for the next question: uvicorn and node close theirs after five seconds of silence, and
what lies between may forget one without a word to either end."""
MAX_EVENT_BYTES = 16 * 1024**2


@functools.cache
def tls_context() -> ssl.SSLContext:
    """The one of a process, as building it takes 20 ms. ModelUnavailable when the certificates cannot be read."""
    try:
        return httpx2.create_ssl_context()
    except OSError as error:
        raise ModelUnavailable(
            f"the certificates of this machine cannot be read: {error.strerror}", "check SSL_CERT_FILE"
        ) from error


class Response:
    """`headers` are found in any case; `server` is for messages. Reading raises ModelOverloaded when it breaks off."""

    def __init__(self, answer: httpx2.Response, server: str) -> None:
        self.status = answer.status_code
        self.headers: Mapping[str, str] = answer.headers
        self._answer, self._server = answer, server

    async def whole(self, limit: int) -> bytes:
        """All of it, or its first `limit` bytes and a little."""
        body = bytearray()
        with self._lost():
            async with aclosing(self._answer.aiter_bytes()) as pieces:
                async for piece in pieces:
                    body += piece
                    if len(body) > limit:
                        break
        return bytes(body)

    async def events(self, after_piece: Callable[[], None]) -> AsyncGenerator[str]:
        """The data of each server-sent event that has some; a missing last blank line still gives the event.

        `after_piece` is called when all events of what arrived at once were taken. ModelUnavailable above
        MAX_EVENT_BYTES.
        """
        answer = self._answer
        assert isinstance(answer.stream, httpx2.AsyncByteStream)
        answer.headers["content-type"] = "text/event-stream"  # where the server leaves it out
        answer.encoding = "utf-8-sig"  # with or without a byte order mark
        answer.stream = _Watched(answer.stream, after_piece)
        with self._lost():
            async for event in httpx2.EventSource(answer, MAX_EVENT_BYTES):
                if event.data:
                    yield event.data

    @contextmanager
    def _lost(self) -> Iterator[None]:
        try:
            yield
        except httpx2.SSEError as error:
            raise ModelUnavailable(f"{self._server} sent an event of more than {MAX_EVENT_BYTES} bytes") from error
        except httpx2.HTTPError as error:
            raise _lost(self._server, _words(error)) from error


class _Watched(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, after_piece: Callable[[], None]) -> None:
        self._stream, self._after_piece = stream, after_piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece
            self._after_piece()
        yield b"\n\n"

    async def aclose(self) -> None:
        await self._stream.aclose()


class Client:
    """`url` names the server, with `http` or `https`; the paths asked for are whole addresses on it.

    ModelUnavailable after `connect_s` seconds without a connection; where the server has `answered` before, it may be
    restarting: ModelOverloaded, as after `answer_s` without the beginning of an answer. Entering reads the certificates
    and the proxies of the environment. A name and password in `url` are the key.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        connect_s: float = 10.0,
        answer_s: float = 60.0,
        keep_s: float = KEEP_S,
    ) -> None:
        self._url, self._connect_s, self._answer_s, self._keep_s = url, connect_s, answer_s, keep_s
        self.server = urlsplit(url).netloc.rpartition("@")[2]
        self.answered = False
        sent = {"Accept-Encoding": "identity", **headers}
        if user := (parts := urlsplit(url)).username:
            pair = f"{unquote(user)}:{unquote(parts.password or '')}"
            sent["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        pairs = [(name.encode(), value.encode("latin-1", errors="replace")) for name, value in sent.items()]
        self._headers = httpx2.Headers(pairs)  # made ready once: a run asks one server in every turn

    async def __aenter__(self) -> Self:
        secure = self._url.startswith("https:")
        try:
            self._proxy = None if is_own(self._url) else proxy_of(self._url)
        except ValueError as error:
            raise self._not_reached(str(error)) from None
        self._transport = httpx2.AsyncHTTPTransport(
            verify=tls_context() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=False,
            limits=httpx2.Limits(keepalive_expiry=self._keep_s),
            proxy=self._proxy,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self._transport.aclose()

    @asynccontextmanager
    async def asked(self, method: str, url: str, body: bytes | None = None) -> AsyncIterator[Response]:
        """The answer to one question, inside. A connection whose answer was not read to its end is closed after it."""
        timeout = {"timeout": {"connect": self._connect_s}}
        try:
            request = httpx2.Request(method, _address(url), headers=self._headers, content=body, extensions=timeout)
            with anyio.fail_after(self._answer_s):
                answer = await self._transport.handle_async_request(request)
        except TimeoutError:
            raise _lost(self.server, f"nothing was said for {self._answer_s:g} s") from None
        except httpx2.LocalProtocolError:
            # Its own words hold the key.
            raise self._not_reached("a key or header holds what cannot be sent") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            raise self._failed(error) from error
        answer.request = request
        try:
            yield Response(answer, self.server)
        finally:
            await answer.aclose()  # which httpcore2 shields from cancelling

    def _failed(self, error: Exception) -> ModelFailed:
        proxy = f"the proxy {self._proxy.url.netloc.decode()}" if self._proxy else ""
        if isinstance(error, httpx2.ProxyError):
            return self._not_reached(f"{proxy} answered {error}")
        if isinstance(error, httpx2.ConnectTimeout):
            return self._not_reached(f"no connection within {self._connect_s:g} s")
        if isinstance(error, httpx2.ConnectError):
            through = proxy and not isinstance(_cause(error), ssl.SSLError)
            return self._not_reached(f"{proxy}: {_words(error)}" if through else _words(error))
        if isinstance(error, httpx2.InvalidURL | UnicodeError):
            return self._not_reached(f"{urlsplit(self._url).hostname!r} cannot be asked: {error}")
        return _lost(self.server, _words(error))

    def _not_reached(self, why: str) -> ModelFailed:
        if self.answered:
            return _lost(self.server, why)
        hint = "start it, or choose another --model"
        return ModelUnavailable(f"no model server at {self.server}: {one_line(why, 300)}", hint)


@functools.lru_cache(maxsize=16)
def _address(url: str) -> httpx2.URL:
    """Read once: a run asks one address in every turn."""
    return httpx2.URL(url)


def proxy_of(url: str) -> httpx2.Proxy | None:
    """What the environment says of this address: http_proxy, https_proxy, all_proxy and no_proxy, in either case.

    ValueError for one of a kind that we do not speak.
    """
    parts, proxies = urlsplit(url), urllib.request.getproxies()
    text = proxies.get(parts.scheme) or proxies.get("all")
    if not text or urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxy = urlsplit(text if "://" in text else f"http://{text}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise ValueError(f"the proxy {proxy.scheme}://{proxy.netloc.rpartition('@')[2]} is none of HTTP")
    return httpx2.Proxy(proxy.geturl())


def _lost(server: str, why: str) -> ModelOverloaded:
    return ModelOverloaded(f"the connection to {server} was lost: {one_line(why, 300)}")


def _cause(error: BaseException) -> BaseException:
    """What it began with: the library, and anyio under it, put that behind errors of their own."""
    if isinstance(error, BaseExceptionGroup):
        return _cause(error.exceptions[0])
    inner = error.__cause__ or error.__context__
    return _cause(inner) if inner else error


def _words(error: BaseException) -> str:
    cause = _cause(error)
    if isinstance(cause, socket.gaierror):
        return cause.strerror or str(cause)
    if isinstance(cause, OSError) and cause.errno and not isinstance(cause, ssl.SSLError):
        return os.strerror(cause.errno)
    return str(cause) or "it was closed"
