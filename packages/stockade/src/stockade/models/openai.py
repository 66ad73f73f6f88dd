"""A model behind an OpenAI-compatible HTTP server, and what the server tells of it before it is asked: its window, its
size, and what its template has. Servers without these addresses are fine; no server, or a key that it refuses, is not.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

from stockade.core.messages import ModelAnswer, ModelInfo, ModelRequest
from stockade.core.ports import OnText
from stockade.models.answer_builder import AnswerBuilder
from stockade.models.completion import PRESERVED, CompletionBuilder, SchemaGrammars
from stockade.models.openai_request import Dialect, PayloadCache, completion_body, effort_fields
from stockade.models.pricing import FREE, Price, price_of
from stockade.models.providers import bearer, is_near, is_own
from stockade.models.replies import NotSupported, as_count, as_dict, as_text, parse_size_label
from stockade.models.settings import ModelContext, OnProgress, silent
from stockade.models.special_tokens import SpecialTokenGuard, TokenPrompt
from stockade.models.transport import ServedModel, Transport, reached

OLLAMA_DEFAULT_WINDOW = 4096
ENOUGH_WINDOW = 16_384
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,15})\s*$", re.MULTILINE)


@dataclass
class Facts:
    """`told`: facts by their names in core.messages.ModelInfo (`context_window` in tokens, `parameters`, `sees`), and
    `sources`, which address told each. `lacks` are roles that the template does not have: `system`, `tools`.

    `elsewhere`: the server on this machine hands what it is asked to another one. `props` is llama.cpp's own
    description. `advice` is a line for the user, where the server's window is smaller than the model's.
    """

    told: dict[str, int] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    lacks: set[str] = field(default_factory=set)
    props: dict[str, Any] = field(default_factory=dict)
    advice: str = ""
    elsewhere: bool = False

    def tell(self, name: str, count: int | None, source: str) -> None:
        """Instead of what was told before; nothing where there is no count."""
        if count:
            self.told[name], self.sources[name] = count, source

    def see(self, sees: object, source: str) -> None:
        """Whether the model takes images; nothing where that is not told."""
        if isinstance(sees, bool):
            self.told["sees"], self.sources["sees"] = sees, source

    def advise(self, server: str, model: str, trained: int, how: str) -> None:
        """`trained` is the window that the model was made for, 0 where nobody says."""
        window = self.told.get("context_window")
        if window and window < min(trained, ENOUGH_WINDOW):
            self.advice = (
                f"{server} gives {model} a window of {window} tokens of the {trained} that it was made for: "
                f"older results will be shown to it in short; for more: {how}"
            )


async def learn(transport: Transport, dialect: Dialect, model: str, query: str = "") -> Facts:
    """Asked on entering. Raises ModelUnavailable where asking the model would be in vain."""
    facts, root, listing = Facts(), transport.url.removesuffix("/v1"), "the server's /v1/models"
    row = await _row(transport, model, query)
    if dialect.llama_cpp:
        facts.props = await transport.tell(f"{root}/props")
        if facts.props.get("role") == "router":  # it has several models, and knows of each what it has loaded
            if as_dict(row.get("status")).get("value") != "loaded":
                transport.progress(f"llama-server loads {model}", 0, 0)
            facts.props = await transport.tell(f"{root}/props?model={quote(model, safe='')}", patient=True)
            row = await _row(transport, model, query)
    meta = as_dict(row.get("meta"))
    windows = (row.get("max_model_len"), row.get("context_window"), meta.get("n_ctx"), meta.get("n_ctx_train"))
    facts.tell("context_window", next(filter(None, map(as_count, windows)), 0), listing)
    facts.tell("parameters", as_count(meta.get("n_params")), listing)
    takes = as_dict(row.get("architecture")).get("input_modalities")
    facts.see("image" in takes if isinstance(takes, list) else None, listing)
    facts.see(as_dict(row.get("capabilities")).get("vision"), listing)
    if dialect.llama_cpp:
        _from_props(facts)
    elif dialect.server == "ollama":
        await _from_ollama(transport, root, model, facts)
    elif dialect.server == "lm-studio":
        await _from_lm_studio(transport, root, model, facts)
    return facts


async def _row(transport: Transport, model: str, query: str) -> dict[str, Any]:
    """What the server lists of the model; where it has one only, of that one, whatever its name is."""
    rows = _rows(await transport.tell(f"{transport.url}/models{query}"), "data")
    return next((row for row in rows if row.get("id") == model), rows[0] if len(rows) == 1 else {})


def _from_props(facts: Facts) -> None:
    """llama.cpp: the window of one slot, and what its template can do."""
    props = facts.props
    window = as_count(as_dict(props.get("default_generation_settings")).get("n_ctx"))
    facts.tell("context_window", window, "the server's /props")
    facts.see(as_dict(props.get("modalities")).get("vision"), "the server's /props")
    caps = as_dict(props.get("chat_template_caps"))
    can = {"system": caps.get("supports_system_role")}
    can["tools"] = caps.get("supports_tool_calls", caps.get("supports_tools"))
    facts.lacks = {role for role, has in can.items() if has is False}


async def _from_lm_studio(transport: Transport, root: str, model: str, facts: Facts) -> None:
    """What it was loaded with; the rest of a longer prompt is cut from the middle without a word. What is not loaded is
    loaded by a first question, as it would be by the run's, with a window that nobody knows before.

    The size is its `params_string`, as "7B": https://lmstudio.ai/docs/developer/rest/list.
    """
    about = await transport.tell(f"{root}/api/v0/models/{model}")
    if about.get("state") == "not-loaded":
        transport.progress(f"LM Studio loads {model}", 0, 0)
        hello = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        await transport.tell(f"{transport.url}/chat/completions", json.dumps(hello).encode(), patient=True)
        about = await transport.tell(f"{root}/api/v0/models/{model}")
    facts.tell("context_window", as_count(about.get("loaded_context_length")), "LM Studio's /api/v0/models")
    kind = as_text(about.get("type"))
    facts.see(kind == "vlm" if kind else None, "LM Studio's /api/v0/models")
    facts.advise("LM Studio", model, as_count(about.get("max_context_length")), "load it with a larger one")
    rows = _rows(await transport.tell(f"{root}/api/v1/models"), "models")
    size = next((as_text(row.get("params_string")) for row in rows if row.get("key") == model), "")
    facts.tell("parameters", parse_size_label(size), "LM Studio's /api/v1/models")


async def _from_ollama(transport: Transport, root: str, model: str, facts: Facts) -> None:
    """Ollama cuts what is longer than its window without a word, and its window is not the model's.

    In this order: what it has the model loaded with now, what the model file asks for, what it does by default. That
    depends on the graphics memory (https://docs.ollama.com/context-length), so a model that is not loaded is loaded
    first, as it has to be for the first question. One of their cloud has all of its window.
    """
    about = await transport.tell(f"{root}/api/show", json.dumps({"model": model}).encode())
    metadata = as_dict(about.get("model_info"))
    lengths = (as_count(value) for name, value in metadata.items() if name.endswith(".context_length"))
    trained = next(filter(None, lengths), 0)
    facts.elsewhere = bool(about.get("remote_host"))
    requested = _NUM_CTX.search(as_text(about.get("parameters")))
    loaded, tells = await _loaded_window(transport, root, model)
    if about and tells and not (loaded or requested or facts.elsewhere):
        transport.progress(f"ollama loads {model}", 0, 0)
        question = json.dumps({"model": model, "stream": False}).encode()  # without a prompt it only loads
        await transport.tell(f"{root}/api/generate", question, patient=True)
        loaded, _ = await _loaded_window(transport, root, model)
    if about:
        default = trained if facts.elsewhere else min(OLLAMA_DEFAULT_WINDOW, trained or OLLAMA_DEFAULT_WINDOW)
        facts.tell("context_window", default, "Ollama's /api/show" if facts.elsewhere else "Ollama's own default")
    facts.tell("context_window", int(requested[1]) if requested else 0, "num_ctx in Ollama's /api/show")
    facts.tell("context_window", loaded, "Ollama's /api/ps")
    size = parse_size_label(as_text(as_dict(about.get("details")).get("parameter_size")))
    facts.tell("parameters", as_count(metadata.get("general.parameter_count")) or size, "Ollama's /api/show")
    capabilities = about.get("capabilities")
    facts.see("vision" in capabilities if isinstance(capabilities, list) else None, "Ollama's /api/show")
    facts.advise("ollama", model, trained, "OLLAMA_CONTEXT_LENGTH=N ollama serve")


async def _loaded_window(transport: Transport, root: str, model: str) -> tuple[int, bool]:
    """The window that Ollama has the model loaded with, 0 where it is not; whether it tells such things."""
    running = await transport.tell(f"{root}/api/ps")
    rows = _rows(running, "models")
    windows = (as_count(row.get("context_length")) for row in rows if row.get("name") in (model, f"{model}:latest"))
    return next(filter(None, windows), 0), isinstance(running.get("models"), list)


def _rows(listing: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    rows = listing.get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


Question = tuple[str, bytes, Callable[[], AnswerBuilder]]
"""Address, body, and what takes the answer."""


def open_served(name: str, context: ModelContext, kind: type["OpenAIModel"] | None = None) -> "OpenAIModel":
    """A model on a server that runs already. UsageError where its address or key is missing. `kind`: how it is
    asked.
    """
    address, price = reached(name, context)
    return (kind or OpenAIModel)(
        address.base_url, name, provider=context.provider, headers=address.headers, query=address.query,
        dialect=address.dialect, price=price, native_tools=address.native_tools,
        on_progress=context.on_progress, key_hint=address.key_hint,
    )  # fmt: skip


class OpenAIModel(ServedModel):
    """Implements core.ports.Model and loop.window.CountsTokens.

    `base_url` includes the version path (`http://127.0.0.1:8080/v1`); `query` is appended to every address. `headers`
    carry the key where it is no bearer token. `slot` pins llama.cpp's KV cache. `price` None: nobody told what it
    costs, which is nothing on this machine. `native_tools`: known to have them. `on_progress` hears of a window that is
    small. `rest` goes to the Transport.
    """

    path = "chat/completions"

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
        transport = Transport(base_url, model, {**bearer(api_key), **(headers or {})}, on_progress=on_progress, **rest)
        self._url, self._query = transport.url, query
        self._model = model
        self._dialect = dialect or Dialect()
        self._slot, self._on_progress = slot, on_progress
        local_kind = self._dialect.llama_cpp or self._dialect.server or is_near(self._url)
        self._guard = SpecialTokenGuard() if local_kind else None
        self._payload = PayloadCache()
        self._in_tokens: TokenPrompt | None = None
        self._begun = False
        self._asked = f"{self._url}/{self.path}{query}"
        local = is_own(self._url)
        self._price = price or (FREE if local else None)
        self._counts = self._dialect.llama_cpp or self._dialect.server == "vllm"
        info = ModelInfo(
            name=model, provider=provider, local=local, native_tools=native_tools,
            priced=self._price is not None or self._dialect.charges,
            context_window=price.window if price else None, sees=price.images if price else None,
            sources=price.told if price else {},
        )  # fmt: skip
        super().__init__(transport, info)

    async def _learn(self) -> None:
        self._begun = False
        facts = await learn(self._transport, self._dialect, self._model, self._query)
        self._take(facts)
        in_tokens = TokenPrompt(self._transport, self._model)
        if await in_tokens.ready(facts.props):
            self._in_tokens = in_tokens
            self._grammars = SchemaGrammars(self._transport, facts.props, self._model, self._slot)

    def _take(self, facts: Facts) -> None:
        sources = {**self._info.sources, **facts.sources}
        told: dict[str, Any] = {**facts.told, "sources": sources}
        if facts.elsewhere:
            self._price = price_of(f"{self._info.provider}/{self._model}")
            told |= {"local": False, "priced": self._price is not None}
        self._info = self._info.model_copy(update=told)
        if facts.advice:
            self._on_progress(facts.advice, 0, 0)
        self._dialect = self._dialect.model_copy(update={"refused": self._dialect.refused | facts.lacks})

    async def _ask(self, request: ModelRequest, on_text: OnText | None) -> ModelAnswer:
        # A prompt that is partly in the cache gives other last bits than one that is read whole: with a seed, the first
        # question of a conversation owes nothing to the one before it.
        afresh = request.sampling.seed is not None and not self._begun
        while True:
            sent = self._sent(request)
            try:
                url, body, builder = await self._in_tokens_of(sent, afresh) or self._in_text(sent, afresh)
                answer = await self._transport.ask(url, body, builder, on_text)
                self._begun = True
                return self._guard.answer(answer) if self._guard and url == self._asked else answer
            except NotSupported as error:
                if not self._left_out(error, sent, self._without):
                    raise

    def _without(self, feature: str, request: ModelRequest) -> bool:
        """Whether there is another way to ask, without `feature`."""
        told = effort_fields(request.sampling.effort, self._dialect.effort)
        if feature in ("thinking", "effort") and feature not in told:  # as the server calls it
            feature = "reasoning_effort"
        changed = self._dialect.without(feature)
        if changed is None or (feature == "response_format" and request.schema_ is None):
            return False
        self._dialect = changed
        return True

    def _in_text(self, request: ModelRequest, afresh: bool) -> Question:
        asked = self._guard.request(request) if self._guard else request
        body = self._payload.body(asked, self._model, self._dialect, self._slot, afresh=afresh)
        return self._asked, body, partial(AnswerBuilder, self._price, charges=self._dialect.charges)

    async def _in_tokens_of(self, request: ModelRequest, afresh: bool) -> Question | None:
        """For llama.cpp; None where it cannot be had."""
        refused = self._dialect.refused
        if self._in_tokens is None or any(message.images for message in request.messages):  # which are no text
            return None
        if (prompt := await self._in_tokens.prompt(request, refused)) is None:
            return None
        constraint: dict[str, Any] = {}
        if request.schema_ is not None and "response_format" not in refused and not request.sampling.grammar:
            constraint = await self._grammars.fields(request.schema_)
        calls = bool(request.tools and "tools" not in refused)
        if calls:
            constraint["preserved_tokens"] = PRESERVED
        body = completion_body(prompt[0], constraint, request, self._model, self._dialect, self._slot, afresh=afresh)
        builder = partial(
            CompletionBuilder,
            self._price,
            prompt[1],
            tools=request.tools if calls else None,
            fenced=bool(constraint.get("grammar")),
        )
        return f"{self._url}/completions{self._query}", body, builder

    async def count(self, request: ModelRequest) -> int | None:
        """See loop.window.CountsTokens."""
        if any(message.images for message in request.messages):
            return None
        if self._in_tokens is not None and (prompt := await self._in_tokens.prompt(request, self._dialect.refused)):
            return prompt[0].count(",") + 1
        if not self._counts:
            return None
        asked = self._guard.request(request) if self._guard else request
        body = self._payload.body(asked, self._model, self._dialect)
        if self._dialect.llama_cpp:
            reported = (await self._transport.tell(f"{self._asked}/input_tokens", body)).get("input_tokens")
        else:
            reported = (await self._transport.tell(f"{self._url.removesuffix('/v1')}/tokenize", body)).get("count")
        self._counts = bool(tokens := as_count(reported))  # one that cannot tell is not asked again
        return tokens or None
