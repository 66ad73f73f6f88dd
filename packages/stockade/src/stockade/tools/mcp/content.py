"""A server's words on their way to a model: cleaned, bounded, and told apart from ours. Pure."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from stockade.core.actions import ToolResult
from stockade.core.text import clean as clean_lines
from stockade.core.tools import MAX_NAME_CHARS, ToolSpec

MAX_DESCRIPTION_CHARS = 1000
MAX_NOTE_CHARS = 200
MAX_SCHEMA_CHARS = 16_000
MAX_DEPTH = 8
CONTROLLING = frozenset({"shell", "finish", "ask_user", "sub_task"})
"""Names of actions that a server's tool must not look like."""
_NAME_CHARS = re.compile(r"[^A-Za-z0-9_-]")
_KEPT = ("type", "enum", "const", "default", "required", "minimum", "maximum", "minLength", "maxLength", "minItems",
         "maxItems", "format")  # fmt: skip
MAX_RESULT_CHARS = 200_000
MAX_BLOCKS = 1000


def clean(text: str, limit: int) -> str:
    """On one line, without characters that are not seen (core.text.clean), cut at `limit`."""
    words = " ".join(clean_lines(text[: 4 * limit]).split())
    return words if len(words) <= limit else words[: limit - 3] + "..."


def tool_names(found: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """A name for each (server, tool): `server__tool`, of few enough and plain characters, no two the same."""
    plain = {pair: _plain(*pair) for pair in found}
    names: dict[tuple[str, str], str] = {}
    for pair, name in plain.items():
        alone = list(plain.values()).count(name) == 1 and len(name) <= MAX_NAME_CHARS
        names[pair] = name if alone else f"{name[: MAX_NAME_CHARS - 9]}_{_digest(pair)}"
    return names


def _digest(pair: tuple[str, str]) -> str:
    return hashlib.sha256(json.dumps(pair).encode()).hexdigest()[:8]


def _plain(server: str, tool: str) -> str:
    name = f"{_NAME_CHARS.sub('_', server)}__{_NAME_CHARS.sub('_', tool)}"
    return name if name[0].isalpha() else f"mcp_{name}"


def refusal(tool: Mapping[str, Any]) -> str | None:
    """Why a tool, as its server listed it, is not offered to a bot."""
    if str(tool["name"]).strip().lower() in CONTROLLING:
        return "it has the name of an action of the bot itself"
    schema = tool["inputSchema"]
    if schema.get("type", "object") != "object" or not isinstance(schema.get("properties", {}), dict):
        return "its arguments are no object"
    if len(json.dumps(plain_schema(schema))) > MAX_SCHEMA_CHARS:
        return f"its schema is longer than {MAX_SCHEMA_CHARS} characters"
    return None


def spec(name: str, server: str, tool: Mapping[str, Any]) -> ToolSpec:
    """What a model is told of a tool that is not refused. That it is a server's word is said first."""
    told = clean(str(tool.get("description") or tool.get("title") or ""), MAX_DESCRIPTION_CHARS)
    schema: dict[str, Any] = {"properties": {}} | plain_schema(tool["inputSchema"]) | {"type": "object"}
    wanted = schema.get("required")
    schema["required"] = [one for one in wanted if one in schema["properties"]] if isinstance(wanted, list) else []
    return ToolSpec(name=name, description=f"[MCP server {clean(server, 40)}] {told}".strip(), parameters=schema)


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What of a JSON schema a model can use: no pattern (it would be tried here), and each local reference resolved."""
    shared = {key: value for key in ("$defs", "definitions") if isinstance(value := schema.get(key), dict)}
    return _plain_part(schema, shared, MAX_DEPTH)


def _plain_part(part: Any, shared: Mapping[str, Any], depth: int) -> dict[str, Any]:
    part = _referred(part, shared)
    if not isinstance(part, Mapping) or depth <= 0:
        return {}
    found: dict[str, Any] = {key: _plain_value(part[key]) for key in _KEPT if key in part}
    if isinstance(told := part.get("description"), str):
        found["description"] = clean(told, MAX_NOTE_CHARS)
    if isinstance(properties := part.get("properties"), Mapping):
        found["properties"] = {
            str(name)[:100]: _plain_part(one, shared, depth - 1) for name, one in list(properties.items())[:100]
        }
    if isinstance(items := part.get("items"), Mapping):
        found["items"] = _plain_part(items, shared, depth - 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(choices := part.get(key), list):
            found[key] = [_plain_part(one, shared, depth - 1) for one in choices[:20]]
    if isinstance(more := part.get("additionalProperties"), bool):
        found["additionalProperties"] = more
    return found


def _referred(part: Any, shared: Mapping[str, Any]) -> Any:
    """A part, or what it refers to in the same schema; a circle ends somewhere in it."""
    for _ in range(MAX_DEPTH):
        reference = part.get("$ref") if isinstance(part, Mapping) else None
        words = reference.split("/") if isinstance(reference, str) else []
        if len(words) != 3 or words[0] != "#" or words[1] not in shared:
            return part
        part = shared[words[1]].get(words[2])
    return {}


def _plain_value(value: Any) -> Any:
    """A keyword's value: words cleaned, lists short, nothing deep."""
    if isinstance(value, str):
        return clean(value, MAX_NOTE_CHARS)
    if isinstance(value, list):
        return [_plain_value(one) for one in value[:200] if not isinstance(one, list | dict)]
    return value if isinstance(value, bool | int | float) or value is None else {}


def error(text: str) -> ToolResult:
    return ToolResult(status="error", text=text)


def to_result(found: CallToolResult) -> ToolResult:
    """Its texts; what is none by its kind and size; structured content where there is nothing else."""
    text = _joined(_block(one) for one in found.content[:MAX_BLOCKS])
    if not text and found.structured_content is not None:
        text = _json(found.structured_content)
    if len(text) > MAX_RESULT_CHARS:
        text = f"{text[:MAX_RESULT_CHARS]}\n[{len(text) - MAX_RESULT_CHARS} characters more were cut]"
    if found.is_error:
        return error(text or "the tool failed and did not say why")
    return ToolResult(status="data" if text else "success", text=text)


def _joined(blocks: Iterable[str]) -> str:
    """As many as there is room for and one, so that a million of them cost no more."""

    def few() -> Iterator[str]:
        left = MAX_RESULT_CHARS
        for block in blocks:
            yield block
            left -= len(block)
            if left < 0:
                return

    return "\n".join(few())


def _block(block: Any) -> str:
    match block:
        case TextContent():
            return clean_lines(block.text)
        case ImageContent() | AudioContent():
            kind = "image" if isinstance(block, ImageContent) else "audio"
            return f"[{kind} {clean(block.mime_type, 60)}, {3 * len(block.data) // 4} bytes, not shown]"
        case ResourceLink():
            return f"[resource {clean(str(block.uri), 300)} {clean(block.name, 100)}]"
        case EmbeddedResource():
            contents = block.resource
            if isinstance(contents, BlobResourceContents):
                kind = clean(contents.mime_type or "bytes", 60)
                return f"[resource {clean(str(contents.uri), 300)}: {kind}, {3 * len(contents.blob) // 4} bytes]"
            return f"[resource {clean(str(contents.uri), 300)}]\n{clean_lines(contents.text)}"
        case _:
            return f"[content of a kind that is not known here: {clean(type(block).__name__, 60)}]"


def _json(found: Any) -> str:
    try:
        return clean_lines(json.dumps(found, ensure_ascii=False, indent=1))
    except (ValueError, RecursionError):
        return "[structured content that cannot be written down]"
