"""A model behind an OpenAI-compatible HTTP server."""

import ipaddress
import json
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import anyio
import httpx2

from stockade.core.data import Data
from stockade.core.errors import ModelFailed, ModelOverloaded, ModelUnavailable, UsageError
from stockade.core.messages import ModelAnswer, ModelInfo, ModelRequest
from stockade.core.ports import OnText
from stockade.models.collect import AnswerBuilder
from stockade.models.http_errors import from_status, from_stream, from_transport
from stockade.models.payload import Dialect, PayloadCache
from stockade.models.sse import SseParser
from stockade.models.tls import tls_context

MAX_ANSWER_CHARS = 10 * 1024**2
_DONE = "[DONE]"
_HEADERS = {
    "Accept": "text/event-stream, application/json",
    "Content-Type": "application/json",
    "User-Agent": "stockade",
}
_DRAIN_S = 0.5
_MAX_ERROR_BYTES = 64 * 1024
_MAX_PROBE_BYTES = 4 * 1024**2


class HttpTimes(Data):
    """Seconds. `first_byte_s`, until the first event, is long: a local model reads its whole prompt before it."""

    connect_s: float = 10.0
    first_byte_s: float = 900.0
    idle_s: float = 120.0
    probe_s: float = 5.0
    retries: int = 4
    backoff_s: float = 0.5
    backoff_max_s: float = 30.0


class OpenAIModel:
    """Implements core.ports.Model.

    `base_url` includes the version path (`http://127.0.0.1:8080/v1`). `slot` pins llama.cpp's KV cache.
    `died` is asked before each retry: a sentence from it means that the server of ours is gone for good.
    `sleep` and `jitter` (0 to 1) are there for tests.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        *,
        provider: str = "openai",
        dialect: Dialect | None = None,
        slot: int | None = None,
        times: HttpTimes | None = None,
        died: Callable[[], str | None] = lambda: None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._url = _checked_url(base_url)
        self._model = model
        self._key = api_key
        self._dialect = dialect or Dialect()
        self._slot = slot
        self._times = times or HttpTimes()
        self._died, self._sleep, self._jitter = died, sleep, jitter
        self._payload = PayloadCache()
        self._client: httpx2.AsyncClient | None = None
        self._asked = httpx2.URL(f"{self._url}/chat/completions")
        self._headers = httpx2.Headers({**_HEADERS, **_authorization(api_key)})
        self._extensions = {"timeout": _timeout(self._times).as_dict()}
        self._answered = False
        self._local = is_loopback(self._url)
        self._info = ModelInfo(name=model, provider=provider, local=self._local)

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def _server(self) -> str:
        return urlsplit(self._url).netloc.rpartition("@")[2]

    async def __aenter__(self) -> Self:
        self._client = new_client(self._url, self._key, _timeout(self._times))
        try:
            await self._learn()
        except BaseException:
            await self._client.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            with anyio.CancelScope(shield=True):
                await self._client.aclose()
            self._client = None

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """See core.ports.Model. A retry begins the answer again, so `on_text` may hear its beginning twice."""
        body = self._payload.body(request, self._model, self._dialect, self._slot)
        for attempt in range(self._times.retries + 1):
            try:
                return await self._ask_once(body, on_text)
            except ModelOverloaded as error:
                if reason := self._died():
                    raise ModelUnavailable(reason) from error
                if attempt == self._times.retries:
                    raise
                await self._sleep(self._pause(attempt, error.retry_after_s))
        raise AssertionError("the loop above returns or raises")

    def _pause(self, attempt: int, retry_after_s: float | None) -> float:
        """Exponential with up to half of it as jitter; the server's word counts where it is more, up to the limit."""
        pause = self._times.backoff_s * 2.0**attempt * (1 + self._jitter() / 2)
        return min(max(pause, retry_after_s or 0.0), self._times.backoff_max_s)

    async def _ask_once(self, body: bytes, on_text: OnText | None) -> ModelAnswer:
        assert self._client is not None, "enter the model first"
        started = time.monotonic()
        # Made here and not by the client, which would parse and merge the same address and headers at each turn.
        request = httpx2.Request("POST", self._asked, headers=self._headers, content=body, extensions=self._extensions)
        try:
            response = await self._client.send(request, stream=True)
            async with aclosing(response):
                self._answered = True
                if response.status_code != 200:
                    said = await _read_some(response, _MAX_ERROR_BYTES)
                    raise from_status(response.status_code, response.headers, said, self._server, self._model)
                return await self._read(response, on_text, started)
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            raise from_transport(error, self._server, self._answered) from error

    async def _read(self, response: httpx2.Response, on_text: OnText | None, started: float) -> ModelAnswer:
        builder = AnswerBuilder()
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        done = False
        try:
            async with aclosing(self._events(response, kind)) as events:
                async for data in events:
                    if data == _DONE:
                        done = True
                        continue
                    text = self._add(builder, data)
                    if text and on_text:
                        on_text(text)
        except (httpx2.TransportError, ModelOverloaded):
            # Lost after its last word, the answer is whole all the same.
            if builder.finish_reason is None:
                raise
        if builder.finish_reason is None and not (done and not builder.empty):
            raise ModelOverloaded(f"the answer of {self._server} was cut before its end")
        return builder.answer(time.monotonic() - started)

    def _add(self, builder: AnswerBuilder, data: str) -> str:
        piece = self._decoded(data)
        if error := piece.get("error"):
            raise from_stream(error, self._server)
        text = builder.add(piece)
        if builder.size > MAX_ANSWER_CHARS:
            raise ModelUnavailable(
                f"{self._server} sent an answer of more than {MAX_ANSWER_CHARS} characters; it was stopped",
                "bound it with --max-tokens",
            )
        return text

    async def _events(self, response: httpx2.Response, kind: str) -> AsyncGenerator[str]:
        """The data of each event; [DONE] is the last."""
        if kind == "application/json":
            # The server ignores `stream`: the whole answer is one event.
            yield (await _read_some(response, MAX_ANSWER_CHARS)).decode(errors="replace")
            return
        if kind not in ("text/event-stream", ""):
            raise ModelUnavailable(
                f"{self._server} answered with {kind[:60]}: not an OpenAI-compatible API", "check the address"
            )
        parser = SseParser()
        chunks = response.aiter_bytes()
        patience_s = self._times.first_byte_s
        while True:
            try:
                with anyio.fail_after(patience_s):
                    chunk = await anext(chunks, None)
                events = parser.close() if chunk is None else parser.feed(chunk)
            except TimeoutError as error:
                raise ModelOverloaded(f"{self._server} said nothing for {patience_s:g} s") from error
            except ValueError as error:
                raise ModelUnavailable(f"{self._server} sent {error}") from error
            for event in events:
                if event.strip() == _DONE:
                    yield _DONE
                    # Read to the end, so that the connection serves the next question; a server may not close.
                    with anyio.move_on_after(_DRAIN_S):
                        await anext(chunks, None)
                    return
                yield event
                patience_s = self._times.idle_s
            if chunk is None:
                return

    def _decoded(self, data: str) -> dict[str, Any]:
        try:
            piece = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ModelOverloaded(f"{self._server} sent a malformed stream: {data[:80]!r}") from error
        if not isinstance(piece, dict):
            raise ModelOverloaded(f"{self._server} sent a malformed stream: {data[:80]!r}")
        return piece

    async def _learn(self) -> None:
        """What the server tells before it is asked. Servers without these addresses are fine; no server is not."""
        listed = _items(await self._get(f"{self._url}/models"))
        mine = next((item for item in listed if item.get("id") == self._model), listed[0] if len(listed) == 1 else {})
        meta = mine.get("meta")
        window = _positive(mine.get("max_model_len")) or _positive(mine.get("context_window"))
        if isinstance(meta, dict):
            window = window or _positive(meta.get("n_ctx")) or _positive(meta.get("n_ctx_train"))
        if self._dialect.llama_cpp:
            props = await self._get(f"{self._url.removesuffix('/v1')}/props")
            settings = props.get("default_generation_settings")
            window = (_positive(settings.get("n_ctx")) if isinstance(settings, dict) else None) or window
        self._info = self._info.model_copy(update={"context_window": window})

    async def _get(self, url: str) -> dict[str, Any]:
        """The JSON object at `url`, {} where the server has none. Raises where asking a model would be in vain too."""
        assert self._client is not None
        try:
            with anyio.fail_after(self._times.probe_s):
                async with self._client.stream("GET", url) as response:
                    said = await _read_some(response, _MAX_PROBE_BYTES)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            failed: ModelFailed = from_transport(error, self._server, answered_before=False)
            if isinstance(failed, ModelUnavailable):
                raise failed from error
            return {}
        except TimeoutError:
            return {}
        if response.status_code in (401, 403):
            raise from_status(response.status_code, response.headers, said, self._server, self._model)
        try:
            found = json.loads(said) if response.status_code == 200 else {}
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def new_client(url: str, api_key: str | None, timeout: httpx2.Timeout | None = None) -> httpx2.AsyncClient:
    """A client for one server. Proxies are not asked for addresses of this machine."""
    return httpx2.AsyncClient(
        headers=_authorization(api_key),
        verify=tls_context() if url.startswith("https:") else False,
        trust_env=not is_loopback(url),
        timeout=timeout,
    )


def _authorization(api_key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def _timeout(times: HttpTimes) -> httpx2.Timeout:
    return httpx2.Timeout(times.first_byte_s, connect=times.connect_s, pool=None)


def is_loopback(url: str) -> bool:
    """True for addresses of this machine that no proxy and no key is needed for."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(f"not an address of a model server: {url!r}", "write http://HOST:PORT/v1")
    return url.rstrip("/")


async def _read_some(response: httpx2.Response, limit: int) -> bytes:
    """The body, or its first `limit` bytes and a little."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > limit:
            break
    return bytes(body)


def _items(listing: dict[str, Any]) -> list[dict[str, Any]]:
    data = listing.get("data")
    return [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
