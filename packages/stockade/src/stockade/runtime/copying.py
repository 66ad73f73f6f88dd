"""Runs from one record to another: a file to a PostgreSQL database, or back. Their folders stay where they are."""

from stockade.core.errors import UsageError
from stockade.core.events import SubRunStarted
from stockade.core.ports import RunStore

_PART = 500
"""Events that are read and written at a time."""


async def with_helpers(store: RunStore, run_id: str) -> list[str]:
    """A run and those that it began, in the order in which they are on record."""
    found, waiting = [run_id], [run_id]
    while waiting:
        begun = [one.run_id for one in await store.events(waiting.pop()) if isinstance(one, SubRunStarted)]
        waiting += [one for one in begun if one not in found and await store.length(one)]
        found += [one for one in waiting if one not in found]
    return found


async def copy_run(source: RunStore, target: RunStore, run_id: str) -> int:
    """How many of its events are new in `target`; one that was copied before, or half, goes on there.

    UsageError where it is under way, or is another run there; RunRemoved where it was removed there.
    """
    if (driver := await source.driver(run_id)) is not None:
        raise UsageError(f"run {run_id} is under way: {driver} drives it", "wait for its end, or stop it")
    there, length = await target.length(run_id), await source.length(run_id)
    for first in range(0, min(there, length), _PART):
        limit = min(_PART, min(there, length) - first)
        await _check_same(source, target, run_id, first, limit)
    if there >= length:
        return 0
    async with target.driving(run_id):
        for first in range(there, length, _PART):
            await target.append(run_id, await source.events(run_id, first=first, limit=_PART))
    return length - there


async def _check_same(source: RunStore, target: RunStore, run_id: str, first: int, limit: int) -> None:
    known, other = [await store.events(run_id, first=first, limit=limit) for store in (source, target)]
    if known != other:
        what = f"run {run_id} is another one in the record that it is to be copied to"
        raise UsageError(what, "nothing of it was copied; `stockade runs rm --store STORE` removes the other one there")
