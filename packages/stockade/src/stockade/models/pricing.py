"""What models cost: the table that comes with Stockade, the user's newer copy of it, and what they wrote themselves,
which goes first.
"""

import fnmatch
import json
import re
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from stockade.core.data import Data
from stockade.core.errors import UsageError
from stockade.core.messages import Usage
from stockade.core.text import one_line
from stockade.models.replies import as_count, as_dict, as_text, parsed
from stockade.paths import read_toml, write_whole
from stockade_sandbox.processes import own_folder
from stockade_sandbox.toml import parse_toml

MAX_FILE_BYTES = 1_000_000
MAX_UPDATE_BYTES = 8_000_000
MAX_PRICES = 5000
_DATED = re.compile(r"-\d{4}-?\d\d-?\d\d$")
_MILLION = 1_000_000


class Price(Data):
    """USD per million tokens. `cached` and `cache_write` are as `input` where they are None. `window` in tokens.
    `images`: whether the model takes them, None where nobody says. `date`: of which day the figures are.
    """

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    cache_write: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    window: int | None = Field(default=None, gt=0)
    images: bool | None = None
    date: str = Field(default="", max_length=10, pattern=r"^[0-9-]*$")

    @property
    def told(self) -> dict[str, str]:
        """What of core.messages.ModelInfo the table says."""
        fields = {"context_window": self.window, "sees": self.images}
        table = f"the price table of {self.date}" if self.date else "the price table"
        return {name: table for name, value in fields.items() if value is not None}

    def cost(self, usage: Usage, written_tokens: int = 0) -> float:
        """USD of one answer; `written_tokens` of its prompt were put into the provider's cache."""
        cached = self.input if self.cached is None else self.cached
        write = self.input if self.cache_write is None else self.cache_write
        plain = max(0, usage.prompt_tokens - usage.cached_tokens - written_tokens)
        spent = plain * self.input + usage.cached_tokens * cached + written_tokens * write
        return (spent + usage.completion_tokens * self.output) / _MILLION

    def priced(self, usage: Usage, written_tokens: int = 0) -> Usage:
        """`usage` with what it cost, and what the thinking in it did."""
        thinking = usage.thinking_tokens * self.output / _MILLION
        return usage.model_copy(update={"cost": self.cost(usage, written_tokens), "thinking_cost": thinking})


FREE = Price(input=0, output=0)


class PriceTable(Data):
    """Prices by `PROVIDER/NAME`, in which `*` stands for anything. `date`: of which day they are; `source`: of whom."""

    prices: dict[str, Price]
    date: str = Field(default="", max_length=10, pattern=r"^[0-9-]*$")
    source: str = ""

    def of(self, model: str) -> Price | None:
        """The most exact one: the longest pattern, its wildcards not counted. A name stands for its dated versions."""
        names = (model, _DATED.sub("", model))
        patterns = [pattern for pattern in self.prices if any(fnmatch.fnmatchcase(name, pattern) for name in names)]
        if not patterns:
            return None
        price = self.prices[max(patterns, key=lambda pattern: len(pattern.replace("*", "")))]
        return price if price.date or not self.date else price.model_copy(update={"date": self.date})


def own_table() -> Path:
    """Where a person writes prices: `$XDG_CONFIG_HOME/stockade/prices.toml`."""
    return own_folder("config") / "prices.toml"


def updated_table() -> Path:
    """The newer copy that `stockade model prices --update` writes: `$XDG_DATA_HOME/stockade/prices.toml`."""
    return own_folder("data") / "prices.toml"


OURS = Path(__file__).with_name("prices.toml")


def tables(own: Path | None = None) -> dict[Path, PriceTable]:
    """Those that are there, the one that goes first first. UsageError when one of the user's cannot be read."""
    paths = own or own_table(), updated_table(), OURS
    return {path: table for path in paths if (table := _read(path)) is not None}


def price_of(model: str, own: Path | None = None) -> Price | None:
    """The price of `PROVIDER/NAME`; None when nobody told. UsageError when a table of the user's cannot be read."""
    return next((price for table in tables(own).values() if (price := table.of(model)) is not None), None)


def _read(path: Path) -> PriceTable | None:
    try:
        return _checked(read_toml(path, MAX_FILE_BYTES, "table of prices"), str(path))
    except FileNotFoundError:
        return None


def _checked(rows: dict[str, Any], where: str) -> PriceTable:
    """`date` and `source` stand beside the rows."""
    about = {key: rows[key] for key in ("date", "source") if not isinstance(rows.get(key, {}), dict)}
    try:
        return PriceTable(prices={key: row for key, row in rows.items() if key not in about}, **about)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name, *inner = [str(part) for part in first["loc"] if part != "prices"]
        raise UsageError(
            f"{where}: {one_line(repr(name), 120)}{''.join(f', {part}' for part in inner)}: {first['msg']}",
            'write "openai/NAME" = { input = 1.0, output = 4.0 }, in USD per million tokens',
        ) from error


_LITELLM = {"input": "input_cost_per_token", "output": "output_cost_per_token",
            "cached": "cache_read_input_token_cost", "cache_write": "cache_creation_input_token_cost"}  # fmt: skip
_NAME = re.compile(r"[a-z-]{1,30}/[!-~]{1,150}")


def parse_prices(data: bytes, where: str, today: str) -> PriceTable:
    """A table from outside: ours in TOML, or the JSON that litellm keeps (model_prices_and_context_window.json).

    UsageError, a line, for anything else. `where` it is from, and `today`, stand for what it does not say itself.
    """
    if len(data) > MAX_UPDATE_BYTES:
        raise UsageError(f"{where} is larger than {MAX_UPDATE_BYTES} bytes: this is no table of prices", FORMS)
    value = parsed(data)
    try:
        rows = _of_litellm(value) if isinstance(value, dict) else parse_toml(data.decode())
    except ValueError:
        raise UsageError(f"{where} is no table of prices: neither TOML nor JSON", FORMS) from None
    if odd := next((key for key in rows if key not in ("date", "source") and not _NAME.fullmatch(key)), None):
        raise UsageError(f"{where} is no table of prices: {one_line(repr(odd), 80)} is no PROVIDER/NAME", FORMS)
    table = _checked(rows, where)
    if len(table.prices) > MAX_PRICES:
        raise UsageError(f"{where} has more than {MAX_PRICES} prices: this is no table of prices", FORMS)
    if not table.prices:
        raise UsageError(f"{where} has the price of no model that can be asked", FORMS)
    return table.model_copy(update={"date": table.date or today, "source": one_line(table.source or where, 200)})


FORMS = "give a file as stockade/models/prices.toml, or litellm's model_prices_and_context_window.json"


def _of_litellm(rows: dict[str, Any]) -> dict[str, Any]:
    """Those of providers that we have, with a price for both ways; the rest is left out."""
    found: dict[str, Any] = {}
    for key, row in rows.items():
        provider = as_text(as_dict(row).get("litellm_provider"))
        costs = {ours: row.get(theirs) for ours, theirs in _LITELLM.items()} if provider in HOSTED else {}
        if not all(isinstance(costs.get(name), int | float) for name in ("input", "output")):
            continue
        known = {name: round(cost * _MILLION, 6) for name, cost in costs.items() if isinstance(cost, int | float)}
        window, images = as_count(row.get("max_input_tokens")), row.get("supports_vision")
        name = key if key.startswith(f"{provider}/") else f"{provider}/{key}"
        if _NAME.fullmatch(name):
            found[name] = {**known, "window": window or None, "images": images if isinstance(images, bool) else None}
    return found


HOSTED = ("anthropic", "openai", "azure", "gemini", "deepseek", "openrouter")


def write_prices(table: PriceTable) -> Path:
    """The user's newer copy, in one step. UsageError when it cannot be written."""
    lines = [f"date = {json.dumps(table.date)}", f"source = {json.dumps(table.source)}", ""]
    for name, price in sorted(table.prices.items()):
        fields = price.model_dump(exclude_none=True, exclude_defaults=True) | {
            "input": price.input,
            "output": price.output,
        }
        lines.append(
            f"{json.dumps(name)} = {{ {', '.join(f'{key} = {json.dumps(one)}' for key, one in fields.items())} }}"
        )
    path = updated_table()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, "\n".join([*lines, ""]))
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", "look at the folder's rights") from error
    return path
