"""How models are opened, loaded and reached, as data; and what the user is told meanwhile."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from stockade.core.data import Data

OnProgress = Callable[[str, int, int], None]
"""(text, done_bytes, total_bytes); total is 0 where there is nothing to count. From the event loop; must not block."""

OnBytes = Callable[[int, int], None]
"""(done_bytes, total_bytes) of one file."""


def silent(_text: str, _done: int, _total: int) -> None:
    """For callers who do not want to hear."""


def readable(size: int) -> str:
    """`98 MB`, `1.1 GB`: decimal units, as hubs and disks print them."""
    return f"{size / 1e9:.1f} GB" if size >= 1_000_000_000 else f"{max(1, round(size / 1e6))} MB"


DEFAULT_WINDOW = 8192


class ModelSettings(Data):
    """None leaves it to a default. `ctx_size` is the window in tokens of one slot; `gpu_layers` -1: as many as fit;
    `more` are further parameters by their name (core.model_options.LoadOptions).

    `folder` is where model files are kept. `alone`: nobody shares the server, which has one slot: what others ask at
    the same time changes the last bits, and with them sooner or later the words. `slots` is how many conversations the
    embedded server holds at once; `keep_warm_s` how long it stays after its last user. `llama_server` names a stock
    server to take instead of ours; `off` is ours. `api`: which of OpenAI's an `openai/NAME` is asked by.
    """

    ctx_size: int | None = Field(default=None, ge=256, le=16_777_216)
    slots: int | None = Field(default=None, ge=1, le=64)
    alone: bool = False
    keep_warm_s: float = Field(default=0.0, ge=0)
    llama_server: str | None = None
    api: Literal["auto", "chat", "responses"] = "auto"
    threads: int | None = Field(default=None, ge=1, le=1024)
    gpu_layers: int | None = Field(default=None, ge=-1)
    more: dict[str, Any] = Field(default_factory=dict)
    load_timeout_s: float = Field(default=600.0, gt=0)
    folder: Path | None = None


class ModelChoice(Data):
    """What `auto` stands for, and a line that says why and how to get a better one."""

    spec: str
    note: str | None = None


@dataclass(frozen=True, slots=True)
class ModelContext:
    """What a provider may need to open a model. `environment`: the variables that say where its server is, and keys."""

    provider: str
    settings: ModelSettings = field(default_factory=ModelSettings)
    on_progress: OnProgress = silent
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
