"""Where the state of runs is kept on this machine; files from outside the process, opened and read so that none of them
can hold it up, fill it up or break it; and those that the user trusted as configuration, as they stand: a bot may have
written them, or somebody else.
"""

import errno
import hashlib
import os
import stat
import threading
from pathlib import Path
from typing import Any, BinaryIO

from stockade.core.errors import UsageError
from stockade_sandbox.processes import own_folder
from stockade_sandbox.toml import parse_toml


def state_dir() -> Path:
    """`$XDG_STATE_HOME/stockade`. UsageError where nobody says where the user's home is."""
    return own_folder("state")


def run_dir(run_id: str) -> Path:
    """What belongs to one run."""
    return state_dir() / "runs" / run_id


def current_folder() -> Path:
    """UsageError when it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current folder is gone", "cd to one that is there") from None


def open_regular(path: Path) -> BinaryIO:
    """To read. OSError for what is no regular file: a FIFO without a writer would never open, a device never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError:  # a NUL in the name
        raise OSError(errno.EINVAL, "this is no path", str(path)) from None
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder. OSError where that cannot be looked at: since Python 3.14 `Path.exists`
    says no then.
    """
    try:
        path.stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        return False
    return True


def read_regular(path: Path, max_bytes: int) -> bytes:
    """All of it, or its first `max_bytes + 1` bytes when it is larger. OSError as `open_regular`."""
    with open_regular(path) as file:
        return file.read(max_bytes + 1)


def read_toml(path: Path, max_bytes: int, no: str) -> dict[str, Any]:
    """The table of a TOML file. FileNotFoundError when there is none; UsageError when it cannot be read, is larger
    than `max_bytes` (`no` says what it then is not: "bot", "configuration") or is not TOML.
    """
    try:
        data = read_regular(path, max_bytes)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > max_bytes:
        raise UsageError(f"{path} is larger than {max_bytes} bytes: this is no {no}")
    try:
        return parse_toml(data.decode())
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8", "TOML files are") from None
    except ValueError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None


def write_whole(path: Path, data: str | bytes, *, private: bool = False) -> None:
    """Nobody reads half of it, also after a power cut. Its folder is made where it is missing. `private`: this user's
    alone from its first byte on, and so is a folder that is made.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o777)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_native_id()}")
    fresh.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(fresh, flags, 0o600 if private else 0o666), "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


MAX_FILE_BYTES = 1_000_000
PROJECT_FILE = "stockade.toml"


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
