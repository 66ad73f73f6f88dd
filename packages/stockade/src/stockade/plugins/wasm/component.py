"""A component as it was found: what it exports as tools, what it asks for, what it cannot do here; and what it says of
itself, made fit for a model: names that squat on nothing, texts of bounded length.

Components carry no comments: their policy file has names and descriptions of their functions. A component of the tool
world describes itself (`get-metadata`); that is checked, for it may say anything.
"""

import json
import re
from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from stockade.core.actions import BUILT_IN_TOOLS
from stockade.core.data import Data, wrong_words
from stockade.core.errors import UsageError
from stockade.core.tools import MAX_NAME_CHARS, ToolSpec
from stockade.plugins.wasm.policy import Naming, ToolPolicy

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
    """How policies call a function: `query`, or `ops.area` for one of an interface."""
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


WASI_HTTP = "wasi:http/"
HTTP_IMPORT = "stockade:tool/http@0.1."
MAX_SCHEMA_CHARS = 16_000
MAX_COMPONENT_BYTES = 60 << 20
_MAGIC = b"\0asm"
_COMPONENT_LAYER = b"\x01\x00"
_WORLD = (("execute",), ("get-metadata",), ("run",))


class Function(Data):
    """An exported function: its path, and JSON schemas of what it takes and gives."""

    path: tuple[str, ...] = Field(min_length=1, max_length=2)
    parameters: dict[str, Any]
    result: dict[str, Any] | None = None


class Skipped(Data):
    """A function that is no tool, and why."""

    path: tuple[str, ...]
    reason: str


class Description(Data):
    """What was found by looking at it inside the sandbox; a hostile component had its hands on none of it but
    `metadata`."""

    functions: tuple[Function, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    imports: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        return (*(one.path for one in self.functions), *(one.path for one in self.skipped))


class Tool(Data):
    """One function as a tool. `strings`: by the tool world's `execute`, pairs of strings in, tool-result out."""

    spec: ToolSpec
    path: tuple[str, ...]
    strings: bool = False


class Component(Data):
    """A component that can be used: `compiled` is the file of ours that its code is in."""

    file: str
    sha256: str
    size: int
    compiled: str
    policy: ToolPolicy
    policy_file: str | None
    tools: tuple[Tool, ...]
    skipped: tuple[Skipped, ...]
    imports: tuple[str, ...]
    metadata: Metadata | None = None

    @property
    def name(self) -> str:
        return Path(self.file).name


def read_component(path: Path) -> bytes:
    """Its bytes. UsageError when it is none: the name, the size, a core module, or something else."""
    if path.suffix != ".wasm":
        raise UsageError(
            f"File '{path}' must have a .wasm extension", "give a component; `stockade tool list` names those here"
        )
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no file")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_COMPONENT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_COMPONENT_BYTES:
        raise UsageError(f"{path} is larger than {MAX_COMPONENT_BYTES >> 20} MiB", "strip it: wasm-tools strip -a")
    if data[:4] != _MAGIC:
        raise UsageError(f"{path} is no WebAssembly file")
    if data[6:8] != _COMPONENT_LAYER:
        raise UsageError(
            f"{path} is a core module, not a component", "`stockade tool build` or wasm-tools component new"
        )
    return data


def read_description(text: str, what: str) -> Description:
    """UsageError when what came out of the sandbox is no description."""
    try:
        return Description.model_validate_json(text)
    except ValidationError:
        raise UsageError(f"{what}: what it exports cannot be understood") from None


def understood(
    path: Path, data: bytes, compiled: Path, found: Description, rules: ToolPolicy, policy: Path | None
) -> Component:
    """The component of these bytes, held to the `rules` in the file `policy`, with its tools named and described.

    UsageError when it asks for what is not given here.
    """
    check_imports(found.imports, path.name, rules)
    metadata = read_metadata(found.metadata, path.name) if _is_tool_world(found) else None
    skipped: list[Skipped] = list(found.skipped)
    if metadata is not None:
        tools: tuple[Tool, ...] = (_world_tool(metadata, rules, path),)
    else:
        tools = _typed_tools(found, rules, path, skipped)
    unknown = set(rules.tools) - {key_of(path) for path in found.paths}
    if unknown:
        raise UsageError(f"{policy}: tools: the component has no function {sorted(unknown)[0]!r}")
    if not tools:
        why = f": {key_of(skipped[0].path)}: {skipped[0].reason}" if skipped else ""
        raise UsageError(f"{path} exports no function that could be a tool{why}")
    return Component(
        file=str(path),
        sha256=sha256(data).hexdigest(),
        size=len(data),
        compiled=str(compiled),
        policy=rules,
        policy_file=str(policy) if policy else None,
        tools=tools,
        skipped=tuple(skipped),
        imports=found.imports,
        metadata=metadata,
    )


def check_imports(imports: tuple[str, ...], what: str, rules: ToolPolicy) -> None:
    """UsageError for an import that nobody here gives: better than a trap in the middle of a run."""
    for name in imports:
        if name.startswith(WASI_HTTP) and not rules.asks_anybody:
            raise UsageError(
                f"{what} imports {name}, which knows no list of hosts; its policy has to allow all that --net does",
                'let it: permissions: network: allow: [{host: "*"}]; or build it against stockade:tool/http (wit/)',
            )
        if not name.startswith(("wasi:", HTTP_IMPORT)):
            raise UsageError(f"{what} imports {cleaned(name, 80)}, which there is not here", "see docs/wasm.md")


def _is_tool_world(found: Description) -> bool:
    paths = {one.path for one in found.functions}
    return found.metadata is not None and paths >= {("execute",), ("get-metadata",)}


def _world_tool(metadata: Metadata, rules: ToolPolicy, path: Path) -> Tool:
    naming = rules.tools.get("execute") or Naming()
    name = checked(naming.name or metadata.tool_name, (), path.name)
    description = cleaned(naming.description) if naming.description else description_of(metadata)
    spec = ToolSpec(name=name, description=description, parameters=schema_of(metadata))
    return Tool(spec=spec, path=("execute",), strings=True)


def _typed_tools(found: Description, rules: ToolPolicy, path: Path, skipped: list[Skipped]) -> tuple[Tool, ...]:
    functions = [one for one in found.functions if found.metadata is None or one.path not in _WORLD]
    tools: list[Tool] = []
    for function in functions:
        key = key_of(function.path)
        naming = rules.tools.get(key) or Naming()
        if not naming.offered:
            skipped.append(Skipped(path=function.path, reason="its policy does not offer it"))
            continue
        parameters = with_descriptions(function.parameters, naming.parameters)
        if len(json.dumps(parameters)) > MAX_SCHEMA_CHARS:
            skipped.append(
                Skipped(path=function.path, reason=f"its schema has more than {MAX_SCHEMA_CHARS} characters")
            )
            continue
        name = naming.name or name_for(path.stem, key, alone=len(functions) == 1)
        taken = [tool.spec.name for tool in tools]
        words = naming.description or f"{key} of {path.name}"
        spec = ToolSpec(
            name=checked(name, taken, f"{path.name}: {key}"), description=cleaned(words), parameters=parameters
        )
        tools.append(Tool(spec=spec, path=function.path))
    return tuple(tools)
