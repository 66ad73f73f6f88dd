"""Where settings stand beside the flags, and the settings of a call in which all of them are plain: that needs neither
the checks nor the merging of settings.py, whose import costs more than a sandbox.
"""

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stockade.core.settings import RunSettings, fields
from stockade.paths import MAX_FILE_BYTES, PROJECT_FILE, current_folder, read_toml
from stockade_sandbox.policy import LEAST_PROCESSES, parse_memory, parse_network, parse_size
from stockade_sandbox.processes import own_folder

PREFIX = "STOCKADE_"
SERVERS_FILE = ".mcp.json"
OTHER_VARIABLES = frozenset(
    {
        "STOCKADE_ALLOW_ROOT_UNCONFINED",
        "STOCKADE_MODELS",
        "STOCKADE_GOAL",
        "STOCKADE_TOKEN",
        "STOCKADE_TOKEN_FILE",
    }
)
_CHECKS = {"net": parse_network, "memory": parse_memory, "disk": parse_size}


def config_file() -> Path:
    """The user's, which need not be there. UsageError where nobody says where their home is."""
    return own_folder("config") / "config.toml"


def plain_settings(flags: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> RunSettings | None:
    """What settings.load would give, where all that is set is plainly right, and set in one place only or overridden.

    None where that cannot be told here: settings.load merges it, or says what is wrong. UsageError for a user's file
    that cannot be read, and when the current folder is gone.
    """
    if os.path.lexists(current_folder() / PROJECT_FILE):
        return None
    variables = dict(os.environ if environ is None else environ)
    if any(name.startswith("LLAMA_") for name in variables):
        return None
    result, given = RunSettings(), {key: value for key, value in flags.items() if value != ()}
    for source in (_of_user(), dict(_of_variables(variables)), given):
        for key, value in source.items():
            if not _is_plain(key, value):
                return None
            setattr(result, key, value)
    return result


def _of_user() -> Mapping[str, Any]:
    path = config_file()
    if not os.path.lexists(path):
        return {}
    return {key: tuple(value) if isinstance(value, list) else value
            for key, value in read_toml(path, MAX_FILE_BYTES, "configuration").items()}  # fmt: skip


def _of_variables(variables: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    """Only texts and numbers are read here; what may be a list, or none of that, is no plain value of its setting."""
    for name, text in variables.items():
        if name.startswith(PREFIX) and name not in OTHER_VARIABLES and text:
            key = name.removeprefix(PREFIX).lower()
            field = fields(RunSettings).get(key)
            number = field is not None and field.kind in (int, float) and text.isascii() and text.isdecimal()
            yield key, field.kind(text) if field is not None and number else text


def _is_plain(key: str, value: Any) -> bool:
    """Whether it is a setting of that very name, of its type and within its bounds."""
    field = fields(RunSettings).get(key)
    if field is None or not hasattr(RunSettings, key):
        return False
    if field.many:  # what is to be hidden is hidden wherever it is named: that is merged
        texts = isinstance(value, tuple) and all(isinstance(one, str) and one.isprintable() for one in value)
        return texts and key != "redact"
    if field.kind not in (str, int, float) or not isinstance(value, field.kind) or isinstance(value, bool):
        return False
    if isinstance(value, str):
        return value.isprintable() and _passes(key, value)
    bounds = field.setting
    least = LEAST_PROCESSES if key == "processes" and value else bounds.ge
    within = math.isfinite(value) and (least is None or value >= least) and (bounds.gt is None or value > bounds.gt)
    return within and (bounds.le is None or value <= bounds.le)


def _passes(key: str, text: str) -> bool:
    try:
        _CHECKS.get(key, str)(text)
    except ValueError:
        return False
    return True
