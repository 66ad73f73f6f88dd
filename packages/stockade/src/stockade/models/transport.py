"""One model server over HTTP, whatever API it speaks: a client, back-off, streams of events, small questions."""

import hashlib
import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import anyio

from stockade.core.data import Data
from stockade.core.errors import ModelFailed, ModelOverloaded, ModelUnavailable
from stockade.core.messages import ModelAnswer, ModelInfo, ModelRequest
from stockade.core.ports import OnText
from stockade.core.settings import Effort, nearest_effort
from stockade.core.text import one_line
from stockade.models.answer_builder import AnswerBuilder, Patience
from stockade.models.http import Client, Response, from_status, from_stream
from stockade.models.pricing import FREE, Price, price_of
from stockade.models.providers import PROVIDERS, Address, address_of, checked_url
from stockade.models.replies import OWN_THINKING, NoSuchModel, NotSupported, as_dict, parsed
from stockade.models.servers import nearest
from stockade.models.settings import ModelContext, OnProgress, silent
from stockade.paths import state_dir

T = TypeVar("T")
MAX_ANSWER_CHARS = 10 * 1024**2
_EFFORT = ("effort", "output_config", "reasoning_effort", "reasoning", "thinking", "chat_template_kwargs")
_DONE = "[DONE]"
_HEADERS = {
    "Accept": "text/event-stream, application/json",
    "Content-Type": "application/json",
    "User-Agent": "stockade",
}
_DRAIN_S = 0.5
_SAID_S = 2.0
"""A pause from here on is said."""
_MAX_ERROR_BYTES = 64 * 1024
_MAX_PROBE_BYTES = 4 * 1024**2


class HttpTimes(Data):
    """Seconds. `first_byte_s`, until the first event, is long: a local model reads its whole prompt before it.

    `idle_s` bounds silence after that, and events that bring nothing of an answer; `alive_s` bounds mere signs of life.
    `patience_s`: a server that wants to be asked again only later than that is not waited for.
    """

    connect_s: float = 10.0
    first_byte_s: float = 900.0
    idle_s: float = 120.0
    alive_s: float = 1800.0
    probe_s: float = 5.0
    retries: int = 4
    backoff_s: float = 0.5
    backoff_max_s: float = 30.0
    patience_s: float = 120.0


class Stall:
    """The deadline of one stream. Times are those of one monotonic clock."""

    def __init__(self, times: HttpTimes, now: float) -> None:
        self._times, self._begun, self._brought = times, False, now
        self.patience_s = times.first_byte_s
        self.deadline = now + self.patience_s

    def heard(self, now: float, *, events: bool, brought: bool) -> float:
        """The deadline after these bytes. `events`: there were some, pings not counted; else they are comments or a
        part of an event. `brought`: with text, thinking or a call in them.
        """
        if events and not self._begun:
            self._begun, self.patience_s, brought = True, self._times.idle_s, True
        if brought:
            self._brought = now
        if brought or not events:
            self.deadline = min(now + self.patience_s, self._brought + max(self._times.alive_s, self.patience_s))
        return self.deadline


def _quiet(server: str) -> Path:
    """A file whose time says until when the server wants to be left alone: what one run hears by Retry-After holds for
    all of this machine, whichever process has them.
    """
    return state_dir() / "quiet" / hashlib.sha256(server.encode()).hexdigest()[:16]


def _quiet_s(server: str) -> float:
    """How long still; no longer than it was said, whatever has become of the clock."""
    try:
        said = _quiet(server).stat()
        return said.st_mtime - max(time.time(), said.st_ctime)
    except OSError:  # nobody said so, or the state cannot be read: then each run hears it by itself
        return 0.0


def _keep_quiet(server: str, pause_s: float) -> None:
    if pause_s > _quiet_s(server):
        path, until = _quiet(server), time.time() + pause_s
        with suppress(OSError):  # the same
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            os.utime(path, (until, until))


class Transport:
    """`died` is asked before each retry: a sentence from it means that the server of ours is gone for good.

    `model` and `key_hint` are for messages, `on_progress` hears of pauses. `sleep` and `jitter` (0 to 1) are there for
    tests.
    """

    def __init__(
        self,
        url: str,
        model: str,
        headers: Mapping[str, str],
        *,
        key_hint: str = "set OPENAI_API_KEY to a valid key",
        times: HttpTimes | None = None,
        died: Callable[[], str | None] = lambda: None,
        on_progress: OnProgress = silent,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.url = checked_url(url)
        self._model, self._key_hint = model, key_hint
        self._times = times or HttpTimes()
        self._died, self._sleep, self._jitter, self.progress = died, sleep, jitter, on_progress
        self._client = Client(
            self.url, {**_HEADERS, **headers}, connect_s=self._times.connect_s, answer_s=self._times.first_byte_s
        )
        self.server = self._client.server

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.__aexit__()

    async def ask(
        self, url: str, body: bytes, builder: Callable[[], AnswerBuilder], on_text: OnText | None
    ) -> ModelAnswer:
        """The streamed answer to a POST of `body`; passing faults are tried again, after a pause that grows."""
        return await self._again(lambda: self._ask_once(url, body, builder(), on_text))

    async def _again(self, once: Callable[[], Awaitable[T]]) -> T:
        if (left := _quiet_s(self.server)) > 0:  # a clock that was set back holds nobody up for longer
            await self._sleep(min(left, self._times.patience_s) + self._jitter())
        for attempt in range(self._times.retries + 1):
            try:
                return await once()
            except ModelOverloaded as error:
                if reason := self._died():
                    raise ModelUnavailable(reason) from error
                if (error.retry_after_s or 0.0) > self._times.patience_s:
                    later = f"ask again later: it wants to be left alone for {error.retry_after_s:.0f} s"
                    raise ModelOverloaded(error.message, later, error.retry_after_s) from error
                if attempt == self._times.retries:
                    raise
                pause = self._pause(attempt, error.retry_after_s)
                if pause >= _SAID_S:
                    self.progress(f"{error.message}; asked again in {pause:.0f} s", 0, 0)
                if error.retry_after_s is not None:
                    _keep_quiet(self.server, pause)
                await self._sleep(pause)
        raise AssertionError("the loop above returns or raises")

    def _pause(self, attempt: int, retry_after_s: float | None) -> float:
        """Exponential with up to half of it as jitter; the server's word counts where it is more."""
        pause = min(self._times.backoff_s * 2.0**attempt * (1 + self._jitter() / 2), self._times.backoff_max_s)
        return max(pause, retry_after_s or 0.0)

    async def _ask_once(self, url: str, body: bytes, builder: AnswerBuilder, on_text: OnText | None) -> ModelAnswer:
        started = time.monotonic()
        try:
            async with self._client.asked("POST", url, body) as response:
                self._client.answered = True
                if response.status != 200:
                    reply = await self._whole(response, _MAX_ERROR_BYTES)
                    raise self._refusal(response, reply.encode(), urlsplit(url).path)
                await self._read(response, builder, on_text)
            return builder.answer(time.monotonic() - started)
        except ModelFailed:
            if on_text is not None and not (builder.empty and not builder.thoughts):
                on_text(None)  # what the listener has heard of this answer does not count
            raise

    def _refusal(self, response: Response, said: bytes, path: str = "") -> ModelFailed:
        return from_status(response.status, response.headers, said, self.server, self._model, self._key_hint, path)

    async def _read(self, response: Response, builder: AnswerBuilder, on_text: OnText | None) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        done = False
        try:
            if kind == "application/json":  # the server ignores `stream`: the whole answer is one event
                self._take(await self._whole(response, MAX_ANSWER_CHARS), builder, on_text)
            elif kind in ("text/event-stream", ""):
                done = await self._stream(response, builder, on_text)
            else:
                raise ModelUnavailable(
                    f"{self.server} answered with {kind[:60]}: this is no model API", "check the address"
                )
        except ModelOverloaded:
            # Lost after its last word, the answer is whole all the same.
            if not builder.ended:
                raise
        if not builder.ended and not (done and not builder.empty):
            raise ModelOverloaded(f"the answer of {self.server} was cut before its end")

    async def _stream(self, response: Response, builder: AnswerBuilder, on_text: OnText | None) -> bool:
        """Takes event by event. Whether the server has said that this was all."""
        stall = Stall(self._times, anyio.current_time())
        done, events, size = False, 0, builder.size
        with anyio.move_on_after(self._times.first_byte_s) as scope:

            def after_piece() -> None:
                nonlocal events, size
                if not done:
                    now, brought = anyio.current_time(), builder.size != size
                    scope.deadline = stall.heard(now, events=events > 0, brought=brought)
                events, size = 0, builder.size

            async with aclosing(response.events(after_piece)) as stream:
                async for data in stream:
                    if done:
                        continue
                    if done := data.strip() == _DONE:
                        # Read to the end, so that the connection serves the next question; a server may not close.
                        scope.deadline = anyio.current_time() + _DRAIN_S
                        continue
                    events += self._take(data, builder, on_text)
                    if builder.enough:
                        return False
            return done
        if not done:
            raise ModelOverloaded(f"{self.server} said nothing for {stall.patience_s:g} s")
        return True

    async def _whole(self, response: Response, limit: int) -> str:
        try:
            with anyio.fail_after(self._times.first_byte_s):
                return (await response.whole(limit)).decode(errors="replace")
        except TimeoutError:
            raise ModelOverloaded(f"{self.server} said only half in {self._times.first_byte_s:g} s") from None

    def _take(self, data: str, builder: AnswerBuilder, on_text: OnText | None) -> bool:
        """Whether there was more to take than a ping."""
        piece = parsed(data)
        if not isinstance(piece, dict):
            raise ModelOverloaded(f"{self.server} sent a malformed stream: {data[:80]!r}")
        if error := builder.error_in(piece):
            raise from_stream(error, self.server)
        thoughts = builder.thoughts
        text = builder.add(piece)
        if builder.size > MAX_ANSWER_CHARS:
            raise ModelUnavailable(
                f"{self.server} sent an answer of more than {MAX_ANSWER_CHARS} characters; it was stopped",
                "bound it with --max-tokens",
            )
        if on_text and (text or builder.thoughts > thoughts):
            on_text(text)
        return piece.get("type") != "ping"

    async def tell(self, url: str, body: bytes | None = None, *, patient: bool = False) -> dict[str, Any]:
        """The JSON object at `url`, asked for by POST where there is a body; {} where the server has none.

        Raises where asking a model would be in vain too: no server, a wrong key. `patient`: this is no mere probe. A
        busy server gets its time and a lost connection is no answer: it is asked again, as `ask` does.
        """
        if patient:
            return await self._again(lambda: self._tell_once(url, body, self._times.first_byte_s))
        try:
            return await self._tell_once(url, body, self._times.probe_s)
        except ModelOverloaded:
            return {}

    async def _tell_once(self, url: str, body: bytes | None, within_s: float) -> dict[str, Any]:
        try:
            with anyio.fail_after(within_s):
                async with self._client.asked("GET" if body is None else "POST", url, body) as response:
                    reply = await response.whole(_MAX_PROBE_BYTES)
        except TimeoutError:
            raise ModelOverloaded(f"{self.server} said nothing for {within_s:g} s") from None
        if response.status in (401, 403):
            raise self._refusal(response, reply)
        return as_dict(parsed(reply)) if response.status == 200 else {}


def reached(name: str, context: ModelContext) -> tuple[Address, Price | None]:
    """How a server that runs already is asked for this model. UsageError where its address or key is missing."""
    full, address = f"{context.provider}/{name}", address_of(context.provider, context.environment, name)
    if context.settings.ctx_size is not None:
        message = f"--ctx-size is for models that we load: the window of {full} is its server's"
        context.on_progress(message, 0, 0)
    return address, FREE if PROVIDERS[context.provider].key == "never" else price_of(full)


class Forgotten:
    """Which answers go back without their thinking, as their provider refused it once: all up to then."""

    def __init__(self) -> None:
        self._count = 0

    def without(self, request: ModelRequest) -> ModelRequest:
        """The very same where there is nothing to leave out."""
        old = request.messages[: self._count]
        if all(message.reasoning is None for message in old):
            return request
        plain = tuple(message.model_copy(update={"reasoning": None}) for message in old)
        return request.model_copy(update={"messages": (*plain, *request.messages[self._count :])})

    def forget(self, request: ModelRequest) -> bool:
        """All that this request has. Whether it had any."""
        self._count = len(request.messages)
        return any(message.reasoning is not None for message in request.messages)


class ServedModel(ABC):
    """What the models of both APIs have in common: implements core.ports.Model but for the question itself."""

    tells = True
    """Its server runs already: what that knows of the model costs no start to ask."""

    def __init__(self, transport: Transport, info: ModelInfo) -> None:
        self._transport, self._info, self._patience, self._forgotten = transport, info, Patience(), Forgotten()
        self._listing = f"{transport.url}/models"
        self._efforts: tuple[Effort, ...] = ()

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        try:
            await self._learn()
        except BaseException:
            await self._transport.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._transport.__aexit__(*error)

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """See core.ports.Model. What the server does not take is left out from then on."""
        try:
            return await self._patience.ask(request, self._info.context_window, lambda r: self._ask(r, on_text))
        except NoSuchModel as error:
            raise NoSuchModel(error.message, await self._others() or error.hint) from error

    async def _others(self) -> str | None:
        """What to name instead: the nearest of those that the server lists, else the first of them."""
        try:
            rows = (await self._transport.tell(self._listing)).get("data")
        except ModelFailed:
            return None
        named = (
            [str(row["id"]) for row in rows if isinstance(row, dict) and row.get("id")]
            if isinstance(rows, list)
            else []
        )
        ids = [one_line(id_.removeprefix("models/"), 100) for id_ in named]  # as Google writes them
        if near := nearest(self._info.name, ids):
            return f"did you mean {self._info.provider}/{near}?"
        return f"it has {', '.join(ids[:5])}{', ...' if len(ids) > 5 else ''}" if ids else None

    def _sent(self, request: ModelRequest) -> ModelRequest:
        """What of a request can be sent, by all that was refused so far: the very same where that is all of it."""
        plain, sampling = self._forgotten.without(request), request.sampling
        if sampling.effort is None or (near := nearest_effort(sampling.effort, self._efforts)) is None:
            return plain
        return plain.model_copy(update={"sampling": sampling.model_copy(update={"effort": near})})

    def _left_out(self, error: NotSupported, sent: ModelRequest, without: Callable[[str, ModelRequest], bool]) -> bool:
        """Whether `sent` can be asked without what was refused, which the user hears of where it changes how the model
        thinks.
        """
        own, effort = error.feature == OWN_THINKING, sent.sampling.effort if error.feature in _EFFORT else None
        known = [one for one in error.efforts if one != effort] if effort and not self._efforts else []
        if effort and (near := nearest_effort(effort, known)):
            self._efforts = tuple(known)
            self._transport.progress(f"{error.message}; it is asked with {near}", 0, 0)
            return True
        possible = self._forgotten.forget(sent) if own else without(error.feature, sent)
        if possible and (own or effort):
            self._transport.progress(f"{error.message}; it is asked without it", 0, 0)
        return possible

    @abstractmethod
    async def _learn(self) -> None:
        """What the server tells of the model, on entering."""

    @abstractmethod
    async def _ask(self, request: ModelRequest, on_text: OnText | None) -> ModelAnswer:
        """One question, without patience."""
