"""Pictures that the user gives to the model: files become data that goes on record and to the provider as it is.

What a file is, its content says, never its name.
"""

import base64
from collections.abc import Sequence
from os.path import expanduser
from pathlib import Path

from stockade.core.errors import UsageError
from stockade.core.messages import Image, ModelInfo, cannot_see
from stockade.paths import read_regular

MAX_IMAGE_BYTES = 3_750_000
"""In base64 five million, which is the least that the providers take."""
MAX_ALL_BYTES = 12_000_000
"""Of one message; a request holds all that came before, too."""
_KINDS = "PNG, JPEG, GIF and WebP are images that models take"


def read_images(paths: Sequence[str]) -> tuple[Image, ...]:
    """In their order. UsageError for a file that cannot be read, is none of the four kinds, or is too large. Blocks."""
    images = tuple(_read(Path(expanduser(path))) for path in paths)
    if sum(len(image.base64) for image in images) > MAX_ALL_BYTES * 4 // 3:
        raise UsageError(f"the images are larger than {MAX_ALL_BYTES} bytes together", "attach fewer, or smaller ones")
    return images


def _read(path: Path) -> Image:
    try:
        data = read_regular(path, MAX_IMAGE_BYTES)
    except OSError as error:
        raise UsageError(f"--attach {path}: it cannot be read: {error.strerror}") from None
    if len(data) > MAX_IMAGE_BYTES:
        raise UsageError(f"--attach {path}: it is larger than {MAX_IMAGE_BYTES} bytes", "make it smaller")
    name = path.name.encode(errors="surrogateescape").decode(errors="replace")
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return _image(name, "image/png", data)
    if data.startswith(b"\xff\xd8\xff"):
        return _image(name, "image/jpeg", data)
    if data.startswith((b"GIF87a", b"GIF89a")):
        return _image(name, "image/gif", data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _image(name, "image/webp", data)
    raise UsageError(f"--attach {path}: this is no image", _KINDS)


def _image(name: str, media_type: object, data: bytes) -> Image:
    return Image.model_validate({"name": name, "media_type": media_type, "base64": base64.b64encode(data).decode()})


def check_sees(images: Sequence[Image], info: ModelInfo, name: str) -> tuple[str, ...]:
    """UsageError where there are images and the model `name` is known not to see. A line for the user where nobody
    says whether it does.
    """
    if images and info.sees is False:
        raise UsageError(f"{name} {cannot_see(info)}", "leave --attach out, or take a model that does (-m)")
    return (f"nobody says whether {name} sees images: they are sent to it",) if images and info.sees is None else ()
