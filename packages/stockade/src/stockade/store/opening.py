"""Opening the record: a file, or a PostgreSQL database."""

import importlib
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from stockade.core.errors import UsageError
from stockade.paths import is_there, state_dir
from stockade.store.database import Database

if TYPE_CHECKING:
    from stockade.core.ports import RunStore


def open_store(where: str | None = None) -> "RunStore":
    """The record: a file's path or the address of a PostgreSQL database, by default runs.db in the state folder.

    The file is made where it is not there. UsageError when its folder is not: only the default one is made.
    """
    if _is_address(where):
        found: RunStore = _load("postgres:PostgresStore")(where)
    else:
        found = _load("sqlite:SQLiteStore")(_in_a_folder(_path(where)) if where else _path(where))
    return found


def read_store(where: str | None = None) -> "RunStore":
    """A record that runs are looked for in: one that was named must be there, or it is a UsageError."""
    _check_named(where)
    return open_store(where)


def read_index(where: str | None = None) -> Database:
    """The same for store.index, which needs nothing else of a record."""
    _check_named(where)
    found: Database = (
        _load("postgres:PostgresDatabase")(where)
        if _is_address(where)
        else _load("sqlite_file:SQLiteDatabase")(_path(where))
    )
    return found


def _load(where: str) -> Any:
    """What `module:name` of this package names, imported now: a list of runs needs no events."""
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(f"stockade.store.{module}"), name)


def _check_named(where: str | None) -> None:
    if where and not _is_address(where):
        try:
            result = is_there(_path(where))
        except OSError as error:
            raise UsageError(f"the record {where} cannot be looked at: {error.strerror}", "check --store") from None
        if not result:
            raise UsageError(f"there is no record {where}", "check --store; stockade run would make it")


def _in_a_folder(path: Path) -> Path:
    """A path that was typed: its folder is there, or it is a UsageError."""
    if not os.path.isdir(path.parent):
        raise UsageError(f"there is no folder {path.parent} for the record {path.name}", "check the path, or make it")
    return path


def _path(where: str | None) -> Path:
    if where and "\0" in where:
        raise UsageError(f"no record can have the name {where!r}", "check --store")
    if where:
        return Path(where)
    path = state_dir() / "runs.db"
    for mine, mode in ((path.parent, 0o700), (path, 0o600)):  # as older versions did not make them
        with suppress(OSError):  # whoever opens it says what is wrong
            seen = mine.lstat()
            if seen.st_uid == os.geteuid() and not stat.S_ISLNK(seen.st_mode) and seen.st_mode & 0o077:
                mine.chmod(mode)
    return path


def _is_address(where: str | None) -> TypeGuard[str]:
    return where is not None and where.startswith(("postgresql:", "postgres:"))
