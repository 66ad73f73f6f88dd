"""Opening the record: a file, or a PostgreSQL database."""

import os
from pathlib import Path
from typing import TypeGuard

from stockade.core.errors import UsageError
from stockade.core.ports import RunStore
from stockade.paths import state_dir
from stockade.store.postgres import PostgresStore
from stockade.store.sqlite import SQLiteStore


def open_store(where: str | None = None) -> RunStore:
    """The record: a file's path or the address of a PostgreSQL database, by default runs.db in the state folder.

    The file is made where it is not there. UsageError when its folder is not: only the default one is made.
    """
    if _is_address(where):
        return PostgresStore(where)
    return SQLiteStore(_in_a_folder(_path(where)) if where else _path(where))


def read_store(where: str | None = None) -> RunStore:
    """A record that runs are looked for in: one that was named must be there, or it is a UsageError."""
    if where and not _is_address(where):
        try:
            result = _path(where).exists()
        except OSError as error:
            raise UsageError(f"the record {where} cannot be looked at: {error.strerror}", "check --store") from None
        if not result:
            raise UsageError(f"there is no record {where}", "check --store; stockade run would make it")
    return open_store(where)


def _in_a_folder(path: Path) -> Path:
    """A path that was typed: its folder is there, or it is a UsageError."""
    if not os.path.isdir(path.parent):
        raise UsageError(f"there is no folder {path.parent} for the record {path.name}", "check the path, or make it")
    return path


def _path(where: str | None) -> Path:
    return Path(where) if where else state_dir() / "runs.db"


def _is_address(where: str | None) -> TypeGuard[str]:
    return where is not None and where.startswith(("postgresql:", "postgres:"))
