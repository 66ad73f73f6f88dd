"""TOML of anybody: what a bot or a stranger wrote holds nobody up."""

import re
import tomllib
from typing import Any

_MAX_KEY_DOTS = 1000
_QUOTED = re.compile(r""""(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?""")
_NO_KEY = re.compile(r"[^\w \t.-]+")


def parse_toml(text: str) -> dict[str, Any]:
    """ValueError, and nothing else, for what is not TOML or nested too deeply."""
    keys = _NO_KEY.split(_QUOTED.sub("q", text))
    if any(key.count(".") > _MAX_KEY_DOTS for key in keys):  # tomllib's time is their number squared
        raise ValueError(f"a key has more than {_MAX_KEY_DOTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
