"""A component as it was found: what it exports as tools, what it asks for, and what it cannot do here."""

import json
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from stockade.core.data import Data
from stockade.core.errors import UsageError
from stockade.core.tools import ToolSpec
from stockade.plugins.wasm.descriptions import (
    Manifest,
    Metadata,
    checked,
    cleaned,
    description_of,
    key_of,
    name_for,
    read_manifest,
    read_metadata,
    schema_of,
    with_descriptions,
)
from stockade.plugins.wasm.policy import ToolPolicy, beside, read_policy

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
    path: Path, sha256: str, size: int, compiled: Path, found: Description, policy: Path | None
) -> Component:
    """The component with its tools named and described. UsageError when it asks for what is not given here."""
    policy = policy or beside(path)
    rules = read_policy(policy) if policy else ToolPolicy()
    check_imports(found.imports, path.name)
    metadata = read_metadata(found.metadata, path.name) if _is_tool_world(found) else None
    skipped: list[Skipped] = list(found.skipped)
    if metadata is not None:
        tools: tuple[Tool, ...] = (_world_tool(metadata, rules, path),)
    else:
        tools = _typed_tools(found, rules, read_manifest(path), path, skipped)
    unknown = set(rules.tools) - {key_of(path) for path in found.paths}
    if unknown:
        raise UsageError(f"{policy}: tools: the component has no function {sorted(unknown)[0]!r}")
    if not tools:
        why = f": {key_of(skipped[0].path)}: {skipped[0].reason}" if skipped else ""
        raise UsageError(f"{path} exports no function that could be a tool{why}")
    return Component(
        file=str(path),
        sha256=sha256,
        size=size,
        compiled=str(compiled),
        policy=rules,
        policy_file=str(policy) if policy else None,
        tools=tools,
        skipped=tuple(skipped),
        imports=found.imports,
        metadata=metadata,
    )


def check_imports(imports: tuple[str, ...], what: str) -> None:
    """UsageError for an import that nobody here gives: better than a trap in the middle of a run."""
    for name in imports:
        if name.startswith("wasi:http/"):
            raise UsageError(
                f"{what} imports {name}, which knows no list of hosts", "build it against stockade:tool/http (wit/)"
            )
        if not name.startswith(("wasi:", HTTP_IMPORT)):
            raise UsageError(f"{what} imports {cleaned(name, 80)}, which there is not here", "see docs/wasm.md")


def _is_tool_world(found: Description) -> bool:
    paths = {one.path for one in found.functions}
    return found.metadata is not None and paths >= {("execute",), ("get-metadata",)}


def _world_tool(metadata: Metadata, rules: ToolPolicy, path: Path) -> Tool:
    naming = rules.tools.get("execute")
    name = checked((naming and naming.name) or metadata.tool_name, (), path.name)
    description = cleaned(naming.description) if naming and naming.description else description_of(metadata)
    spec = ToolSpec(name=name, description=description, parameters=schema_of(metadata))
    return Tool(spec=spec, path=("execute",), strings=True)


def _typed_tools(
    found: Description, rules: ToolPolicy, manifest: Manifest, path: Path, skipped: list[Skipped]
) -> tuple[Tool, ...]:
    functions = [one for one in found.functions if found.metadata is None or one.path not in _WORLD]
    tools: list[Tool] = []
    for function in functions:
        key = key_of(function.path)
        naming, docs = rules.tools.get(key), manifest.tools.get(key)
        if naming is not None and not naming.offered:
            skipped.append(Skipped(path=function.path, reason="its policy does not offer it"))
            continue
        parameters = with_descriptions(function.parameters, docs.parameters if docs else {})
        if len(json.dumps(parameters)) > MAX_SCHEMA_CHARS:
            skipped.append(
                Skipped(path=function.path, reason=f"its schema has more than {MAX_SCHEMA_CHARS} characters")
            )
            continue
        given = (naming and naming.name) or (docs and docs.name)
        name = given or name_for(path.stem, key, alone=len(functions) == 1)
        taken = [tool.spec.name for tool in tools]
        words = (naming and naming.description) or (docs and docs.description) or f"{key} of {path.name}"
        spec = ToolSpec(
            name=checked(name, taken, f"{path.name}: {key}"), description=cleaned(words), parameters=parameters
        )
        tools.append(Tool(spec=spec, path=function.path))
    return tuple(tools)
