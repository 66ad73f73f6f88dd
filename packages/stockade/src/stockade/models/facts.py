"""What a server tells of a model before it is asked: its window, and what its template has.

Servers without these addresses are fine; no server, or a key that it refuses, is not.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stockade.models.openai_request import Dialect
from stockade.models.replies import as_count, as_dict, as_text, parse_size_label
from stockade.models.transport import Transport

OLLAMA_DEFAULT_WINDOW = 4096
ENOUGH_WINDOW = 16_384
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,15})\s*$", re.MULTILINE)


@dataclass
class Facts:
    """`told`: counts by their names in core.messages.ModelInfo (`context_window` in tokens, `parameters`), and
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
    rows = _rows(await transport.tell(f"{transport.url}/models{query}"), "data")
    # Where the server has one only, that one, whatever its name is.
    row = next((row for row in rows if row.get("id") == model), rows[0] if len(rows) == 1 else {})
    meta = as_dict(row.get("meta"))
    windows = (row.get("max_model_len"), row.get("context_window"), meta.get("n_ctx"), meta.get("n_ctx_train"))
    facts.tell("context_window", next(filter(None, map(as_count, windows)), 0), listing)
    facts.tell("parameters", as_count(meta.get("n_params")), listing)
    if dialect.llama_cpp:
        _from_props(await transport.tell(f"{root}/props"), facts)
    elif dialect.server == "ollama":
        await _from_ollama(transport, root, model, facts)
    elif dialect.server == "lm-studio":
        await _from_lm_studio(transport, root, model, facts)
    return facts


def _from_props(props: dict[str, Any], facts: Facts) -> None:
    """llama.cpp: the window of one slot, and what its template can do."""
    window = as_count(as_dict(props.get("default_generation_settings")).get("n_ctx"))
    facts.tell("context_window", window, "the server's /props")
    facts.props = props
    caps = as_dict(props.get("chat_template_caps"))
    can = {"system": caps.get("supports_system_role")}
    can["tools"] = caps.get("supports_tool_calls", caps.get("supports_tools"))
    facts.lacks = {role for role, has in can.items() if has is False}


async def _from_lm_studio(transport: Transport, root: str, model: str, facts: Facts) -> None:
    """What it was loaded with; the rest of a longer prompt is cut from the middle without a word.

    The size is its `params_string`, as "7B": https://lmstudio.ai/docs/developer/rest/list.
    """
    about = await transport.tell(f"{root}/api/v0/models/{model}")
    facts.tell("context_window", as_count(about.get("loaded_context_length")), "LM Studio's /api/v0/models")
    facts.advise("LM Studio", model, as_count(about.get("max_context_length")), "load it with a larger one")
    rows = _rows(await transport.tell(f"{root}/api/v1/models"), "models")
    size = next((as_text(row.get("params_string")) for row in rows if row.get("key") == model), "")
    facts.tell("parameters", parse_size_label(size), "LM Studio's /api/v1/models")


async def _from_ollama(transport: Transport, root: str, model: str, facts: Facts) -> None:
    """Ollama cuts what is longer than its window without a word, and its window is not the model's.

    In this order: what it has the model loaded with now, what the model file asks for, what it does by default.
    """
    about = await transport.tell(f"{root}/api/show", json.dumps({"model": model}).encode())
    metadata = as_dict(about.get("model_info"))
    lengths = (as_count(value) for name, value in metadata.items() if name.endswith(".context_length"))
    trained = next(filter(None, lengths), 0)
    running = _rows(await transport.tell(f"{root}/api/ps"), "models")
    loaded = (row.get("context_length") for row in running if row.get("name") in (model, f"{model}:latest"))
    requested = _NUM_CTX.search(as_text(about.get("parameters")))
    if about:
        default = min(OLLAMA_DEFAULT_WINDOW, trained or OLLAMA_DEFAULT_WINDOW)
        facts.tell("context_window", default, "Ollama's own default")
    facts.tell("context_window", int(requested[1]) if requested else 0, "num_ctx in Ollama's /api/show")
    facts.tell("context_window", next(filter(None, map(as_count, loaded)), 0), "Ollama's /api/ps")
    size = parse_size_label(as_text(as_dict(about.get("details")).get("parameter_size")))
    facts.tell("parameters", as_count(metadata.get("general.parameter_count")) or size, "Ollama's /api/show")
    facts.advise("ollama", model, trained, "OLLAMA_CONTEXT_LENGTH=N ollama serve")
    facts.elsewhere = bool(about.get("remote_host"))


def _rows(listing: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    rows = listing.get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
