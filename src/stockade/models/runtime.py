"""The folder where running servers are found: a socket for each, for its owner alone."""

import os
import socket
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stockade.core.errors import ModelUnavailable
from stockade.files import try_lock
from stockade.models.keeper import LOCK

_MAX_FOLDER_BYTES = 84
_CONNECT_TIMEOUT_S = 5.0
_LOCK_PATIENCE_S = 20.0
_LOCK_POLL_S = 0.01


def runtime_folder() -> Path:
    """`$XDG_RUNTIME_DIR/stockade` where that is a folder of ours, else `/tmp/stockade-UID`; made when it is missing.

    ModelUnavailable when it is somebody else's, or open to others: whoever can write there could pose as our server.
    """
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere")
    folder = base / "stockade" if _is_ours(base) else Path(tempfile.gettempdir()) / f"stockade-{os.geteuid()}"
    hint = "set XDG_RUNTIME_DIR to a folder of yours"
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError as error:
        words = f"the folder for running servers, {folder}, cannot be made: {error.strerror}"
        raise ModelUnavailable(words, hint) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ModelUnavailable(f"{folder} is not a folder of yours alone: servers in it cannot be trusted", hint)
    if len(os.fsencode(folder)) > _MAX_FOLDER_BYTES:
        raise ModelUnavailable(f"the path {folder} is too long for a socket", hint)
    return folder


def _is_ours(folder: Path) -> bool:
    """After `su` or `sudo` the variable may name a folder that is gone, or another user's."""
    try:
        return folder.is_dir() and folder.stat().st_uid == os.geteuid()
    except OSError:
        return False


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time connects to, starts or ends servers; blocking, held for moments only."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        end = time.monotonic() + _LOCK_PATIENCE_S
        while not try_lock(descriptor):
            if time.monotonic() > end:
                raise ModelUnavailable(f"another process holds {folder / LOCK} and does not let go", "end it")
            time.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(descriptor)


def sockets(folder: Path) -> list[Path]:
    """Of every server, running or killed."""
    return sorted(folder.glob("*.sock"))


def connect(path: Path) -> socket.socket | None:
    """The keeper at this socket; None when there is none. Another user's is refused."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_CONNECT_TIMEOUT_S)
    try:
        connection.connect(os.fspath(path))
        if sys.platform == "linux":
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            if struct.unpack("3i", peer)[1] != os.geteuid():
                raise ModelUnavailable(f"the server at {path} is another user's", "remove that file")
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError as error:
        connection.close()
        raise silent(path, error) from None
    except BaseException:
        connection.close()
        raise
    return connection


def silent(path: Path, error: OSError) -> ModelUnavailable:
    """Of a keeper that hangs. It has the path among its arguments, and the server dies with it."""
    return ModelUnavailable(f"the server at {path} does not answer: {error}", f"end it: pkill -KILL -f {path}")


def listen(path: Path) -> socket.socket:
    """A listening socket in the place of a dead one."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(os.fspath(path))
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener
