"""What a component of the tool world says of itself (`get-metadata`), checked: it may say anything."""

from typing import Any

from pydantic import Field, ValidationError

from stockade.core.data import Data
from stockade.core.errors import UsageError
from stockade.tools.wasm.names import MAX_PARAMETER_CHARS, cleaned, fit

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
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(word) for word in first["loc"])
        raise UsageError(f"{what}: its metadata cannot be used: {place}: {cleaned(first['msg'], 160)}") from None
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
