"""From a file to a component that can be called: compiled and looked at in a sandbox of its own, once a component.

Compiled components are kept by the hash of what they were compiled from and with. Compiled code is native code: only
what we put there is ever used, the folder is private to us, and each entry is looked at before it is used.
"""

import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from platform import machine

from pydantic import Field, ValidationError

from stockade.core.data import Data
from stockade.core.errors import SandboxFailed, UsageError, to_install
from stockade.core.ports import Sandbox
from stockade.plugins.wasm.component import Component, cleaned, read_component, read_description, understood
from stockade.plugins.wasm.policy import Limits, ToolPolicy, beside, read_policy
from stockade.plugins.wasm.worker import argv, lent
from stockade_sandbox.policy import GIB, Policy
from stockade_sandbox.policy import Limits as SandboxLimits
from stockade_sandbox.processes import own_folder

COMPILED, DESCRIBED = "component.cwasm", "description.json"
MAX_TOTAL_BYTES = 2 << 30
FORMAT = 3
"""Of the description; raised when what looks at components changes."""


def cache_dir() -> Path:
    """`$XDG_CACHE_HOME/stockade/wasm`."""
    return own_folder("cache") / "wasm"


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


COMPILE_S = 600.0
MAX_COMPILED_BYTES = 1 << 30
OpenBox = Callable[[Policy], AbstractAsyncContextManager[Sandbox]]
"""A sandbox of its own for a policy, which holds nothing of any run."""
OnProgress = Callable[[str, int, int], None]


class _Compiled(Data):
    description: dict[str, object] | None = None
    error: str | None = Field(default=None)


async def prepared(
    path: Path, open_box: OpenBox, policy: Path | None = None, on_progress: OnProgress | None = None
) -> Component:
    """A component ready to be called. UsageError, naming the file, when it cannot be; SandboxFailed."""
    data, policy = read_component(path), policy or beside(path)
    rules = read_policy(policy) if policy else ToolPolicy()
    place = entry(hashlib.sha256(data).hexdigest(), rules.limits)
    description = place.description()
    if description is None:
        if on_progress is not None:
            on_progress(f"compiling {path.name}, once", 0, 0)
        description, compiled = await _compile(path.name, data, rules.limits, open_box)
        put(place, compiled, description)
    return understood(path, data, place.compiled, read_description(description, path.name), rules, policy)


async def _compile(name: str, data: bytes, limits: Limits, open_box: OpenBox) -> tuple[str, bytes]:
    """(description, compiled code). The compiler works on hostile input: it has a sandbox with nothing in it."""
    policy = lent(
        Policy(
            limits=SandboxLimits(memory_bytes=6 * GIB, command_timeout_s=0, disk_bytes=64 << 20, file_bytes=64 << 20)
        )
    )
    request = json.dumps({"op": "compile", "limits": limits.model_dump()}).encode() + b"\n"
    async with open_box(policy) as box:
        done = await box.exec(argv(), request + data, COMPILE_S, MAX_COMPILED_BYTES)
    line, _, compiled = done.stdout.partition(b"\n")
    if done.timed_out:
        raise UsageError(f"{name} was not compiled within {COMPILE_S:g} s")
    if done.exit_code or not line:
        raise _failure(name, done.exit_code, done.stderr)
    try:
        answer = _Compiled.model_validate_json(line)
    except ValidationError as error:
        raise SandboxFailed(f"{name} could not be compiled: the answer is none") from error
    if answer.error is not None or answer.description is None:
        raise UsageError(f"{name} cannot be used: {cleaned(answer.error or 'no reason given', 200)}")
    return json.dumps(answer.description), compiled


def _failure(name: str, status: int, stderr: bytes) -> SandboxFailed:
    last = (stderr.decode(errors="replace").strip().splitlines() or [f"exit status {status}"])[-1]
    hint = "this Python must be able to run inside the sandbox" if status in (126, 127) else None
    return SandboxFailed(f"{name} could not be compiled in a sandbox: {cleaned(last, 200)}", hint)
