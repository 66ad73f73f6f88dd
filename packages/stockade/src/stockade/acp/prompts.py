"""What an editor's user says: text, files that they name or hold up, and pictures; as a task for the bot."""

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from acp.schema import (
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from stockade.acp.wording import Paths
from stockade.core.errors import UsageError
from stockade.core.messages import Image
from stockade.core.text import fenced, one_line
from stockade.runtime.images import MAX_IMAGE_BYTES

_MEDIA = ("image/png", "image/jpeg", "image/gif", "image/webp")


def task_of(blocks: Sequence[Any], paths: Paths) -> tuple[str, tuple[Image, ...]]:
    """The words and the images. UsageError for what cannot be taken."""
    text, below, images = list[str](), list[str](), list[Image]()
    for block in blocks:
        match block:
            case TextContentBlock():
                text.append(block.text)
            case ImageContentBlock():
                images.append(_image(block.data, block.mime_type, block.uri or "image"))
            case ResourceContentBlock():
                text.append(_named(block.uri, paths))
            case EmbeddedResourceContentBlock(resource=TextResourceContents() as resource):
                name = paths.inside(resource.uri) or one_line(resource.uri, 500)
                text.append(f"`{name}`")
                below.append(fenced(resource.text, f"the editor: {name}, as it is there"))
            case EmbeddedResourceContentBlock(resource=BlobResourceContents() as resource):
                if resource.mime_type in _MEDIA:
                    images.append(_image(resource.blob, resource.mime_type, resource.uri))
                else:
                    text.append(_named(resource.uri, paths))
            case _:
                raise UsageError(f"a prompt holds what is not taken here: {getattr(block, 'type', 'unknown')}")
    return "\n\n".join(("".join(text), *below)), tuple(images)


def _named(uri: str, paths: Paths) -> str:
    """Where the bot finds the file."""
    inside = paths.inside(uri)
    return f"`{inside}`" if inside is not None else f"`{one_line(uri, 500)}` (which is not in the sandbox)"


def _image(data: str, media_type: str, name: str) -> Image:
    try:
        size = len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        raise UsageError("an image of the prompt is no base64") from None
    if media_type not in _MEDIA or size > MAX_IMAGE_BYTES:
        raise UsageError(
            f"an image of the prompt is not one of {', '.join(_MEDIA)} with {MAX_IMAGE_BYTES} bytes at most"
        )
    name = one_line(name.rpartition("/")[2], 100) or "image"
    return Image.model_validate({"name": name, "media_type": media_type, "base64": data})
