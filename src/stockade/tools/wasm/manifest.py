"""Names and descriptions of a component's functions, `NAME.tool.json` beside it: components carry no comments.

`stockade tool build` writes it from the comments of the WIT. It grants nothing.
"""

import re
from pathlib import Path

from pydantic import Field, ValidationError

from stockade.core.data import Data
from stockade.core.errors import UsageError

SUFFIX = ".tool.json"
MAX_BYTES = 256 << 10
_FUNCTION = re.compile(r"^\s*(?:export\s+)?(%?[a-z][a-z0-9-]*)\s*:\s*(?:async\s+)?func\s*\((.*)$")
_INTERFACE = re.compile(r"^\s*(?:export\s+([a-z][a-z0-9-]*)\s*:\s*)?interface(?:\s+([a-z][a-z0-9-]*))?\s*\{")
_PARAMETER = re.compile(r"^(%?[a-z][a-z0-9-]*):\s+(.+)$")


class Told(Data):
    """Of one function; `parameters` by name."""

    name: str | None = None
    description: str = ""
    parameters: dict[str, str] = Field(default_factory=dict)


class Manifest(Data):
    """`tools`: by the function's name, as `query`, or `ops.area` for one of an interface."""

    tools: dict[str, Told] = Field(default_factory=dict)


def read_manifest(component: Path) -> Manifest:
    """The one beside it, or an empty one. UsageError when it is none."""
    path = component.with_suffix(SUFFIX)
    try:
        data = path.read_bytes()[: MAX_BYTES + 1]
    except FileNotFoundError:
        return Manifest()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise UsageError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def of_wit(text: str) -> Manifest:
    """The comments (`///`) before the functions of a WIT file. A line `NAME: words` in one is about a parameter."""
    tools: dict[str, Told] = {}
    comment: list[str] = []
    inside = ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("///"):
            comment.append(stripped.removeprefix("///").strip())
        elif found := _FUNCTION.match(line):
            name = found[1].removeprefix("%")
            tools[f"{inside}.{name}" if inside else name] = _told(comment, found[2])
            comment = []
        elif stripped:
            if opened := _INTERFACE.match(line):
                inside = opened[1] or opened[2] or ""
            elif stripped.startswith("world "):
                inside = ""
            comment = []
    return Manifest(tools={name: told for name, told in tools.items() if told.description or told.parameters})


def _told(comment: list[str], parameters: str) -> Told:
    names = {name.removeprefix("%") for name in re.findall(r"(%?[a-z][a-z0-9-]*)\s*:", parameters)}
    words: list[str] = []
    about: dict[str, str] = {}
    for line in comment:
        found = _PARAMETER.match(line)
        if found and found[1].removeprefix("%") in names:
            about[found[1].removeprefix("%")] = found[2]
        else:
            words.append(line)
    return Told(description=" ".join(words).strip(), parameters=about)
