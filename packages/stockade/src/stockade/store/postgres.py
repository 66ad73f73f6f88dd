"""The record in PostgreSQL, through psycopg 3. Its tables are in the schema `stockade` of the database.

The password is taken from the address, the environment or ~/.pgpass by libpq, and shown nowhere.
"""

import contextlib
import threading
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from stockade.core.errors import StoreFailed, UsageError, to_install
from stockade.store.blobs import Large
from stockade.store.database import Values, outstanding
from stockade.store.lease import BEAT_S
from stockade.store.record import SQLRecord

if TYPE_CHECKING:
    import psycopg

SCHEMA = "stockade"
_MIGRATION_LOCK = 0x53746F636B616465  # of everybody who migrates; the letters of our name
_DEFAULTS = {
    "application_name": "stockade",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_TRIES, _FIRST_PAUSE_S = 8, 0.1


_ONLY = "regexp_replace({}, '[^[:alnum:]]+', ' ', 'g')"
_WORDS = f"to_tsvector('simple', {_ONLY})"
"""As the index of migration 4 has them: what is no letter or digit parts words, as in SQLite."""


class PostgresStore(SQLRecord):
    """Implements core.ports.RunStore. UsageError for a wrong address, StoreFailed when it cannot be used."""

    def __init__(self, address: str, beat_s: float = BEAT_S) -> None:
        super().__init__(PostgresDatabase(address), beat_s)


class PostgresDatabase:
    """Implements store.database.Database. A connection that was lost is made again."""

    now = "extract(epoch from clock_timestamp())::double precision"
    locking = " FOR UPDATE"
    matching = (
        f"{_WORDS.format('said.text')} @@ (SELECT CASE WHEN numnode(q) = 0 THEN q ELSE (q::text || ':*')::tsquery END"
        f" FROM phraseto_tsquery('simple', {_ONLY.format('?')}) AS q)"
    )

    at_once = " OFFSET 0"

    def __init__(self, address: str) -> None:
        try:
            import psycopg  # noqa: PLC0415 (an optional extra)
        except ImportError as error:
            raise UsageError(
                f"a record in PostgreSQL needs the package psycopg: {str(error).splitlines()[0]}",
                to_install("postgres"),
            ) from None
        self._psycopg = psycopg
        self.errors = (psycopg.Error,)
        self._given, self.place = _read_address(psycopg, address)
        try:
            self._db = self._connect()
        except psycopg.Error as error:
            raise self.mapped(error) from None
        try:
            self._prepare()
        except psycopg.Error as error:
            self._db.close()
            raise self.mapped(error) from None
        except StoreFailed:
            self._db.close()
            raise

    def _connect(self) -> "psycopg.Connection[tuple[Any, ...]]":
        options = f"{self._given.get('options') or ''} -csearch_path={SCHEMA}".strip()
        db = self._psycopg.connect(**{**_DEFAULTS, **self._given, "options": options}, autocommit=True)
        if db.execute("SHOW synchronous_commit").fetchone() == ("off",):
            db.execute("SET synchronous_commit = on")
        return db

    def phrase(self, words: str) -> str:
        return words

    def _prepare(self) -> None:
        version = self._version()
        if not outstanding(version, "postgres", self.place):
            return
        with self._db.transaction():
            self._db.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATION_LOCK,))
            if not version:
                self._db.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
                self._db.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)")
            for number, statements in outstanding(self._version(), "postgres", self.place):
                for statement in statements:
                    self._db.execute(statement)
                self._db.execute("DELETE FROM schema_version")
                self._db.execute("INSERT INTO schema_version VALUES (%s)", (number,))

    def _version(self) -> int:
        result = self._db.execute("SELECT to_regclass(%s)", (f"{SCHEMA}.schema_version",)).fetchone()
        if result is None or result[0] is None:
            return 0
        row = self._db.execute("SELECT version FROM schema_version").fetchone()
        return int(row[0]) if row else 0

    def execute(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        cursor = self._db.execute(_dialect(sql), tuple(values))
        return list(cursor.fetchall()) if cursor.description else []

    def execute_many(self, sql: str, rows: Iterable[Values]) -> None:
        with self._db.cursor() as cursor:
            cursor.executemany(_dialect(sql), rows)

    def begin(self, *, durable: bool = True) -> None:
        """Always durable: what the server had not yet synced is lost when it crashes, which this process survives."""
        self._db.execute("BEGIN")

    def commit(self) -> None:
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        if not self._db.closed and self._db.info.transaction_status != self._psycopg.pq.TransactionStatus.IDLE:
            with contextlib.suppress(self._psycopg.Error):
                self._db.execute("ROLLBACK")

    def save(self, large: Iterable[Large]) -> None:
        self.execute_many(
            "INSERT INTO large_outputs (sha256, data) VALUES (?, ?) ON CONFLICT DO NOTHING",
            [(one.sha256, one.data) for one in large],
        )

    def load(self, sha256: str) -> bytes | None:
        rows = self.execute("SELECT data FROM large_outputs WHERE sha256=?", (sha256,))
        return bytes(rows[0][0]) if rows else None

    def keep(self, named: Callable[[], Collection[str]]) -> None:
        """Whoever has saved something holds a weaker lock until the event that names it is there too."""
        self.execute("LOCK TABLE large_outputs IN EXCLUSIVE MODE")
        kept = set(named())
        there = self.execute("SELECT sha256 FROM large_outputs")
        self.execute_many("DELETE FROM large_outputs WHERE sha256=?", [row for row in there if row[0] not in kept])

    def try_again(self, error: BaseException) -> bool:
        """A server that is restarted is back within seconds: about 25 s of tries."""
        kinds = self._psycopg.errors
        if isinstance(error, kinds.UniqueViolation | kinds.DeadlockDetected | kinds.SerializationFailure):
            return True
        if not isinstance(error, self._psycopg.OperationalError) or not (self._db.closed or self._db.broken):
            return False
        self._db.close()
        pause = threading.Event()
        for number in range(_TRIES):
            pause.wait(_FIRST_PAUSE_S * 2**number if number else 0)
            try:
                self._db = self._connect()
            except self._psycopg.Error:
                continue
            return True
        return False

    def mapped(self, error: BaseException) -> StoreFailed:
        text = self._without_password(" ".join(str(error).split()) or type(error).__name__)
        hint = "see that the server runs and the address is right, or choose another with --store"
        if isinstance(error, self._psycopg.errors.DiskFull):
            hint = "make room on the server's disk"
        elif isinstance(error, self._psycopg.errors.InsufficientPrivilege):
            hint = f"the user needs the right to create the schema {SCHEMA}, or to use it"
        return StoreFailed(f"the record {self.place}: {text}", hint)

    def _without_password(self, text: str) -> str:
        password = self._given.get("password")
        return text.replace(str(password), "***") if password else text

    def close(self) -> None:
        self._db.close()


def _read_address(psycopg: Any, address: str) -> tuple[dict[str, Any], str]:
    """What it says, and how it is named without its password. UsageError, which does not quote it."""
    try:
        args = dict(psycopg.conninfo.conninfo_to_dict(address))
    except psycopg.Error:
        raise UsageError(
            "the address of the record is not one of PostgreSQL",
            "write --store postgresql://USER@HOST:PORT/DATABASE; special characters of a password as %XX",
        ) from None
    user = f"{args['user']}@" if args.get("user") else ""
    port = f":{args['port']}" if args.get("port") else ""
    return args, f"postgresql://{user}{args.get('host') or ''}{port}/{args.get('dbname') or ''}"


def _dialect(sql: str) -> str:
    return sql.replace("?", "%s")
