"""A model behind Anthropic's Messages API, or a server that speaks it (llama.cpp does)."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from stockade.core.messages import ModelAnswer, ModelInfo, ModelRequest
from stockade.core.ports import OnText
from stockade.models.anthropic_collect import AnthropicBuilder
from stockade.models.anthropic_payload import SCHEMA, body
from stockade.models.net import is_loopback, is_near
from stockade.models.prices import Price
from stockade.models.refusals import NotSupported
from stockade.models.special_tokens import SpecialTokenGuard
from stockade.models.thinking import Patience
from stockade.models.transport import HttpTimes, Transport
from stockade.models.values import as_count

VERSION = "2023-06-01"
DEFAULT_WINDOW = 200_000


class AnthropicModel:
    """Implements core.ports.Model and loop.window.CountsTokens. `base_url` has no version path.

    `headers` carry the key where it is a token. `price` None: nobody told what it costs. `rest` goes to the Transport.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        price: Price | None = None,
        times: HttpTimes | None = None,
        **rest: Any,
    ) -> None:
        sent = {"anthropic-version": VERSION, **({"x-api-key": api_key} if api_key else {}), **(headers or {})}
        self._transport = Transport(
            base_url, model, sent, key_hint="set ANTHROPIC_API_KEY to a valid key", times=times, **rest
        )
        self._model, self._price = model, price
        self._guard = SpecialTokenGuard() if is_near(self._transport.url) else None
        self._asked = f"{self._transport.url}/v1/messages"
        self._refused: frozenset[str] = frozenset()
        self._counts, self._patience = True, Patience()
        local = is_loopback(self._transport.url)
        window = price.window if price and price.window else DEFAULT_WINDOW
        self._info = ModelInfo(
            name=model, provider="anthropic", local=local, native_tools=not local, priced=local or price is not None,
            context_window=None if local else window,
        )  # fmt: skip

    @property
    def info(self) -> ModelInfo:
        return self._info

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        try:
            about = await self._transport.tell(f"{self._transport.url}/v1/models/{self._model}")
        except BaseException:
            await self._transport.__aexit__(None, None, None)
            raise
        if window := as_count(about.get("max_input_tokens")):
            self._info = self._info.model_copy(update={"context_window": window})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """See core.ports.Model. A parameter that the model does not take is left out from then on."""
        return await self._patience.ask(request, self._info.context_window, lambda r: self._ask(r, on_text))

    async def _ask(self, request: ModelRequest, on_text: OnText | None) -> ModelAnswer:
        def builder() -> AnthropicBuilder:
            return AnthropicBuilder(request.schema_ is not None and SCHEMA not in self._refused, self._price)

        asked = self._guard.request(request) if self._guard else request
        while True:
            try:
                answer = await self._transport.ask(
                    self._asked, body(asked, self._model, self._refused), builder, on_text
                )
                return self._guard.answer(answer) if self._guard else answer
            except NotSupported as error:
                if error.feature in self._refused or (error.feature == SCHEMA and request.schema_ is None):
                    raise
                self._refused |= {error.feature}

    async def count(self, request: ModelRequest) -> int | None:
        """See loop.window.CountsTokens."""
        if not self._counts:
            return None
        asked = self._guard.request(request) if self._guard else request
        told = await self._transport.tell(f"{self._asked}/count_tokens", body(asked, self._model, stream=False))
        tokens = as_count(told.get("input_tokens"))
        self._counts = bool(tokens)
        return tokens or None
