"""The folder where model files are kept, and what is known to be right in it."""

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from platformdirs import user_cache_path, user_data_path

from stockade.core.errors import ModelUnavailable
from stockade.files import open_regular
from stockade.models.progress import OnBytes

_BLOCK = 1 << 22


def models_folder() -> Path:
    """`$STOCKADE_MODELS`, else `$XDG_DATA_HOME/stockade/models`. Not made here."""
    chosen = os.environ.get("STOCKADE_MODELS")
    return Path(chosen).expanduser().absolute() if chosen else user_data_path("stockade") / "models"


def sha256_of(path: Path, on_bytes: OnBytes | None = None, stopped: Callable[[], bool] = lambda: False) -> str:
    """The hex digest; blocking. `stopped` is asked between blocks and ends the reading with InterruptedError.

    OSError where it cannot be read, or is no regular file.
    """
    digest = hashlib.sha256()
    total, done = path.stat().st_size, 0
    with open_regular(path) as file:
        while block := file.read(_BLOCK):
            if stopped():
                raise InterruptedError
            digest.update(block)
            done += len(block)
            if on_bytes:
                on_bytes(done, total)
    return digest.hexdigest()


def size_of(path: Path) -> int:
    """Bytes; 0 when there is no such file."""
    return path.stat().st_size if path.exists() else 0


def open_at(path: Path, offset: int) -> IO[bytes]:
    """To write from `offset` on; what stood after it is cut off."""
    file = path.open("r+b" if path.exists() else "w+b")
    file.truncate(offset)
    file.seek(offset)
    return file


def _stamp_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.verified")


def remember_verified(path: Path, sha256: str) -> None:
    """The file's hash was just found to be `sha256`; later a glance at size and time is enough."""
    stat = path.stat()
    stamp = _stamp_path(path)
    fresh = stamp.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps({"sha256": sha256, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}))
    fresh.replace(stamp)


def known_sha256(path: Path) -> str | None:
    """The hash that this very file, by size and modification time, was found to have before."""
    try:
        stat = path.stat()
        stamp = json.loads(_stamp_path(path).read_text())
        if (stamp["size"], stamp["mtime_ns"]) == (stat.st_size, stat.st_mtime_ns):
            return str(stamp["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def is_verified(path: Path, sha256: str) -> bool:
    """True when this very file was found to have that hash before; with "" any hash will do."""
    known = known_sha256(path)
    return known is not None and sha256 in ("", known)


def remember_origin(path: Path, source: str, licence: str) -> None:
    """Where a file that is not in the catalogue came from."""
    _origin_path(path).write_text(json.dumps({"source": source, "licence": licence}))


def origin(path: Path) -> tuple[str, str]:
    """(source, licence) as they were when the file was fetched; ("", "") where nothing is known."""
    try:
        found = json.loads(_origin_path(path).read_text())
        return str(found["source"]), str(found["licence"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", ""


def _origin_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.origin")


def remember_loaded(path: Path) -> None:
    """The file was loaded with every weight checked. A cache: where it cannot be written, the check is made again."""
    stamp = _loaded_stamp(path)
    with suppress(OSError):
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(_facts(path))


def was_loaded(path: Path) -> bool:
    """True when this very file, by path, size and modification time, was loaded and checked before."""
    try:
        return _loaded_stamp(path).read_text() == _facts(path)
    except (OSError, ValueError):
        return False


def _loaded_stamp(path: Path) -> Path:
    return user_cache_path("stockade") / "loaded" / hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]


def _facts(path: Path) -> str:
    stat = path.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"


def forget(path: Path) -> None:
    """Remove the file and what was known of it."""
    for known in (path, _stamp_path(path), _origin_path(path)):
        known.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """ModelUnavailable when it cannot be made or written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelUnavailable(
            f"cannot make the model folder {folder}: {error.strerror}", "set STOCKADE_MODELS to a folder of yours"
        ) from error


def check_space(folder: Path, needed_bytes: int) -> None:
    """ModelUnavailable when the disk has less than `needed_bytes` left."""
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    if free < needed_bytes:
        raise ModelUnavailable(
            f"not enough space in {folder}: {needed_bytes / 1e6:.0f} MB needed, {free / 1e6:.0f} MB free",
            "free some, or set STOCKADE_MODELS to a folder on another disk",
        )
