"""What a server tells of a model before it is asked: its window, and what its template has.

Servers without these addresses are fine; no server, or a key that it refuses, is not.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from stockade.core.data import Data
from stockade.models.payload import Dialect
from stockade.models.transport import Transport
from stockade.models.values import as_count, as_dict

OLLAMA_DEFAULT_WINDOW = 4096
ENOUGH_WINDOW = 16_384
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,15})\s*$", re.MULTILINE)


class Facts(Data):
    """`window` in tokens, None when nobody says. `system_role` and `tool_roles` False: the template lacks them.

    `advice` is a line for the person, where the server's window is smaller than the model's.
    """

    window: int | None = None
    system_role: bool | None = None
    tool_roles: bool | None = None
    advice: str = ""


async def learn(transport: Transport, dialect: Dialect, model: str, query: str = "") -> Facts:
    """Asked on entering. Raises ModelUnavailable where asking the model would be in vain."""
    listed = await transport.tell(f"{transport.url}/models{query}")
    facts = Facts(window=_listed_window(listed, model))
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
        return Facts(window=window, advice=_advice("LM Studio", model, window, trained, "load it with a larger one"))
    return facts


def _listed_window(listed: Mapping[str, Any], model: str) -> int | None:
    items = _items(listed)
    mine = next((item for item in items if item.get("id") == model), items[0] if len(items) == 1 else {})
    meta = as_dict(mine.get("meta"))
    named = (mine.get("max_model_len"), mine.get("context_window"), meta.get("n_ctx"), meta.get("n_ctx_train"))
    return next((window for value in named if (window := _positive(value))), None)


def _from_props(props: Mapping[str, Any], facts: Facts) -> Facts:
    """llama.cpp: the window of one slot, and what its template can do."""
    window = _positive(as_dict(props.get("default_generation_settings")).get("n_ctx"))
    caps = as_dict(props.get("chat_template_caps"))
    tools = caps.get("supports_tool_calls", caps.get("supports_tools"))
    return Facts(
        window=window or facts.window,
        system_role=_boolean(caps.get("supports_system_role")),
        tool_roles=_boolean(tools),
    )


async def _from_ollama(transport: Transport, root: str, model: str) -> Facts:
    """Ollama cuts what is longer than its window without a word, and its window is not the model's.

    In this order: what it has the model loaded with now, what the model file asks for, what it does by default.
    """
    about = await transport.tell(f"{root}/api/show", json.dumps({"model": model}).encode())
    trained = next(
        (size for name, value in as_dict(about.get("model_info")).items()
         if name.endswith(".context_length") and (size := _positive(value))), None,
    )  # fmt: skip
    parameters = about.get("parameters")
    asked = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    window = _running_window(await transport.tell(f"{root}/api/ps"), model) or (int(asked[1]) if asked else None)
    window = window or (min(OLLAMA_DEFAULT_WINDOW, trained or OLLAMA_DEFAULT_WINDOW) if about else None)
    return Facts(
        window=window, advice=_advice("ollama", model, window, trained, "OLLAMA_CONTEXT_LENGTH=N ollama serve")
    )


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
