"""The task as it was typed: itself, `-` for standard input, `@FILE` for a file."""

import errno
import sys
from pathlib import Path

from stockade.core.errors import UsageError
from stockade.files import read_regular
from stockade.runtime.factory import MAX_TASK_BYTES


def read_task(text: str) -> str:
    """UsageError when a file cannot be read or is no text."""
    if text == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed: there is no task to read", "stockade run TASK")
        return _decoded(sys.stdin.buffer.read(MAX_TASK_BYTES + 1), "standard input")
    if text.startswith("@"):
        path = Path(text[1:]).expanduser()
        try:
            return _decoded(read_regular(path, MAX_TASK_BYTES), str(path))
        except OSError as error:
            hint = "pipe it in, and write - as the task" if error.errno == errno.EINVAL else None
            raise UsageError(f"the task file {path} cannot be read: {error.strerror}", hint) from None
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _decoded(data: bytes, where: str) -> str:
    if len(data) > MAX_TASK_BYTES:
        raise UsageError(f"the task is larger than {MAX_TASK_BYTES} bytes", "put it in a file and use --copy")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"the task in {where} is not UTF-8 text") from None
