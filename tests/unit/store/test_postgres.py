"""PostgreSQL alone: addresses, passwords, schema versions, rights, a full table space is not to be had."""

import builtins
import secrets
from collections.abc import Mapping, Sequence

import psycopg
import pytest

from stockade.core.errors import StoreFailed, UsageError
from stockade.core.events import RunFinished
from stockade.runtime.records import open_store
from stockade.store.database import migrations
from stockade.store.postgres import PostgresStore
from stockade.testing.conformance.store import first, some
from tests.support.postgres import Server

pytestmark = pytest.mark.anyio
PASSWORD = "hunter2-not-to-be-seen"


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://me:{PASSWORD}@127.0.0.1:1/db",
        f"postgresql://me@127.0.0.1:1/db?password={PASSWORD}",
        f"postgresql://me:{PASSWORD}@no-such-host.invalid/db",
        f"postgresql://me:{PASSWORD}@[::1/db",
        f"postgresql://me:{PASSWORD}@h:port/db",
        f"postgresql://me:{PASSWORD}%ZZ@h/db",
        f"postgresql://me:{PASSWORD}@h/db?no_such_option=1",
    ],
)
async def test_a_password_is_shown_in_no_error(address: str) -> None:
    with pytest.raises((StoreFailed, UsageError)) as caught:
        PostgresStore(address)
    assert PASSWORD not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


async def test_a_password_is_not_on_record(postgres: Server) -> None:
    address = postgres.new_database().replace("postgres@", f"postgres:{PASSWORD}@")
    async with PostgresStore(address) as store:
        await store.append("r", [first("r")])
        assert PASSWORD not in store._db.place
        store._db.execute("UPDATE events SET body='x'")
        with pytest.raises(StoreFailed, match="event 0") as caught:
            await store.events("r")
        assert PASSWORD not in str(caught.value)


async def test_without_psycopg_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(
        name: str,
        given: Mapping[str, object] | None = None,
        local: Mapping[str, object] | None = None,
        names: Sequence[str] | None = (),
        level: int = 0,
    ) -> object:
        if name == "psycopg":
            raise ImportError("No module named 'psycopg'")
        return real(name, given, local, names or (), level)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match="needs the package psycopg") as caught:
        open_store("postgresql://x@y/z")
    assert caught.value.hint == "pip install 'psycopg[binary]>=3.2'"


async def test_a_newer_schema_is_refused_politely(postgres: Server) -> None:
    address = postgres.new_database()
    await PostgresStore(address).close()
    with psycopg.connect(address) as db:
        db.execute("UPDATE stockade.schema_version SET version=%s", (len(migrations("postgres")) + 1,))
    with pytest.raises(StoreFailed, match="newer Stockade"):
        PostgresStore(address)


async def test_a_record_of_before_tells_what_the_checks_said(postgres: Server) -> None:
    address, answer = postgres.new_database(), '\0 "verified":true'
    async with PostgresStore(address) as store:
        for name, verified in (("a", None), ("b", True), ("c", False)):
            end = RunFinished(at=9.0, status="done", reason="finish", turns=1, verified=verified, answer=answer)
            await store.append(name, [first(name), end])
    with psycopg.connect(address) as db:
        db.execute("ALTER TABLE stockade.runs DROP COLUMN verified")
        db.execute("UPDATE stockade.schema_version SET version=4")
    async with PostgresStore(address) as store:
        assert {run.run_id: run.verified for run in await store.runs()} == {"a": None, "b": True, "c": False}


async def test_two_that_begin_at_once_both_find_the_tables(postgres: Server) -> None:
    address = postgres.new_database()
    stores = [PostgresStore(address) for _ in range(3)]
    for number, store in enumerate(stores):
        await store.append(f"r{number}", [first(f"r{number}")])
    assert len(await stores[0].runs()) == 3
    for store in stores:
        await store.close()


async def test_a_user_without_rights_is_told_which(postgres: Server) -> None:
    address = postgres.new_database()
    name = f"u{secrets.token_hex(4)}"
    with psycopg.connect(address) as db:
        db.execute(f"CREATE ROLE {name} LOGIN")
    with pytest.raises(StoreFailed, match="permission denied") as caught:
        PostgresStore(address.replace("postgres@", f"{name}@"))
    assert "the right to create the schema" in str(caught.value.hint)


async def test_commits_wait_for_the_disk_whatever_the_server_says(postgres: Server) -> None:
    address = postgres.new_database()
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(f"ALTER DATABASE {address.split('/')[3].split('?')[0]} SET synchronous_commit = off")
    async with PostgresStore(address) as store:
        assert store._db.execute("SHOW synchronous_commit") == [("on",)]


async def test_a_connection_that_was_cut_is_made_again(postgres: Server) -> None:
    address = postgres.new_database()
    async with PostgresStore(address) as store:
        await store.append("r", [first("r")])
        for turn in range(1, 4):
            with psycopg.connect(address, autocommit=True) as db:
                db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
            if turn % 2:
                await store.append("r", some(turn))
            else:
                assert len(await store.events("r")) == 4
        assert len(await store.events("r")) == 7


async def test_a_commit_whose_answer_was_lost_is_not_done_twice(postgres: Server) -> None:
    """The connection breaks right after COMMIT was carried out: the client sees only a broken connection."""
    address = postgres.new_database()
    async with PostgresStore(address) as store:
        await store.append("r", [first("r")])
        db = store._db
        real = db.commit

        def cut_after() -> None:
            real()
            db.commit = real  # type: ignore[method-assign]
            with psycopg.connect(address, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
            db.execute("SELECT 1")

        db.commit = cut_after  # type: ignore[method-assign]
        await store.append("r", some(1))
        assert len(await store.events("r")) == 4
