"""Files into a sandbox and out of one, as tar. What comes out is hostile until it was looked at."""

import io
import tarfile
from pathlib import Path

from stockade.core.errors import UsageError

MAX_COPY_BYTES = 512 << 20


def pack(host: str | Path, name: str) -> bytes:
    """A file or folder of this machine under another name. UsageError when it cannot be read or is too large."""
    path = Path(host).expanduser()
    if not path.exists():
        raise UsageError(f"{path}: there is no such file or folder")
    buffer = io.BytesIO()
    try:
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.add(path, arcname=name)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if buffer.tell() > MAX_COPY_BYTES:
        raise UsageError(f"{path} is larger than {MAX_COPY_BYTES} bytes", "mount it: Sandbox(folder, Folder(...))")
    return buffer.getvalue()


def check_free(host: str | Path) -> None:
    """UsageError when something is there already: nothing of this machine is written over."""
    target = Path(host).expanduser()
    if target.exists() or target.is_symlink():
        raise UsageError(f"{target} is there already")


def unpack(data: bytes, name: str, host: str | Path) -> None:
    """The member `name` of an archive, to the path `host`.

    UsageError for devices, for links and names that lead out of it: tarfile's filter `data` (PEP 706).
    """
    target = Path(host).expanduser()
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            members = [_renamed(member, name, target.name) for member in archive.getmembers()]
            archive.extractall(target.parent, members=members, filter="data")
    except (tarfile.TarError, OSError) as error:
        raise UsageError(f"{target} cannot be written: {error}") from None


def _renamed(member: tarfile.TarInfo, old: str, new: str) -> tarfile.TarInfo:
    if member.name != old and not member.name.startswith(f"{old}/"):
        raise UsageError(f"the archive holds {member.name!r}, which was not asked for")
    changed = member.replace(name=f"{new}{member.name.removeprefix(old)}")
    if member.islnk():
        changed.linkname = f"{new}{member.linkname.removeprefix(old)}"
    return changed
