"""What a server tells of a model before it is asked: its window, and what its template has.

Servers without these addresses are fine; no server, or a key that it refuses, is not.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from stockade.core.data import Data
from stockade.models.openai_request import Dialect
from stockade.models.replies import as_count, as_dict, parse_size_label
from stockade.models.transport import Transport

OLLAMA_DEFAULT_WINDOW = 4096
ENOUGH_WINDOW = 16_384
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,15})\s*$", re.MULTILINE)


class Facts(Data):
    """`window` in tokens, None when nobody says. `system_role` and `tool_roles` False: the template lacks them.

    `parameters` counts all of the model's, None when nobody says. `sources` has the address that told a value, by the
    names of core.messages.ModelInfo. `elsewhere`: the server on this machine hands what it is asked to another one.
    `props` is llama.cpp's own description. `advice` is a line for the user, where the server's window is smaller than
    the model's.
    """

    window: int | None = None
    system_role: bool | None = None
    tool_roles: bool | None = None
    advice: str = ""
    props: dict[str, Any] = Field(default_factory=dict)
    parameters: int | None = None
    sources: dict[str, str] = Field(default_factory=dict)
    elsewhere: bool = False


def _sources(**told: int | str | None) -> dict[str, str]:
    """Without those that told nothing."""
    return {name: source for name, source in told.items() if isinstance(source, str)}


async def learn(transport: Transport, dialect: Dialect, model: str, query: str = "") -> Facts:
    """Asked on entering. Raises ModelUnavailable where asking the model would be in vain."""
    listed = await transport.tell(f"{transport.url}/models{query}")
    mine = _listed(listed, model)
    counted = _positive(as_dict(mine.get("meta")).get("n_params"))
    window, listing = _listed_window(mine), "the server's /v1/models"
    sources = _sources(context_window=window and listing, parameters=counted and listing)
    facts = Facts(window=window, parameters=counted, sources=sources)
    root = transport.url.removesuffix("/v1")
    if dialect.llama_cpp:
        return _from_props(await transport.tell(f"{root}/props"), facts)
    if dialect.server == "ollama":
        return await _from_ollama(transport, root, model)
    if dialect.server == "lm-studio":
        about = await transport.tell(f"{root}/api/v0/models/{model}")
        # What it was loaded with; the rest of a longer prompt is cut from the middle without a word.
        window, trained = (_positive(about.get(name)) for name in ("loaded_context_length", "max_context_length"))
        window = window or facts.window
        advice = _advice("LM Studio", model, window, trained, "load it with a larger one")
        parameters = _lm_studio_parameters(await transport.tell(f"{root}/api/v1/models"), model)
        sources = _sources(
            context_window=window and "LM Studio's /api/v0/models",
            parameters=parameters and "LM Studio's /api/v1/models",
        )
        return Facts(window=window, advice=advice, parameters=parameters, sources=sources)
    return facts


def _lm_studio_parameters(listed: Mapping[str, Any], model: str) -> int | None:
    """Of `params_string`, as "7B": https://lmstudio.ai/docs/developer/rest/list."""
    rows = listed.get("models")
    for row in map(as_dict, rows if isinstance(rows, list) else []):
        if row.get("key") == model and isinstance(size := row.get("params_string"), str):
            return parse_size_label(size)
    return None


def _listed(listed: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The row of the model; where the server has one only, that one, whatever its name is."""
    items = _items(listed)
    return next((item for item in items if item.get("id") == model), items[0] if len(items) == 1 else {})


def _listed_window(mine: Mapping[str, Any]) -> int | None:
    meta = as_dict(mine.get("meta"))
    named = (mine.get("max_model_len"), mine.get("context_window"), meta.get("n_ctx"), meta.get("n_ctx_train"))
    return next((window for value in named if (window := _positive(value))), None)


def _from_props(props: Mapping[str, Any], facts: Facts) -> Facts:
    """llama.cpp: the window of one slot, and what its template can do."""
    window = _positive(as_dict(props.get("default_generation_settings")).get("n_ctx"))
    caps = as_dict(props.get("chat_template_caps"))
    tools = caps.get("supports_tool_calls", caps.get("supports_tools"))
    return facts.model_copy(
        update={
            "window": window or facts.window,
            "props": dict(props),
            "sources": facts.sources | _sources(context_window=window and "the server's /props"),
            "system_role": _boolean(caps.get("supports_system_role")),
            "tool_roles": _boolean(tools),
        }
    )


async def _from_ollama(transport: Transport, root: str, model: str) -> Facts:
    """Ollama cuts what is longer than its window without a word, and its window is not the model's.

    In this order: what it has the model loaded with now, what the model file asks for, what it does by default.
    """
    about = await transport.tell(f"{root}/api/show", json.dumps({"model": model}).encode())
    metadata = as_dict(about.get("model_info"))
    trained = next(
        (size for name, value in metadata.items() if name.endswith(".context_length") and (size := _positive(value))),
        None,
    )
    size = as_dict(about.get("details")).get("parameter_size")
    counted = _positive(metadata.get("general.parameter_count")) or (
        parse_size_label(size) if isinstance(size, str) else None
    )
    parameters = about.get("parameters")
    asked = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    window, source = _running_window(await transport.tell(f"{root}/api/ps"), model), "Ollama's /api/ps"
    if window is None and asked:
        window, source = int(asked[1]), "num_ctx in Ollama's /api/show"
    elif window is None and about:
        window, source = min(OLLAMA_DEFAULT_WINDOW, trained or OLLAMA_DEFAULT_WINDOW), "Ollama's own default"
    return Facts(
        window=window, advice=_advice("ollama", model, window, trained, "OLLAMA_CONTEXT_LENGTH=N ollama serve"),
        parameters=counted, elsewhere=bool(about.get("remote_host")),
        sources=_sources(context_window=window and source, parameters=counted and "Ollama's /api/show"),
    )  # fmt: skip


def _running_window(running: Mapping[str, Any], model: str) -> int | None:
    items = running.get("models")
    for item in map(as_dict, items if isinstance(items, list) else []):
        if item.get("name") in (model, f"{model}:latest") and (window := _positive(item.get("context_length"))):
            return window
    return None


def _advice(server: str, model: str, window: int | None, trained: int | None, how: str) -> str:
    if window is None or trained is None or window >= min(trained, ENOUGH_WINDOW):
        return ""
    return (
        f"{server} gives {model} a window of {window} tokens of the {trained} that it was made for: "
        f"older results will be shown to it in short; for more: {how}"
    )


def _items(listing: Mapping[str, Any]) -> list[dict[str, Any]]:
    data = listing.get("data")
    return [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []


def _positive(value: object) -> int | None:
    return as_count(value) or None


def _boolean(value: object) -> bool | None:
    return value if isinstance(value, bool) else None
