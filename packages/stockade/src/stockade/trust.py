"""Files of a folder that were trusted by the user, as they stand: a bot may have written them, or somebody else."""

import hashlib
import os
from pathlib import Path

from stockade.core.errors import UsageError
from stockade.paths import read_regular, state_dir

MAX_FILE_BYTES = 1_000_000


def trusted_file() -> Path:
    """Lines of `SHA256  PATH`: files as they were when the user trusted them."""
    return state_dir() / "trusted"


def read_bounded(path: Path) -> bytes:
    """All of it. UsageError when it is too large for a configuration; OSError, also for what is no regular file."""
    data = read_regular(path, MAX_FILE_BYTES)
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{path} is larger than {MAX_FILE_BYTES} bytes: this is not a configuration")
    return data


def is_trusted(path: Path) -> bool:
    """Whether the user trusted this file with these bytes."""
    try:
        lines = trusted_file().read_text(errors="surrogateescape").splitlines()
        return _line(path, read_bounded(path)) in lines
    except OSError:
        return False


def trust(path: Path, data: bytes) -> None:
    """From now on, this file with these bytes. UsageError when that cannot be written down."""
    line = _line(path, data)
    if "\n" in line or "\r" in line:
        raise UsageError(f"{str(path)!r} has a line break in its name", "rename it")
    try:
        trusted_file().parent.mkdir(parents=True, exist_ok=True)
        with trusted_file().open("ab") as file:
            file.write(os.fsencode(line) + b"\n")
    except OSError as error:
        raise UsageError(f"{trusted_file()} cannot be written: {error.strerror}") from None


def _line(path: Path, data: bytes) -> str:
    return f"{hashlib.sha256(data).hexdigest()}  {path.resolve()}"
