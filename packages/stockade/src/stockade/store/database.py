"""What the record asks of a database; SQLite and PostgreSQL each give it, and the numbered migrations of both: files
beside this one, applied once each and in order."""

import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from stockade.core.errors import StoreFailed
from stockade.store.blobs import Large

Values = Sequence[Any]


class Database(Protocol):
    """One connection, used by one thread. Values stand as `?` in `sql`. Raises only what `errors` names."""

    place: str
    """For messages; holds no password."""
    now: str
    """SQL for the database's own clock, in UNIX seconds."""
    locking: str
    """Appended to a SELECT: nobody else may change what it gives until the transaction ends."""
    matching: str
    """SQL that is true of a row of `said` whose text holds the words of a `phrase`."""
    at_once: str
    """Appended to a SELECT of such rows: all are found first, by the index, however many the database expects."""

    def phrase(self, words: str) -> str:
        """One or several words that stand side by side, the last of them perhaps only begun, for `matching`."""
        ...

    @property
    def errors(self) -> tuple[type[BaseException], ...]: ...

    def execute(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]: ...

    def execute_many(self, sql: str, rows: Iterable[Values]) -> None: ...

    def begin(self, *, durable: bool = True) -> None:
        """A transaction that writes. A power cut may undo one that need not be `durable`, until the next that is."""
        ...

    def commit(self) -> None:
        """When it returns, no end of any process undoes it; and no power cut, where it is durable."""
        ...

    def rollback(self) -> None:
        """Never raises; does nothing outside of a transaction."""
        ...

    def save(self, large: Iterable[Large]) -> None:
        """Durable at the latest with the transaction that is open."""
        ...

    def load(self, sha256: str) -> bytes | None: ...

    def keep(self, named: Callable[[], Collection[str]]) -> None:
        """Of all that was saved, only what is `named` stays. Nobody saves anything between that call and the end of the
        transaction, which is open.
        """
        ...

    def try_again(self, error: BaseException) -> bool:
        """Whether the same may work now: another was in the way, or the connection was lost and is there again."""
        ...

    def mapped(self, error: BaseException) -> StoreFailed: ...

    def close(self) -> None: ...


Kind = Literal["sqlite", "postgres"]
_NUMBERED = re.compile(r"(\d{4})_\w+\.sql")
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)


def migrations(kind: Kind) -> tuple[tuple[str, ...], ...]:
    """The statements of each migration; the first is number 1."""
    return tuple(_statements(path.read_text()) for path in _numbered(kind))


def _numbered(kind: Kind) -> list[Path]:
    folder = Path(__file__).with_name("migrations") / kind
    result = sorted(path for path in folder.iterdir() if _NUMBERED.fullmatch(path.name))
    assert [int(path.name[:4]) for path in result] == list(range(1, len(result) + 1)), "migrations are numbered from 1"
    return result


def outstanding(version: int, kind: Kind, place: str) -> list[tuple[int, tuple[str, ...]]]:
    """What a record of this version still needs. StoreFailed when it is newer than we are."""
    known = len(_numbered(kind))
    if version > known:
        raise StoreFailed(
            f"the record {place} was written by a newer Stockade (schema {version}, this one knows {known})",
            "update Stockade, or choose another record with --store",
        )
    return list(enumerate(migrations(kind)[version:], version + 1)) if version < known else []


def _statements(text: str) -> tuple[str, ...]:
    """Each without its semicolon; those in the body of a trigger are part of it."""
    found, begun = list[str](), ""
    for part in _COMMENT.sub("", text).split(";"):
        begun += part
        if sqlite3.complete_statement(f"{begun};"):
            found.append(begun.strip())
            begun = ""
        else:
            begun += ";"
    return tuple(one for one in found if one)
