"""What a model costs: a table in prices.toml, and the user's own, which goes first."""

import fnmatch
import re
from pathlib import Path

from platformdirs import user_config_path
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from stockade.core.data import Data
from stockade.core.errors import UsageError
from stockade.core.messages import Usage
from stockade.paths import read_toml

MAX_FILE_BYTES = 1_000_000
_DATED = re.compile(r"-\d{4}-?\d\d-?\d\d$")
_MILLION = 1_000_000


class Price(Data):
    """USD per million tokens. `cached` and `cache_write` are as `input` where they are None. `window` in tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached: float | None = Field(default=None, ge=0)
    cache_write: float | None = Field(default=None, ge=0)
    window: int | None = Field(default=None, gt=0)

    def cost(self, usage: Usage, written_tokens: int = 0) -> float:
        """USD of one answer; `written_tokens` of its prompt were put into the provider's cache."""
        cached = self.input if self.cached is None else self.cached
        write = self.input if self.cache_write is None else self.cache_write
        plain = max(0, usage.prompt_tokens - usage.cached_tokens - written_tokens)
        spent = plain * self.input + usage.cached_tokens * cached + written_tokens * write
        return (spent + usage.completion_tokens * self.output) / _MILLION


FREE = Price(input=0, output=0)
_TABLE = TypeAdapter(dict[str, Price], config=ConfigDict(defer_build=True))


def own_table() -> Path:
    """Where a person writes prices: `$XDG_CONFIG_HOME/stockade/prices.toml`."""
    return user_config_path("stockade", appauthor=False) / "prices.toml"


def price_of(model: str, own: Path | None = None) -> Price | None:
    """The price of `PROVIDER/NAME`; None when nobody told. UsageError when the user's table cannot be read."""
    for table in (_read(own or own_table()), _read(Path(__file__).with_name("prices.toml"))):
        names = (model, _DATED.sub("", model))
        patterns = [pattern for pattern in table if any(fnmatch.fnmatchcase(name, pattern) for name in names)]
        if patterns:
            # The most exact one: the longest pattern, its wildcards not counted.
            return table[max(patterns, key=lambda pattern: len(pattern.replace("*", "")))]
    return None


def _read(path: Path) -> dict[str, Price]:
    try:
        return _TABLE.validate_python(read_toml(path, MAX_FILE_BYTES, "table of prices"))
    except FileNotFoundError:
        return {}
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name, *where = map(str, first["loc"])
        raise UsageError(
            f"{path}: {name!r}{''.join(f', {part}' for part in where)}: {first['msg']}",
            'write "openai/NAME" = { input = 1.0, output = 4.0 }, in USD per million tokens',
        ) from error
