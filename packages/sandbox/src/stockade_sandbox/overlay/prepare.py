"""Making the place where a bot's writing to a folder goes."""

import errno
import os
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from stockade_sandbox.errors import SandboxFailed, UsageError
from stockade_sandbox.overlay.copying import Copier, OnProgress, check_space, survey
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.overlay.paths import checked_folder
from stockade_sandbox.overlay.record import LAYER_FILE, MANIFEST_FILE, LayerRecord, write_seen
from stockade_sandbox.overlay.safe_fs import DirTree, encode_path
from stockade_sandbox.overlay.undo import recover_folder
from stockade_sandbox.policy import FolderRule
from stockade_sandbox.records import line_of
from stockade_sandbox.results import FolderLayer

_WALK_ENTRIES = 200_000
_WALK_S = 2.0


def prepare_layer(
    rule: FolderRule,
    base: Path,
    *,
    sandbox_uid: int | None,
    can_overlay: Callable[[Path], str | None],
    progress: OnProgress | None = None,
) -> FolderLayer:
    """Check a folder and make its layer below `base`, which is private to us and made when it is missing.

    An apply to the folder that was cut off is completed first.

    `sandbox_uid`: who the sandbox runs as when we are root, else None. `can_overlay` says why an overlay over a folder
    cannot be mounted, or None. Raises UsageError (the folder must not, or cannot, be given; a copy would not fit) and
    SandboxFailed (the layer cannot be made).
    """
    folder = checked_folder(rule.host, base)
    recover_folder(folder, base.parent)
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the name of the folder {str(folder)!r} is not UTF-8", "rename it") from error
    if rule.mode != "overlay":
        return FolderLayer(host=str(folder), inside=rule.inside, mode=rule.mode, strategy="direct")
    overlay = can_overlay(folder) is None and (sandbox_uid is not None or all_owned_by_us(folder))
    try:
        place = _new_place(base)
        try:
            if overlay:
                skipped = _make_overlay(folder, place, sandbox_uid)
            else:
                skipped = _make_copy(folder, place, sandbox_uid, progress)
            _write_record(folder, place, skipped)
        except BaseException:
            remove_tree(place)
            raise
    except OSError as error:
        raise _cannot_make(error, folder, base) from error
    return FolderLayer(
        host=str(folder),
        inside=rule.inside,
        mode=rule.mode,
        strategy="overlay" if overlay else "copy",
        layer=str(place),
    )


def _cannot_make(error: OSError, folder: Path, base: Path) -> UsageError | SandboxFailed:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UsageError(f"the disk is full: no room for what is written to {folder} ({base})", "free some space")
    return SandboxFailed(f"cannot make a layer for {folder} in {base}: {error.strerror}", "see who may write there")


def _new_place(base: Path) -> Path:
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    real = os.path.realpath(base)
    for number in count():
        place = f"{real}/{number}"
        try:
            os.mkdir(place, 0o700)
        except FileExistsError:
            continue
        return Path(place)
    raise AssertionError


def _make_overlay(folder: Path, place: Path, owner: int | None) -> list[str]:
    """The mounted folder takes its own mode and owner from `upper`."""
    host = folder.stat()
    upper, work = place / "upper", place / "work"
    for made in (upper, work):
        made.mkdir(mode=0o700)
        if owner is not None:
            os.chown(made, owner, owner)
    os.utime(upper, ns=(host.st_atime_ns, host.st_mtime_ns))
    upper.chmod(host.st_mode & 0o1777)
    return []


def _make_copy(folder: Path, place: Path, owner: int | None, progress: OnProgress | None) -> list[str]:
    target = place / "copy"
    with DirTree(folder) as source:
        found = survey(source, progress)
        check_space(found.disk_bytes, place, folder)
        target.mkdir(mode=0o700)
        seen = Copier(source, target, owner, progress).run(found)
    write_seen(place / MANIFEST_FILE, seen)
    if owner is not None:
        os.chown(target, owner, owner)
    target.chmod(folder.stat().st_mode & 0o777 | 0o700)
    return found.skipped


def _write_record(folder: Path, place: Path, skipped: list[str]) -> None:
    """On disk when this returns. The start is read off the file's own ctime: the clock of the host files' times."""
    host = folder.stat()
    with (place / LAYER_FILE).open("xb") as out:
        started = os.fstat(out.fileno()).st_ctime_ns
        record = LayerRecord(
            host=encode_path(str(folder)),
            device=host.st_dev,
            inode=host.st_ino,
            filesystem=os.statvfs(folder).f_fsid,
            started_ns=started,
            skipped=tuple(skipped),
        )
        out.write(line_of(record))
        out.flush()
        os.fsync(out.fileno())


def all_owned_by_us(folder: Path) -> bool:
    """Whether an overlay in a user namespace, where only our own uid and gid exist, could copy up every file.

    Stops with yes after 200 000 entries or 2 s: a folder of that size is not copied on a suspicion.
    """
    uid, gid, end = os.geteuid(), os.getegid(), time.monotonic() + _WALK_S
    waiting, seen = [str(folder)], 0
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    if found.st_uid != uid or found.st_gid != gid:
                        return False
                    seen += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except (PermissionError, FileNotFoundError):
            continue
        if seen > _WALK_ENTRIES or time.monotonic() > end:
            return True
    host = folder.stat()
    return (host.st_uid, host.st_gid) == (uid, gid)
