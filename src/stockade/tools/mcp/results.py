"""What a server returned, as text for a model. Pure."""

import json
from collections.abc import Iterable, Iterator
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
from stockade.tools.mcp.words import clean, clean_lines

MAX_RESULT_CHARS = 200_000
MAX_BLOCKS = 1000


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
