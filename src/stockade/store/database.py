"""What the record asks of a database; SQLite and PostgreSQL each give it."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

from stockade.core.errors import StoreFailed
from stockade.store.rows import Large

Values = Sequence[Any]


class Database(Protocol):
    """One connection, used by one thread. Values stand as `?` in `sql`. Raises only what `errors` names."""

    place: str
    """For messages; holds no password."""
    now: str
    """SQL for the database's own clock, in UNIX seconds."""
    locking: str
    """Appended to a SELECT: nobody else may change what it gives until the transaction ends."""

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
