"""A row of `stockade runs list`. Needs no event, whose import costs more than the list."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LISTED = ("run_id", "started", "task", "bot", "model", "status", "turns", "folder", "verified")
"""The columns of a record's table `runs`, in the order in which they are read."""
NEVER_BEGAN = "(status='failed' AND turns=0)"
"""`never_began` in SQL."""
_TEXTS = ("task", "bot", "model", "status", "folder")
_END_OF_TIME = 253402300800.0
"""The year 10000: no clock says so, and no calendar goes further."""
_RUN_ID = re.compile(r"\w[\w.-]{0,199}")
_STATES = frozenset({"running", "done", "stopped", "failed"})


def wrong_column(row: Sequence[Any]) -> str:
    """Which column of a row of `runs` is not what it must be; empty when none is. Of many rows, so by hand."""
    run_id, started, *texts, turns = row[0], row[1], row[2], row[3], row[4], row[5], row[7], row[6]
    if not (isinstance(run_id, str) and _RUN_ID.fullmatch(run_id)):
        return "run_id"
    if not (isinstance(started, float | int) and 0 <= started < _END_OF_TIME):
        return "started"
    if not all(isinstance(text, str) for text in texts):
        return next(name for name, text in zip(_TEXTS, texts, strict=True) if not isinstance(text, str))
    if texts[3] not in _STATES:
        return "status"
    if not isinstance(turns, int):
        return "turns"
    return "" if row[8] in (None, 0, 1) else "verified"


def never_began(status: str, turns: int) -> bool:
    """Whether a run failed before its model had answered once: it is no run to go on with."""
    return status == "failed" and turns == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """`folder`: the first one that it works in. `driver`: the living process that drives it, in words. `problem`: what
    is wrong with the row of one whose status is `damaged`; of its other fields only the id says something.
    `verified`: whether its checks passed when it was done; None where it has none.
    """

    run_id: str
    started: float = 0.0
    task: str = ""
    bot: str = ""
    model: str = ""
    status: str
    turns: int = 0
    folder: str = ""
    verified: bool | None = None
    driver: str | None = None
    problem: str | None = None
