"""What is too large for a row: a file under its sha256, `ab/abcdef...`, on disk when `save` returns."""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Large:
    """Something put aside."""

    sha256: str
    data: bytes


class BlobFolder:
    """Made when something is put into it. OSError from all methods."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, large: Iterable[Large]) -> None:
        """Files and the folders that name them are synced, also those that another process has just written."""
        for one in large:
            self._save(one)

    def load(self, sha256: str) -> bytes | None:
        """The bytes as they stand there now; None when there is no such file."""
        try:
            return self._path(sha256).read_bytes()
        except FileNotFoundError:
            return None

    def keep(self, named: Collection[str]) -> None:
        """Remove all others, and what a kill left half written."""
        for path in list(self.folder.glob("??/*")):
            if path.name not in named:
                path.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # there is more in it
                    path.parent.rmdir()

    def _path(self, sha256: str) -> Path:
        if len(sha256) != 64 or not all(char in "0123456789abcdef" for char in sha256):
            return self.folder / "none"
        return self.folder / sha256[:2] / sha256

    def _save(self, one: Large) -> None:
        path = self._path(one.sha256)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        result = self.load(one.sha256)
        if result is None or hashlib.sha256(result).hexdigest() != one.sha256:
            _write(path, one.data)
        else:
            _sync(path)
        for folder in (path.parent, self.folder, self.folder.parent):
            _sync(folder)


def _write(path: Path, data: bytes) -> None:
    """Under a name of its own first: a kill leaves no half of a file under a name that promises its content."""
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
