"""HTTP to one model server: a question in one piece, an answer as it comes. Only this file knows that httpx2 does it.

Its transport and not its client, so that nothing happens by itself: redirects are answers like any other (a key is sent
to nobody but who was named), and no cookie is kept. The edge where HTTP's errors become ours, too: what servers say is
data from outside, of which one printable line is kept.
"""

import base64
import functools
import math
import os
import re
import socket
import ssl
import time
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import anyio
import httpx2

from stockade.core.errors import AnswerHeldBack, ContextExceeded, ModelFailed, ModelOverloaded, ModelUnavailable
from stockade.core.settings import EFFORTS
from stockade.core.text import one_line
from stockade.models.providers import is_own
from stockade.models.replies import (
    OWN_THINKING,
    NoSuchModel,
    NotSupported,
    Refused,
    as_count,
    as_dict,
    as_text,
    parsed,
)

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
            raise _lost(self._server, words(error)) from error


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
            through = proxy and not isinstance(cause(error), ssl.SSLError)
            return self._not_reached(f"{proxy}: {words(error)}" if through else words(error))
        if isinstance(error, httpx2.InvalidURL | UnicodeError):
            return self._not_reached(f"{urlsplit(self._url).hostname!r} cannot be asked: {error}")
        return _lost(self.server, words(error))

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


def cause(error: BaseException) -> BaseException:
    """What it began with: the library, and anyio under it, put that behind errors of their own."""
    if isinstance(error, BaseExceptionGroup):
        return cause(error.exceptions[0])
    inner = error.__cause__ or error.__context__
    return cause(inner) if inner else error


def words(error: BaseException) -> str:
    """What broke, without the layers around it."""
    first = cause(error)
    if isinstance(first, socket.gaierror):
        return first.strerror or str(first)
    if isinstance(first, OSError) and first.errno and not isinstance(first, ssl.SSLError):
        return os.strerror(first.errno)
    return str(first) or "it was closed"


_TOO_LONG_CODES = {"exceed_context_size_error", "context_length_exceeded", "request_too_large"}
# llama.cpp, vLLM, OpenAI, Anthropic (two), TGI, LM Studio, Ollama. Numbers: what was asked for, what there is.
_TOO_LONG = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"request \((?P<tokens>\d+) tokens\) exceeds the available context size \((?P<window>\d+) tokens\)",
        r"maximum context length (?:is|of) (?P<window>\d+) tokens.{0,80}?(?:resulted in|requested|has|contains?)"
        r"[^\d]{0,40}(?P<tokens>\d+)",
        r"maximum context length (?:is|of) (?P<window>\d+)",
        r"prompt is too long: (?P<tokens>\d+) tokens > (?P<window>\d+)",
        r"exceed context limit: (?P<tokens>\d+) \+ \d+ > (?P<window>\d+)",
        r"prompt \(length (?P<tokens>\d+)\) is longer than the maximum model length of (?P<window>\d+)",
        r"`?inputs`? tokens \+ `?max_new_tokens`? must be <= (?P<window>\d+)",
        r"tokens to keep from the initial prompt is greater than the context length",
        r"context (?:size|length|window)[^.]{0,40} (?:exceeded|overflow)|exceeds? the (?:available )?context",
        r"input token count \(?(?P<tokens>\d+)\)? exceeds the maximum number of tokens allowed \(?(?P<window>\d+)\)?",
        r"input (?:tokens exceed|length exceeds|is longer than)[^.]{0,60}(?:limit|context|maximum)",
    )
)
_HELD_BACK_CODES = {"bio_policy", "cyber_policy", "misalignment_policy_violation", "content_policy_violation",
                    "content_filter"}  # fmt: skip
# OpenAI and OpenRouter, Azure.
_FLAGGED = re.compile(r"(?:prompt|input|output|request|content) (?:was|has been) flagged|"
                      r"violat\w+ (?:our|the) usage polic|content management polic|content polic\w+ violat",
                      re.IGNORECASE)  # fmt: skip
_NO_MONEY = re.compile(r"insufficient_quota|exceeded your current quota|credit balance is too low", re.IGNORECASE)
# "Please retry in 34.07s", "try again in 1m2.5s", "in 20ms".
_AGAIN_IN = re.compile(
    r"(?:retry|try again) in (?:(?P<h>\d{1,3})h)?(?:(?P<m>\d{1,3})m(?!s))?(?:(?P<s>\d{1,9}(?:\.\d+)?)(?P<ms>m?)s)?\b",
    re.IGNORECASE,
)
# A wrong key is a wrong request to Google; 403 may be about a country, or an API that is switched off.
_NO_KEY = re.compile(r"api.?key (?:not valid|not found|expired|is invalid)|api_key_invalid", re.IGNORECASE)
_NOT_HERE = re.compile(r"country, region|location is not supported|has not been used in project|is disabled|"
                       r"\bvpn\b", re.IGNORECASE)  # fmt: skip
# llama.cpp's router, OpenAI's projects, OpenRouter.
_NO_MODEL = re.compile(r"model_not_found|\bmodel\b.{0,120}\bnot found|does not have access to model|"
                       r"is not a valid model id", re.IGNORECASE)  # fmt: skip
_NO_SYSTEM = re.compile(r"system role (?:is )?not supported|no system role|'?system'? role is not allowed|"
                        r"conversation roles must alternate|only user(?:,| and) assistant", re.IGNORECASE)  # fmt: skip
# llama.cpp (two), vLLM's xgrammar and outlines, Anthropic, OpenAI and Ollama.
_NO_SCHEMA = re.compile(r"failed to (?:parse|compile|load|build) (?:the )?(?:json )?(?:grammar|schema)|"
                        r"json schema conversion failed|output_config\.format|structured outputs?\b|"
                        r"grammar (?:error|is not|is too)|"
                        r"(?:invalid|unsupported|unrecogni[sz]ed) (?:json )?schema(?! for function)",
                        re.IGNORECASE)  # fmt: skip
_REFUSED = re.compile(r"unsupported|not supported|unknown|unrecogni[sz]ed|unexpected|deprecated|not permitted|"
                      r"not allowed|not support\b|may only be set|may not be enabled|must be (?:set to )?1\b|"
                      r"extra inputs?\b|input should be|must be one of|expected one of|must be verified|"
                      r"only works in thinking mode|thinking can.?t be disabled", re.IGNORECASE)  # fmt: skip
_OPTIONAL = {"temperature", "top_p", "top_k", "min_p", "repeat_penalty", "repetition_penalty", "seed",
             "presence_penalty", "typical_p", "frequency_penalty", "stop", "stream_options", "max_tokens",
             "max_completion_tokens", "cache_prompt", "id_slot", "response_format", "mirostat", "mirostat_tau",
             "mirostat_eta", "dry_multiplier", "dry_allowed_length", "max_output_tokens", "include",
             "reasoning_effort", "chat_template_kwargs", "effort", "output_config", "thinking", "reasoning_content",
             "reasoning", "reasoning_details", "prompt_cache_key", "session_id", "cache_control", "tool_choice",
             "display", "summary"}  # fmt: skip
# Anthropic (four), OpenAI (four), Gemini: thinking that came back is not what they had sent.
_THINKING_REFUSED = re.compile(
    "|".join((
        r"invalid .?signature.? in .?thinking",
        r"thinking.{0,40} blocks in the latest assistant message cannot be modified",
        r"expected .?thinking.?,? or .?redacted_thinking",
        r"thinking is disabled.{0,80}cannot contain .?(?:redacted_)?thinking",
        r"encrypted content .{0,200}could not be (?:verified|decrypted|parsed)|invalid_encrypted_content",
        r"provided without its required .{0,20}(?:item|reasoning)|item with id .{0,80} not found",
        r"thought.?signature.{0,40}(?:is not valid|invalid|corrupted)|corrupted thought.?signature",
    )), re.IGNORECASE,
)  # fmt: skip
_BALANCE = "look at the account's balance"
_PASSING = {408, 409, 425, 429}


def from_status(
    status: int, headers: Mapping[str, str], body: bytes, server: str, model: str,
    key_hint: str = "set OPENAI_API_KEY to a valid key", path: str = "",
) -> ModelFailed:  # fmt: skip
    """The error for an answer that is not 200. `server`, `model` and `path`, which was asked, are for the message."""
    error = _error_of(body)
    reply = _line(error.get("message")) or _line(body.decode(errors="replace"))
    if too_long := _too_long(error, reply):
        return too_long
    if status in (400, 404, 422) and _THINKING_REFUSED.search(f"{error.get('code')} {reply}"):
        return NotSupported(f"{server} does not take back its own thinking ({status}): {reply}", OWN_THINKING)
    if status in (400, 403, 422) and _held_back(error, reply):
        return AnswerHeldBack(f"{server} does not answer this ({status}): {reply}")
    if _NO_MODEL.search(f"{error.get('code')} {reply}") and status in (400, 403):
        return _not_found(server, model, reply, path, status)
    if status == 401 or (status == 403 and not _NOT_HERE.search(reply)) or (status == 400 and _NO_KEY.search(reply)):
        return ModelUnavailable(f"{server} refused the key ({status}): {reply}", key_hint)
    if status == 403:
        return ModelUnavailable(f"{server} does not serve you ({status}): {reply}", "choose another --model")
    later, told = retry_after(headers, time.time()), told_delay(error)
    later = told if later is None else later
    if status == 429 and told is not None:  # of a quota a minute Google says what others say where the money is gone
        return ModelOverloaded(f"{server} is busy ({status}): {reply}", retry_after_s=later)
    if status == 402 or _out_of_money(error, reply):
        return ModelUnavailable(f"{server} wants to be paid ({status}): {reply}", _BALANCE)
    if status in (400, 404) and "v1/responses" in reply and path.endswith("/chat/completions"):
        return Refused(f"{server} refused the request ({status}): {reply}", "-o api=responses asks it there")
    if status == 404:
        return _not_found(server, model, reply, path, status)
    if status >= 400 and _NO_SYSTEM.search(reply):
        return NotSupported(f"{server}: {reply}", "system")
    if (status in (400, 422) or status >= 500) and _NO_SCHEMA.search(reply):
        return NotSupported(f"{server} refused the request ({status}): {reply}", "response_format")
    if status in (400, 422) and (refused := _refused(error, reply)):
        named = [one for one in EFFORTS if re.search(f"['`\"]{one}['`\"]", reply)]
        return NotSupported(f"{server} does not take {refused} ({status}): {reply}", refused, named)
    if status in _PASSING or status >= 500:
        word = "is busy" if status in (429, 529) else "failed"
        return ModelOverloaded(f"{server} {word} ({status}): {reply}", retry_after_s=later)
    return Refused(f"{server} refused the request ({status}): {reply}")


def _not_found(server: str, model: str, said: str, path: str, status: int) -> ModelUnavailable:
    """A server that says nothing of a model may have none of this API at this address."""
    if re.search("model|deployment", said, re.IGNORECASE) or model in said:
        return NoSuchModel(f"{server} has no model '{model}' ({status}): {said}", "name one that the server lists")
    versioned = re.search(r"/v\d", path)
    other = f"no model API at {path}" if versioned else "the address lacks /v1"
    return NoSuchModel(
        f"{server} has no model '{model}', or {other} ({status}): {said}",
        f"name one that the server lists, or {'look at' if versioned else 'add /v1 to'} the address",
    )


def from_stream(error: object, server: str) -> ModelFailed:
    """The error for `{"error": ...}` amid a stream."""
    fields = error if isinstance(error, dict) else {"message": str(error)}
    reply = _line(fields.get("message")) or _line(str(fields))
    if fields.get("code") == "invalid_prompt" or _held_back(fields, reply):
        return AnswerHeldBack(f"{server} does not answer this: {reply}")
    if _out_of_money(fields, reply):
        return ModelUnavailable(f"{server} wants to be paid: {reply}", _BALANCE)
    return _too_long(fields, reply) or ModelOverloaded(f"{server} broke off: {reply}", retry_after_s=told_delay(fields))


def _error_of(body: bytes) -> dict[str, Any]:
    told = parsed(body)
    reply = as_dict(told[0] if isinstance(told, list) and told else told)  # Google puts it into a list
    error = reply.get("error", reply)
    return error if isinstance(error, dict) else {"message": error}


def _out_of_money(error: Mapping[str, Any], said: str) -> bool:
    told = f"{error.get('code')} {error.get('type')} {said}"
    return error.get("code") == 402 or _NO_MONEY.search(told) is not None


def _held_back(error: Mapping[str, Any], said: str) -> bool:
    """Whether it is the content that is refused, not the form of the request."""
    return as_text(error.get("code")) in _HELD_BACK_CODES or _FLAGGED.search(said) is not None


def _too_long(error: dict[str, Any], said: str) -> ContextExceeded | None:
    result = next((match for pattern in _TOO_LONG if (match := pattern.search(said))), None)
    coded = any(isinstance(code := error.get(key), str) and code in _TOO_LONG_CODES for key in ("type", "code"))
    if not coded and result is None:
        return None
    numbers = {name: as_count(int(value)) for name, value in (result.groupdict() if result else {}).items() if value}
    tokens, window = as_count(error.get("n_prompt_tokens")), as_count(error.get("n_ctx"))
    return ContextExceeded(
        said or "the request is larger than the window",
        tokens or numbers.get("tokens") or None,
        window or numbers.get("window") or None,
    )


def _refused(error: dict[str, Any], said: str) -> str | None:
    """The parameter that the server does not take, when it can be left out."""
    named = error.get("param")
    names = named.split(".") if isinstance(named, str) else []  # reasoning.effort
    if _REFUSED.search(said):
        names += re.findall("[a-z_]+", said.lower())
    found = [word for word in names if word in _OPTIONAL]
    # Thinking, which is named too, can stay.
    lesser = (word for word in ("tool_choice", "display", "summary") if word in found)
    return next(lesser, None) or next(iter(found), None)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait, by `retry-after-ms` (OpenAI, Azure) or Retry-After, in seconds or as a date (RFC 9110, 10.2.3).

    `now` is UNIX seconds. None where there is neither, or nobody can read it.
    """
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        with suppress(ValueError):
            seconds = float(headers.get(name, "")) / scale
            if math.isfinite(seconds):
                return max(0.0, seconds)
    try:
        when = parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, when.timestamp() - now)
    except (ValueError, OverflowError):
        return None


def told_delay(error: Mapping[str, Any]) -> float | None:
    """Seconds to wait, by the body: `retryDelay` of Google's details, else what the message says."""
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        with suppress(ValueError):
            seconds = float(as_text(as_dict(detail).get("retryDelay")).removesuffix("s"))
            if math.isfinite(seconds):
                return max(0.0, seconds)
    found = _AGAIN_IN.search(as_text(error.get("message"))[:20_000])
    if found is None or not any(parts := found.group("h", "m", "s")):
        return None
    hours, minutes, seconds = (float(part or 0) for part in parts)
    return hours * 3600 + minutes * 60 + seconds / (1000 if found["ms"] else 1)


def _line(text: object) -> str:
    """A server's words go to a terminal."""
    return one_line(text[:2000], 300) if isinstance(text, str) else ""
