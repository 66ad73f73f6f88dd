"""Private copies of what a policy copies in: made on the host, writable inside, thrown away with the sandbox."""

import os
import shutil
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

from stockade_sandbox.errors import UsageError
from stockade_sandbox.overlay.safe_fs import copy_data
from stockade_sandbox.policy import CopyRule
from stockade_sandbox.stoppable import Progress, quietly


def _sizes(path: Path, tell: Callable[[int], None]) -> int:
    if not path.is_dir():
        return path.stat().st_size
    total = 0
    for folder, _, names in os.walk(path):
        tell(0)
        total += sum(Path(folder, name).lstat().st_size for name in names)
    return total


def _special(folder: str, names: list[str]) -> set[str]:
    kinds = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    return {name for name in names if not any(kind(os.lstat(os.path.join(folder, name)).st_mode) for kind in kinds)}


def _give(path: Path, uid: int) -> None:
    os.chown(path, uid, uid, follow_symlinks=False)
    for folder, folders, names in os.walk(path):
        for name in [*folders, *names]:
            os.chown(os.path.join(folder, name), uid, uid, follow_symlinks=False)


def _copy_file(source: str, target: str, tell: Callable[[int], None]) -> None:
    with open(source, "rb") as one, open(target, "xb") as other:
        tell(0)
        copy_data(one.fileno(), other.fileno(), tell)
    shutil.copystat(source, target)


def copy_in(
    rules: tuple[CopyRule, ...], base: Path, uid: int | None, limit_bytes: int, progress: Progress = quietly
) -> tuple[str, ...]:
    """Copies each into `base`, for the user `uid`; symlinks stay links, devices, sockets and FIFOs are left out.

    UsageError when one is missing, unreadable, or all of them are larger than `limit_bytes` (0: any size).
    """
    made, total, done = [], 0, 0
    for number, rule in enumerate(rules):
        source, target = Path(rule.host), base / str(number)

        def tell(count: int, what: str = f"copying {rule.host}") -> None:
            nonlocal done
            done += count
            progress(what, done, 0)

        try:
            total += _sizes(source, tell)
            if limit_bytes and total > limit_bytes:
                raise UsageError(f"what is to be copied in is larger than the disk limit: {source}", "raise --disk")
            copy = partial(_copy_file, tell=tell)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, ignore=_special, copy_function=copy)
            elif source.is_file():
                copy(str(source), str(target))
            else:
                raise UsageError(f"cannot copy {source}: it is neither a file nor a folder", "give a file or a folder")
            if uid is not None:
                _give(target, uid)
        except (OSError, shutil.Error) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UsageError(f"cannot copy {source} in: {reason}", "check the path and its permissions") from error
        made.append(str(target))
    return tuple(made)
