"""What a component says of itself, made fit for a model: names that squat on nothing, texts of bounded length."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from stockade.core.actions import BUILT_IN_TOOLS
from stockade.core.errors import UsageError
from stockade.core.tools import MAX_NAME_CHARS

MAX_DESCRIPTION_CHARS = 600
MAX_PARAMETER_CHARS = 200
_SPECIAL = re.compile(r"<[|/｜]?[^<>]{0,40}[|｜]>|</?(?:s|tool_call|tool_response|think)>|\[/?INST\]|<<?/?SYS>>?")
"""Tokens of chat templates: they would speak with another's voice."""
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_VERSION = re.compile(r"@[0-9][^/#]*")


def cleaned(text: object, limit: int = MAX_DESCRIPTION_CHARS) -> str:
    """One line of printable text without a template's tokens, cut at `limit`."""
    words = "".join(char if char.isprintable() else " " for char in str(text)[: 8 * limit])
    while (found := _SPECIAL.sub(" ", words)) != words:
        words = found
    line = " ".join(words.split())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."


def key_of(path: tuple[str, ...]) -> str:
    """How policies and manifests call a function: `query`, or `ops.area` for one of an interface."""
    parts = [_VERSION.sub("", part).rpartition("/")[2] for part in path]
    return ".".join(parts)


def fit(text: str) -> str:
    """Letters, digits, `_` and `-`, beginning with a letter; empty when nothing is left."""
    name = _UNFIT.sub("_", text).strip("_-")
    if name and not name[0].isalpha():
        name = f"t_{name}"
    return name[:MAX_NAME_CHARS]


def squats(name: str) -> bool:
    """Whether a model could take it for a built-in tool: case and the kind of hyphen do not tell them apart."""
    return _alike(name) in {_alike(known) for known in BUILT_IN_TOOLS}


def _alike(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def name_for(stem: str, key: str, alone: bool) -> str:
    """The name of an exported function: the component's and its own, so that it cannot be another's."""
    component, function = fit(stem.replace("-", "_")), fit(key.replace("-", "_"))
    if (alone and component == function) or not component:
        return function
    return fit(f"{component}_{function}")


def checked(name: str, taken: Collection[str], where: str) -> str:
    """The name. UsageError when it is a built-in tool's or already taken, with the way to another one."""
    way_out = "give it another name in the policy file: tools: {FUNCTION: {name: ...}}"
    if not name:
        raise UsageError(f"{where} has no name that can be used", way_out)
    if squats(name):
        raise UsageError(f"{where} calls itself {name!r}, which is built in", way_out)
    if _alike(name) in {_alike(other) for other in taken}:
        raise UsageError(f"{where}: another tool is called {name!r} already", way_out)
    return name


def with_descriptions(schema: Mapping[str, Any], descriptions: Mapping[str, str]) -> dict[str, Any]:
    """The schema of arguments with what each is for."""
    properties = {
        name: {**kind, "description": cleaned(descriptions[name], MAX_PARAMETER_CHARS)}
        if descriptions.get(name)
        else kind
        for name, kind in schema.get("properties", {}).items()
    }
    return {**schema, "properties": properties}
