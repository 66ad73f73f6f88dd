"""The list of runs on either database, without the events, whose classes cost more to import than a list to read."""

from collections.abc import Sequence
from typing import Any

from stockade.core.errors import StoreFailed
from stockade.core.summary import LISTED, NEVER_BEGAN, RunSummary, wrong_column
from stockade.store.database import Database
from stockade.store.lease import Lease

_BEGAN = f"NOT coalesce({NEVER_BEGAN}, false)"


def runs_of(
    db: Database,
    *,
    folder: str | None = None,
    words: Sequence[str] = (),
    limit: int | None = None,
    began: bool = False,
) -> list[RunSummary]:
    """The newest first, as of core.ports.RunStore. `began`: without failed starts."""
    where, values = _where(db, folder, words)
    if began:
        where.append(_BEGAN)
    rows = db.execute(
        f"SELECT {', '.join(f'runs.{name}' for name in LISTED)}, {lease_columns(db)}"
        " FROM runs LEFT JOIN leases ON leases.run_id = runs.run_id"
        f" WHERE {' AND '.join(where)} ORDER BY number DESC{' LIMIT ?' if limit else ''}",
        [*values, *([limit] if limit else [])],
    )
    return [_summary(db, row[: len(LISTED)], row[len(LISTED) :]) for row in rows]


def count_runs(db: Database, *, folder: str | None = None, words: Sequence[str] = ()) -> tuple[int, int]:
    """How many there are, and how many of them began."""
    where, values = _where(db, folder, words)
    sql = f"SELECT count(*), coalesce(sum(CASE WHEN {_BEGAN} THEN 1 ELSE 0 END), 0) FROM runs WHERE"
    ((every, began),) = db.execute(f"{sql} {' AND '.join(where)}", values)
    return int(every), int(began)


def _where(db: Database, folder: str | None, words: Sequence[str]) -> tuple[list[str], list[object]]:
    where, values = ["true"], list[object]()
    if folder is not None:
        where.append("(folder=? OR substr(folder, 1, ?)=?)")
        inside = f"{folder.rstrip('/')}/"
        values += [plain(folder), len(inside), plain(inside)]
    for word in words:
        where.append(f"runs.run_id IN (SELECT run_id FROM said WHERE {db.matching}{db.at_once})")
        values.append(db.phrase(plain(word)))
    return where, values


def _summary(db: Database, row: Sequence[Any], lease: Sequence[Any]) -> RunSummary:
    """One that is damaged has its status: the others are listed beside it."""
    run_id = row[0] if isinstance(row[0], str) else repr(row[0])
    try:
        if wrong := wrong_column(row):
            raise StoreFailed(f"its row in {db.place} is damaged: {wrong}: this is not what stands there")
        driver = Lease.of_row(run_id, lease, db.place).driver if lease[0] is not None else None
        known = dict(zip(LISTED, row, strict=True))
        known["verified"] = None if known["verified"] is None else bool(known["verified"])
        return RunSummary(**known, driver=driver)
    except StoreFailed as error:
        problem = error.message.removeprefix(f"run {run_id}: ")
    return RunSummary(run_id=run_id, status="damaged", problem=problem)


def lease_columns(db: Database) -> str:
    """What `Lease.of_row` is made of."""
    return f"fence, holder, seen, {db.now} - seen"


def plain(text: str) -> str:
    """What both databases take: no NUL, no half of a character."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()
