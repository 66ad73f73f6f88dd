"""What a component says of itself, made fit for a model: names that squat on nothing, texts of bounded length.

Components carry no comments: `NAME.tool.json` beside one has names and descriptions of its functions, which
`stockade tool build` writes from the comments of the WIT; it grants nothing. A component of the tool world describes
itself (`get-metadata`); that is checked, for it may say anything.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from stockade.core.actions import BUILT_IN_TOOLS
from stockade.core.data import Data
from stockade.core.errors import UsageError
from stockade.core.toolbox import wrong_words
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


SUFFIX = ".tool.json"
MAX_BYTES = 256 << 10
_FUNCTION = re.compile(r"^\s*(?:export\s+)?(%?[a-z][a-z0-9-]*)\s*:\s*(?:async\s+)?func\s*\((.*)$")
_INTERFACE = re.compile(r"^\s*(?:export\s+([a-z][a-z0-9-]*)\s*:\s*)?interface(?:\s+([a-z][a-z0-9-]*))?\s*\{")
_PARAMETER = re.compile(r"^(%?[a-z][a-z0-9-]*):\s+(.+)$")


class FunctionDocs(Data):
    """Of one function; `parameters` by name."""

    name: str | None = None
    description: str = ""
    parameters: dict[str, str] = Field(default_factory=dict)


class Manifest(Data):
    """`tools`: by the function's name, as `query`, or `ops.area` for one of an interface."""

    tools: dict[str, FunctionDocs] = Field(default_factory=dict)


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
        raise UsageError(f"{path}: {wrong_words(error)}") from None


def of_wit(text: str) -> Manifest:
    """The comments (`///`) before the functions of a WIT file. A line `NAME: words` in one is about a parameter."""
    tools: dict[str, FunctionDocs] = {}
    comment: list[str] = []
    inside = ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("///"):
            comment.append(stripped.removeprefix("///").strip())
        elif found := _FUNCTION.match(line):
            name = found[1].removeprefix("%")
            tools[f"{inside}.{name}" if inside else name] = _docs(comment, found[2])
            comment = []
        elif stripped:
            if opened := _INTERFACE.match(line):
                inside = opened[1] or opened[2] or ""
            elif stripped.startswith("world "):
                inside = ""
            comment = []
    return Manifest(tools={name: told for name, told in tools.items() if told.description or told.parameters})


def _docs(comment: list[str], parameters: str) -> FunctionDocs:
    names = {name.removeprefix("%") for name in re.findall(r"(%?[a-z][a-z0-9-]*)\s*:", parameters)}
    words: list[str] = []
    about: dict[str, str] = {}
    for line in comment:
        found = _PARAMETER.match(line)
        if found and found[1].removeprefix("%") in names:
            about[found[1].removeprefix("%")] = found[2]
        else:
            words.append(line)
    return FunctionDocs(description=" ".join(words).strip(), parameters=about)


MAX_PARAMETERS = 32
MAX_EXAMPLES = 2
_TYPES = {"string": "string", "str": "string", "text": "string", "integer": "integer", "int": "integer",
          "u32": "integer", "number": "number", "float": "number", "boolean": "boolean", "bool": "boolean"}  # fmt: skip


class Parameter(Data):
    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}$")
    description: str = ""
    type: str = "string"
    required: bool = True


class Usage(Data):
    user: str
    assistent: str


class Metadata(Data):
    """`tool-metadata` of llama-cpp:tool."""

    name: str
    description: str
    version: str
    params: tuple[Parameter, ...] = Field(max_length=MAX_PARAMETERS)
    usage: tuple[Usage, ...] = ()

    @property
    def tool_name(self) -> str:
        return fit(cleaned(self.name, 80))


def read_metadata(found: dict[str, Any] | None, what: str) -> Metadata:
    """UsageError when it cannot be: the component is not used then, rather than under a half-true description."""
    if found is None or "error" in found:
        raise UsageError(f"{what}: {cleaned((found or {}).get('error', 'it has no metadata'), 200)}")
    try:
        metadata = Metadata.model_validate(found)
    except ValidationError as error:
        raise UsageError(f"{what}: its metadata cannot be used: {cleaned(wrong_words(error), 300)}") from None
    names = [parameter.name for parameter in metadata.params]
    if len(set(names)) != len(names):
        raise UsageError(f"{what}: its metadata cannot be used: two parameters have one name")
    return metadata


def schema_of(metadata: Metadata) -> dict[str, Any]:
    """The parameters as a JSON schema; every value reaches the tool as a string, as the world has it."""
    properties: dict[str, Any] = {}
    for parameter in metadata.params:
        kind = _TYPES.get(parameter.type.strip().lower())
        words = cleaned(parameter.description, MAX_PARAMETER_CHARS)
        if kind is None:
            words = f"{words} ({cleaned(parameter.type, 40)})".strip()
        properties[parameter.name] = {"type": kind or "string", **({"description": words} if words else {})}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required := [parameter.name for parameter in metadata.params if parameter.required]:
        schema["required"] = required
    return schema


def description_of(metadata: Metadata) -> str:
    """Its description, and its usage examples as the arguments that they show."""
    words = cleaned(metadata.description, 400)
    for usage in metadata.usage[:MAX_EXAMPLES]:
        _, call, arguments = usage.assistent.partition("USE_TOOL:")
        shown = arguments.partition(",")[2] if call else usage.assistent
        if shown.strip():
            words = f"{words} Example: {cleaned(usage.user, 80)} -> {cleaned(shown, 80)}"
    return words
