"""What is readable of a damaged SQLite record, written to a new one. The old one is not touched."""

import json
import zlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anyio import to_thread

from stockade.core.data import Data
from stockade.core.errors import StoreFailed, UsageError
from stockade.core.events import RunEvent, RunStarted, from_json, to_json
from stockade.store.blobs import BlobFolder
from stockade.store.carve import Pages
from stockade.store.rows import with_large
from stockade.store.sqlite import SQLiteStore, large_outputs


class Recovered(Data):
    """What came of it. `loose` events are of runs with a gap before them: they are lines of JSON in `loose_file`.

    `new` is None, and no file is made, when nothing at all could be read.
    """

    runs: int
    events: int
    loose: int = 0
    lost_outputs: int = 0
    damaged: int = 0
    new: str | None
    loose_file: str | None = None


def loose_events(new: Path) -> Path:
    return new.with_name(f"{new.name}.loose.jsonl")


async def recover(damaged: Path, new: Path) -> Recovered:
    """UsageError when there is nothing to recover from or `new` exists; StoreFailed when a file cannot be used."""
    found, damage, lost, loose = await to_thread.run_sync(_read, damaged, new)
    whole = {run_id: prefix for run_id, events in found.items() if (prefix := _prefix(events))}
    if not whole and not loose:
        return Recovered(runs=0, events=0, lost_outputs=lost, damaged=damage, new=None)
    async with SQLiteStore(new) as store:
        for run_id, events in sorted(whole.items(), key=lambda item: item[1][0].at):
            await store.append(run_id, events)
    return Recovered(
        runs=len(whole), events=sum(len(events) for events in whole.values()), loose=len(loose), lost_outputs=lost,
        damaged=damage, new=str(new), loose_file=str(loose_events(new)) if loose else None,
    )  # fmt: skip


def _read(damaged: Path, new: Path) -> tuple[dict[str, dict[int, RunEvent]], int, int, list[str]]:
    """What `_events` gives, and the loose ones, which are then in their file."""
    if not damaged.is_file():
        raise UsageError(f"there is no record {damaged}", "name it with --store")
    for path in (new, loose_events(new)):
        if path.exists():
            raise UsageError(f"{path} exists already", "choose another with --output")
    try:
        found, damage, lost = _events(damaged)
        loose = _loose(found)
        if loose:
            loose_events(new).write_text("".join(f"{line}\n" for line in loose))
    except OSError as error:
        raise StoreFailed(f"{error.filename or damaged}: {error.strerror}") from None
    return found, damage, lost, loose


def _events(path: Path) -> tuple[dict[str, dict[int, RunEvent]], int, int]:
    """By run and place; how many rows were damaged, and how many large outputs are lost."""
    blobs = BlobFolder(large_outputs(path))
    found: dict[str, dict[int, RunEvent]] = defaultdict(dict)
    bad: set[tuple[str, int]] = set()
    lost = 0
    for row in Pages(path).rows():
        if not _is_event(row):
            continue
        run_id, seq, body = row[0], row[1], row[4]
        crc, large = (*row[5:], None, None)[:2]
        if seq in found[run_id]:
            continue
        try:
            if crc is not None and zlib.crc32(body.encode()) != crc:
                raise ValueError("the checksum does not fit")
            text, missing = with_large(body, large, blobs.load) if large else (body, 0)
            found[run_id][seq] = from_json(text)
            lost += missing
        except (ValueError, LookupError, TypeError):
            bad.add((run_id, seq))
    return found, len([key for key in bad if key[1] not in found[key[0]]]), lost


def _is_event(row: Sequence[Any]) -> bool:
    match row:
        case [str(), int(seq), int() | float(), str(), str(body), *rest] if len(rest) in (0, 2):
            return seq >= 0 and body.startswith("{")
        case _:
            return False


def _prefix(events: dict[int, RunEvent]) -> list[RunEvent]:
    """From its start to the first gap; empty when the start is lost."""
    prefix: list[RunEvent] = []
    while (event := events.get(len(prefix))) is not None:
        prefix.append(event)
    return prefix if prefix and isinstance(prefix[0], RunStarted) else []


def _loose(found: dict[str, dict[int, RunEvent]]) -> list[str]:
    return [
        json.dumps({"run_id": run_id, "seq": seq, "event": json.loads(to_json(events[seq]))})
        for run_id, events in sorted(found.items())
        for seq in sorted(events)
        if seq >= len(_prefix(events))
    ]
