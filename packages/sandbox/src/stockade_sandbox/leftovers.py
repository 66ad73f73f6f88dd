"""What killed processes left behind, found and removed: private copies, trials, control groups, runs that never began.

What a process makes for itself is named after it and its start time: once it is gone, so may be what it made.
"""

import os
import re
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

from stockade_sandbox.errors import SandboxFailed
from stockade_sandbox.limits.cgroups import Groups, remove_groups, stale
from stockade_sandbox.overlay.changes import touched_in_copy
from stockade_sandbox.overlay.discard import remove_tree, sweep_tombstones
from stockade_sandbox.overlay.journal import SUFFIX, all_journals
from stockade_sandbox.overlay.record import MANIFEST_FILE, read_manifest
from stockade_sandbox.overlay.safe_fs import DirTree
from stockade_sandbox.processes import BOX, DOCTOR, start_time

_NAME = re.compile(r"(?:copies|trial|stockade-doctor|box)-(\d+)-(\d+)-\w+")
DAY_S = 86_400.0


def _stale(folders: Iterator[Path]) -> Iterator[Path]:
    for folder in folders:
        found = _NAME.fullmatch(folder.name)
        with suppress(FileNotFoundError):
            ours = folder.lstat().st_uid == os.geteuid() and folder.is_dir() and not folder.is_symlink()
            if found and ours and start_time(int(found[1]), zombies=False) != int(found[2]):
                yield folder


def _removed(folder: Path) -> Path:
    try:
        remove_tree(folder)
    except OSError as error:
        raise SandboxFailed(f"cannot remove {folder}: {error.strerror}", "is a sandbox of it still there?") from error
    return folder


def remove_stale(run_dir: Path) -> list[Path]:
    """Copies and trials of processes that are gone, in one run's folder."""
    if not run_dir.is_dir():
        return []
    return [_removed(folder) for folder in _stale(iter(list(run_dir.iterdir())))]


def _holds_work(run_dir: Path) -> bool:
    """Whether something could be lost: any layer in which something was, or may have been, written."""
    return any(
        _is_written(layer)
        for layer in run_dir.iterdir()
        if layer.is_dir() and not layer.is_symlink() and not layer.name.endswith(SUFFIX)
    )


def _is_written(layer: Path) -> bool:
    """A copy whose manifest is not there was never finished, and no bot has met it."""
    if (layer / "kept").is_dir():
        return True
    if (layer / "upper").is_dir():
        return any((layer / "upper").iterdir())
    if not (layer / "copy").is_dir():
        return True
    if not (layer / MANIFEST_FILE).exists():
        return False
    try:
        with DirTree(layer / "copy") as copy:
            return bool(touched_in_copy(copy, read_manifest(layer)))
    except (OSError, SandboxFailed):
        return True


def _holds_undo(run_dir: Path) -> bool:
    """Whether what was applied could be taken back."""
    return any(all_journals(journals) for journals in run_dir.glob(f"*{SUFFIX}"))


def remove_boxes(folder: Path) -> list[str]:
    """What sandboxes that are no run's left there when their process was killed; a line for each."""
    return [f"removed {_removed(box)}" for box in _stale(folder.glob(f"{BOX}-*")) if not _holds_undo(box)]


def clean(runs: Path, recorded: Collection[str], alive: Callable[[str], bool]) -> list[str]:
    """Removes what nobody owns any more; one line for each thing removed, or left for a reason.

    `runs` holds a folder for each run. One that is not `alive` and holds no work is removed; one that is not on record
    only when it is older than a day, as it may be about to begin. What undo needs stays while its run is on record.
    """
    lines = _cleaned_groups()
    gone = _stale(Path(tempfile.gettempdir()).glob(f"{DOCTOR}-*"))
    lines += [f"removed {_removed(folder)}" for folder in gone]
    lines += remove_boxes(runs.parent / "boxes")
    for run_dir in sorted(runs.iterdir()) if runs.is_dir() else ():
        if run_dir.is_dir() and not run_dir.is_symlink() and not alive(run_dir.name):
            with suppress(FileNotFoundError):  # somebody else removes it
                lines += _cleaned(run_dir, run_dir.name in recorded)
    return lines


def _cleaned_groups() -> list[str]:
    """Groups whose makers are gone; the processes of one that was killed just now may still be ending."""
    ours = []
    for folder in stale():
        with suppress(FileNotFoundError):
            if folder.lstat().st_uid == os.geteuid():
                ours.append(folder)
    left = remove_groups(Groups(tuple(ours), frozenset()))
    lines = [f"removed the control group {folder}" for folder in ours if folder not in left]
    return lines + [f"left the control group {folder}: a process of it is still running" for folder in left]


def _cleaned(run_dir: Path, on_record: bool) -> list[str]:
    lines = [f"removed {folder}" for folder in (*remove_stale(run_dir), *sweep_tombstones(run_dir))]
    old = time.time() - run_dir.stat().st_mtime >= DAY_S
    if _holds_work(run_dir):
        if old and not on_record:
            lines.append(f"left {run_dir}: its run is not on record here, but it holds changes; remove it by hand")
    elif (on_record and not _holds_undo(run_dir)) or (old and not on_record):
        lines.append(f"removed {_removed(run_dir)}: nothing was written in it")
    return lines
