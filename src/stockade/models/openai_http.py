"""A model behind an OpenAI-compatible HTTP server."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from stockade.core.messages import ModelAnswer, ModelInfo, ModelRequest
from stockade.core.ports import OnText
from stockade.models.collect import AnswerBuilder
from stockade.models.facts import Facts, learn
from stockade.models.net import bearer, is_loopback, is_near
from stockade.models.payload import Dialect, PayloadCache
from stockade.models.prices import FREE, Price
from stockade.models.progress import OnProgress, silent
from stockade.models.refusals import NotSupported
from stockade.models.special_tokens import SpecialTokenGuard
from stockade.models.thinking import Patience
from stockade.models.tokens import TokenCounter
from stockade.models.transport import HttpTimes, Transport

__all__ = ["HttpTimes", "OpenAIModel", "bearer", "is_loopback"]


class OpenAIModel:
    """Implements core.ports.Model and loop.window.CountsTokens.

    `base_url` includes the version path (`http://127.0.0.1:8080/v1`); `query` is appended to every address. `headers`
    carry the key where it is no bearer token. `slot` pins llama.cpp's KV cache. `price` None: nobody told what it
    costs, which is nothing on this machine. `native_tools`: known to have them. `on_progress` hears of a window that is
    small. `rest` goes to the Transport.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        *,
        provider: str = "openai",
        headers: Mapping[str, str] | None = None,
        query: str = "",
        dialect: Dialect | None = None,
        slot: int | None = None,
        price: Price | None = None,
        native_tools: bool = False,
        on_progress: OnProgress = silent,
        **rest: Any,
    ) -> None:
        self._transport = Transport(base_url, model, {**bearer(api_key), **(headers or {})}, **rest)
        self._url, self._query = self._transport.url, query
        self._model = model
        self._dialect = dialect or Dialect()
        self._slot, self._on_progress = slot, on_progress
        local_kind = self._dialect.llama_cpp or self._dialect.server or is_near(self._url)
        self._guard = SpecialTokenGuard() if local_kind else None
        self._payload, self._patience = PayloadCache(), Patience()
        self._begun = False
        self._asked = f"{self._url}/chat/completions{query}"
        local = is_loopback(self._url)
        self._price = price or (FREE if local else None)
        self._counter = TokenCounter(self._transport, self._dialect)
        self._info = ModelInfo(
            name=model, provider=provider, local=local, native_tools=native_tools, priced=self._price is not None,
            context_window=price.window if price else None,
            sources={"context_window": "the price table"} if price and price.window else {},
        )  # fmt: skip

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        try:
            self._begun = False
            self._take(await learn(self._transport, self._dialect, self._model, self._query))
        except BaseException:
            await self._transport.__aexit__(None, None, None)
            raise
        return self

    def _take(self, facts: Facts) -> None:
        window = facts.window or self._info.context_window
        self._info = self._info.model_copy(
            update={
                "context_window": window,
                "parameters": facts.parameters,
                "sources": {**self._info.sources, **facts.sources},
                "local": self._info.local and not facts.elsewhere,
            }
        )
        if facts.advice:
            self._on_progress(facts.advice, 0, 0)
        if facts.system_role is False and (changed := self._dialect.without("system")) is not None:
            self._dialect = changed
        if facts.tool_roles is False:
            roles = self._dialect.roles.model_copy(update={"tools": False})
            self._dialect = self._dialect.model_copy(update={"roles": roles})

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """See core.ports.Model. What the server does not take is left out from then on."""
        return await self._patience.ask(request, self._info.context_window, lambda r: self._ask(r, on_text))

    async def _ask(self, request: ModelRequest, on_text: OnText | None) -> ModelAnswer:
        # A prompt that is partly in the cache gives other last bits than one that is read whole: with a seed, the first
        # question of a conversation owes nothing to the one before it.
        afresh = request.sampling.seed is not None and not self._begun
        asked = self._guard.request(request) if self._guard else request
        while True:
            body = self._payload.body(asked, self._model, self._dialect, self._slot, afresh=afresh)
            try:
                answer = await self._transport.ask(self._asked, body, self._builder, on_text)
                self._begun = True
                return self._guard.answer(answer) if self._guard else answer
            except NotSupported as error:
                changed = self._dialect.without(error.feature)
                if changed is None or (error.feature == "response_format" and request.schema_ is None):
                    raise
                self._dialect = changed

    def _builder(self) -> AnswerBuilder:
        return AnswerBuilder(self._price)

    async def count(self, request: ModelRequest) -> int | None:
        """See loop.window.CountsTokens."""
        asked = self._guard.request(request) if self._guard else request
        return await self._counter.count(self._payload.body(asked, self._model, self._dialect), asked)
