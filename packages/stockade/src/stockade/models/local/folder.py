"""The folder where model files are kept, and what is known to be right in it."""

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

import anyio.from_thread
from platformdirs import user_cache_path, user_data_path

from stockade.core.errors import ModelUnavailable
from stockade.paths import open_regular, write_whole

_BLOCK = 1 << 22


def models_folder() -> Path:
    """`$STOCKADE_MODELS`, else `$XDG_DATA_HOME/stockade/models`. Not made here."""
    chosen = os.environ.get("STOCKADE_MODELS")
    return Path(chosen).expanduser().absolute() if chosen else user_data_path("stockade") / "models"


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


def sha256_of(path: Path) -> str:
    """The hex digest. For a thread of anyio's, where cancelling ends it between two blocks.

    OSError where it cannot be read, or is no regular file.
    """
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(_BLOCK):
            anyio.from_thread.check_cancelled()
            digest.update(block)
    return digest.hexdigest()


def size_of(path: Path) -> int:
    """Bytes; 0 when there is no such file."""
    return path.stat().st_size if path.exists() else 0


def remember_verified(path: Path, sha256: str, source: str = "", licence: str = "") -> None:
    """The file's hash was just found to be `sha256`, and whence it came; later a glance at size and time is enough."""
    known = {"sha256": sha256, "source": source, "licence": licence, **_size_and_time(path)}
    write_whole(_stamp(path), json.dumps(known))


def provenance(path: Path) -> tuple[str, str, str]:
    """(sha256, source, licence) that were remembered of this very file, by size and modification time; else empty."""
    stamp = _read(_stamp(path))
    with suppress(OSError):
        if stamp.items() >= _size_and_time(path).items():
            return str(stamp.get("sha256", "")), str(stamp.get("source", "")), str(stamp.get("licence", ""))
    return "", "", ""


def is_verified(path: Path, sha256: str) -> bool:
    """True when this very file was found to have that hash before; with "" any hash will do."""
    known = provenance(path)[0]
    return known != "" and sha256 in ("", known)


def remember_loaded(path: Path) -> None:
    """The file was loaded with every weight checked. A cache: where it cannot be written, the check is made again."""
    with suppress(OSError):
        write_whole(_loaded_stamp(path), json.dumps(_size_and_time(path)))


def was_loaded(path: Path) -> bool:
    """True when this very file, by path, size and modification time, was loaded and checked before."""
    with suppress(OSError):
        return _read(_loaded_stamp(path)) == _size_and_time(path)
    return False


def forget(path: Path) -> None:
    """Remove the file and what was known of it."""
    path.unlink(missing_ok=True)
    _stamp(path).unlink(missing_ok=True)


def _stamp(path: Path) -> Path:
    return path.with_name(f".{path.name}.verified")


def _loaded_stamp(path: Path) -> Path:
    return user_cache_path("stockade") / "loaded" / hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]


def _size_and_time(path: Path) -> dict[str, int]:
    stat = path.stat()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _read(stamp: Path) -> dict[str, object]:
    """{} for one that is missing or damaged."""
    try:
        stamped = json.loads(stamp.read_text())
    except (OSError, ValueError):
        return {}
    return stamped if isinstance(stamped, dict) else {}
