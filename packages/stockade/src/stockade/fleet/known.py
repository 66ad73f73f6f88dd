"""The batches of this machine: where the results of each are, noted when it begins."""

import hashlib
import os
import time
from os.path import realpath
from pathlib import Path

from pydantic import ValidationError

from stockade.core.data import Data
from stockade.core.errors import StoreFailed, UsageError
from stockade.fleet.results import driver_of
from stockade.paths import read_regular, state_dir

_MAX_BYTES = 64 << 10


class Known(Data):
    """`tasks`: the most it had, each epoch one; `begun`: UNIX s, the last time. `id` is that of its results."""

    id: str
    results: str
    tasks: int
    begun: float

    @property
    def is_running(self) -> bool:
        """Whether a process drives it now."""
        try:
            driver = driver_of(Path(self.results))
        except StoreFailed:  # whoever it is
            return True
        if driver is None:
            return False
        if driver.pidfd is not None:
            os.close(driver.pidfd)
        return True


def note(results: Path, tasks: int) -> None:
    """It begins, or goes on. StoreFailed where that cannot be written."""
    path = realpath(results)
    name = hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()[:12]
    earlier = max((one.tasks for one in known() if one.id == name), default=0)  # this time it may be a part of them
    one = Known(id=name, results=path, tasks=max(tasks, earlier), begun=time.time())
    try:
        _folder().mkdir(parents=True, exist_ok=True)
        part = _folder() / f"{one.id}.part"
        part.write_text(one.model_dump_json())
        part.replace(_folder() / f"{one.id}.json")
    except OSError as error:
        raise StoreFailed(f"{_folder()} cannot be written: {error.strerror}") from None


def known() -> list[Known]:
    """Those whose results are still there, the last begun first."""
    found = list[Known]()
    for path in _folder().glob("*.json"):
        try:
            one = Known.model_validate_json(read_regular(path, _MAX_BYTES))
        except (OSError, ValidationError):  # a note that is broken names no batch
            continue
        if one.id == path.stem and Path(one.results).is_file():
            found.append(one)
    return sorted(found, key=lambda one: one.begun, reverse=True)


def find(batch: str) -> Known:
    """UsageError when there is none of this id."""
    for one in known():
        if one.id == batch:
            return one
    raise UsageError(f"there is no batch {batch!r}", "stockade batch status lists them")


def find_results(results: Path) -> Known:
    """The one whose results these are."""
    return next(one for one in known() if one.results == realpath(results))


def _folder() -> Path:
    return state_dir() / "batches"
