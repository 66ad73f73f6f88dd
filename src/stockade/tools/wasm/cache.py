"""Compiled components, by the hash of what they were compiled from and with. Only what we put there is ever used.

Compiled code is native code: the folder is private to us, and each entry is looked at before it is used.
"""

import hashlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from platform import machine

import platformdirs

from stockade.core.errors import SandboxFailed, UsageError, to_install
from stockade.tools.wasm.policy import Limits

COMPILED, DESCRIBED = "component.cwasm", "description.json"
MAX_TOTAL_BYTES = 2 << 30
FORMAT = 3
"""Of the description; raised when what looks at components changes."""


def cache_dir() -> Path:
    """`$XDG_CACHE_HOME/stockade/wasm`."""
    return Path(platformdirs.user_cache_dir("stockade", appauthor=False)) / "wasm"


def wasmtime_version() -> str:
    """UsageError when wasmtime is not installed."""
    try:
        return metadata.version("wasmtime")
    except metadata.PackageNotFoundError:
        raise UsageError("WebAssembly tools need wasmtime", to_install("wasm")) from None


@dataclass(frozen=True, slots=True)
class Entry:
    """One compiled component: a folder of its own, which the sandbox sees as a whole."""

    folder: Path

    @property
    def compiled(self) -> Path:
        return self.folder / COMPILED

    def description(self) -> str | None:
        """What was found out about it; None when it is not in the cache. Touches it, so that it is kept."""
        if not self.folder.exists():
            return None
        for path in (self.folder.parent, self.folder, self.compiled, self.folder / DESCRIBED):
            _check_owner(path)
        os.utime(self.folder)
        return (self.folder / DESCRIBED).read_text()


def entry(sha256: str, limits: Limits, where: Path | None = None) -> Entry:
    """Where a component's compiled code is or will be. The key holds all that the code depends on."""
    digest = hashlib.sha256(sha256.encode())
    digest.update(f"|{wasmtime_version()}|{sys.platform}|{machine()}|{FORMAT}|{_processor()}".encode())
    digest.update(f"|fuel={bool(limits.fuel)}|stack={limits.stack_bytes}".encode())
    return Entry((where or cache_dir()) / digest.hexdigest()[:40])


def _processor() -> str:
    """What native code may use; a home folder may be shared by unlike machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "")


def put(place: Entry, compiled: bytes, description: str) -> None:
    """Both files or none. SandboxFailed when the disk does not take it."""
    parent = place.folder.parent
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(parent)
        made = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
        try:
            (made / COMPILED).write_bytes(compiled)
            (made / DESCRIBED).write_text(description)
            for path, mode in ((made / COMPILED, 0o644), (made / DESCRIBED, 0o644), (made, 0o755)):
                path.chmod(mode)  # the sandbox's user reads them where owners cannot be mapped; `parent` is private
            made.replace(place.folder)
        except OSError:
            shutil.rmtree(made, ignore_errors=True)
            if not place.compiled.exists():  # somebody else was quicker
                raise
        _trim(parent, place.folder)
    except OSError as error:
        raise SandboxFailed(f"compiled code cannot be kept in {parent}: {error.strerror}", "free some space") from error


def _check_owner(path: Path) -> None:
    """UsageError for what another user made or may write to, and for links."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise UsageError(
            f"{path} is not ours alone: compiled code is not taken from there",
            f"remove {path}, or its write permissions",
        )


def _entries(parent: Path) -> Iterator[tuple[float, int, Path]]:
    for folder in parent.iterdir():
        try:
            size = sum(file.stat().st_size for file in folder.iterdir())
            yield folder.stat().st_mtime, size, folder
        except OSError:  # another process trims too
            continue


def _trim(parent: Path, keep: Path) -> None:
    """The longest unused go when all together are too large."""
    found = sorted(_entries(parent), reverse=True)
    total = 0
    for _, size, folder in found:
        total += size
        if total > MAX_TOTAL_BYTES and folder != keep:
            shutil.rmtree(folder, ignore_errors=True)
