"""TOML of anybody: what a bot or a stranger wrote holds nobody up."""

import re
import tomllib
from typing import Any

_MAX_KEY_DOTS = 1000
_NO_KEY = re.compile(rb"[^\w\"' \t.-]+")


def parse_toml(data: bytes) -> dict[str, Any]:
    """ValueError, and nothing else, for what is not TOML, not UTF-8 or nested too deeply."""
    if any(run.count(b".") > _MAX_KEY_DOTS for run in _NO_KEY.split(data)):  # tomllib's time is their number squared
        raise ValueError(f"a key has more than {_MAX_KEY_DOTS} parts")
    try:
        return tomllib.loads(data.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
