"""Where runs are kept: the record, and a folder for what belongs to one run. The clock that they are dated by."""

import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from stockade.core.errors import UsageError
from stockade.core.ports import RunStore

if TYPE_CHECKING:
    from stockade.store.recover import Recovered


class SystemClock:
    """Implements core.ports.Clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def state_dir() -> Path:
    """Where runs are kept: `$XDG_STATE_HOME/stockade`."""
    return Path(platformdirs.user_state_dir("stockade", appauthor=False))


def run_dir(run_id: str) -> Path:
    return state_dir() / "runs" / run_id


def new_run_id() -> str:
    """Sorts by time, short enough to type a prefix of: `20261122-020648-k3f9`."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + "".join(secrets.choice(alphabet) for _ in range(4))


def open_store(where: str | None = None) -> RunStore:
    """The record: a file's path or the address of a PostgreSQL database, by default runs.db in the state folder."""
    if where and where.startswith(("postgresql:", "postgres:")):
        from stockade.store.postgres import PostgresStore

        return PostgresStore(where)
    from stockade.store.sqlite import SQLiteStore

    return SQLiteStore(Path(where) if where else state_dir() / "runs.db")


async def recover_store(damaged: str | None, new: str | None) -> "Recovered":
    """What is readable of a SQLite record, into a new one beside it. Errors are those of store.recover."""
    from stockade.store.recover import recover

    if damaged and damaged.startswith(("postgresql:", "postgres:")):
        raise UsageError("only a record in a file can be recovered", "PostgreSQL has pg_dump and its backups")
    path = Path(damaged) if damaged else state_dir() / "runs.db"
    return await recover(path, Path(new) if new else path.with_name(f"{path.name}.recovered"))


def forget(run_id: str) -> None:
    """Remove what was prepared for a run that will not begin."""
    from stockade.sandboxes.folders.discard import remove_tree

    if run_dir(run_id).exists():
        remove_tree(run_dir(run_id))
