"""Which image a container starts from: none of yours, an image of the local engine, or a root file system directory.

Nothing is ever fetched. Without an image, an empty one is made once that has only the links of the host's top folder
(`bin -> usr/bin`); the host's /usr is then mounted read-only. A directory is imported once, under a name made of what
`stat` says about everything in it.
"""

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stockade_sandbox.backends.containers.engines import Engine, ask, engine_complaint
from stockade_sandbox.backends.host_info import HostFacts, host_facts
from stockade_sandbox.errors import PolicyNotEnforceable, SandboxFailed, UsageError

_LEFT_OUT = ("dev", "proc", "sys", "run", "tmp")
_IMPORT_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Image:
    """What to run, by its id. `host`: the parts of the host to mount over it; None when it brings its own files."""

    reference: str
    host: HostFacts | None = None


def find_image(engine: Engine, wanted: str | None) -> Image:
    """Blocks while a directory is imported. UsageError, PolicyNotEnforceable or SandboxFailed."""
    if wanted is None:
        host = host_facts()
        return Image(_usable(engine, _host_image(engine, host)), host)
    if Path(wanted).is_dir():
        return Image(_usable(engine, _directory_image(engine, Path(wanted))))
    if wanted.startswith("-") or not wanted.isprintable() or not wanted:
        raise UsageError(f"not an image: {wanted!r}", "give the name of a local image, or a directory")
    return Image(_usable(engine, wanted))


def _inspect(engine: Engine, name: str) -> dict[str, object] | None:
    try:
        said = json.loads(ask([*engine.command, "image", "inspect", name]))
    except SandboxFailed:
        return None
    found = said[0]
    return found if isinstance(found, dict) else None


def _usable(engine: Engine, name: str) -> str:
    """The image's id. Images are not fetched, and their volumes would be room to write that nothing bounds."""
    found = _inspect(engine, name)
    if found is None:
        raise UsageError(
            f"{engine.name} has no image {name!r}, and Stockade fetches none",
            f"`{engine.name} pull {name}`, or give a root file system directory",
        )
    config = found.get("Config") or found.get("ContainerConfig")
    volumes = config.get("Volumes") if isinstance(config, dict) else None
    if volumes:
        raise PolicyNotEnforceable(
            "disk_bytes",
            f"the image {name!r} declares volumes ({', '.join(sorted(volumes))}), which nothing bounds",
            f"flatten it: `{engine.name} export` a container of it and import that",
            ("bubblewrap",),
        )
    return str(found["Id"])


def _tar_of_links(host: HostFacts) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for entry in host.top:
            info = tarfile.TarInfo(entry.name)
            info.type, info.linkname = (tarfile.SYMTYPE, entry.target) if entry.target else (tarfile.DIRTYPE, "")
            info.mode = 0o755
            tar.addfile(info)
    return file.getvalue()


def _host_image(engine: Engine, host: HostFacts) -> str:
    data = _tar_of_links(host)
    name = f"stockade-host:{hashlib.sha256(data).hexdigest()[:16]}"
    if _inspect(engine, name) is None:
        ask([*engine.command, "import", "-", name], stdin=data)
    return name


def _entries(folder: Path) -> Iterator[str]:
    for where, folders, names in os.walk(folder):
        if where == str(folder):
            folders[:] = [name for name in folders if name not in _LEFT_OUT]
        folders.sort()
        for name in sorted([*folders, *names]):
            path = os.path.join(where, name)
            found = os.lstat(path)
            facts = (found.st_mode, found.st_size, found.st_mtime_ns, found.st_ino)
            yield f"{os.path.relpath(path, folder)!r} {facts}"


def _directory_image(engine: Engine, folder: Path) -> str:
    try:
        digest = hashlib.sha256("\n".join(_entries(folder)).encode()).hexdigest()[:16]
    except OSError as error:
        raise UsageError(f"cannot read the root file system {folder}: {error.strerror}", "check its modes") from error
    name = f"stockade-rootfs:{digest}"
    if _inspect(engine, name) is None:
        _import(engine, folder, name)
    return name


def _import(engine: Engine, folder: Path, name: str) -> None:
    left_out = [f"--exclude=./{one}/*" for one in _LEFT_OUT]
    tar = ["tar", "--create", "--one-file-system", "--numeric-owner", *left_out, "--directory", str(folder), "."]
    with subprocess.Popen(tar, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as reading:
        done = subprocess.run(
            [*engine.command, "import", "-", name],
            stdin=reading.stdout,
            capture_output=True,
            text=True,
            timeout=_IMPORT_TIMEOUT_S,
            check=False,
        )
    if done.returncode or reading.returncode:
        raise SandboxFailed(f"{folder} could not be imported into {engine.name}: {engine_complaint(done.stderr)}")
