"""An event as a row: its JSON, a checksum, and what is too large for a row put aside by its sha256.

A string of `LARGE_BYTES` or more is taken out of the JSON. `large` lists where it stood: `[path, sha256, size, form]`,
where `path` are keys and positions, and `form` is `text` or `base64` (what is put aside is then the bytes themselves).
What becomes of it: blobs.py.
"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stockade.core.errors import StoreFailed
from stockade.core.events import OLDEST_SCHEMA_VERSION, SCHEMA_VERSION, RunEvent, from_json, to_json
from stockade.store.blobs import Large

LARGE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Row:
    """One event. `large` is JSON or None, `put_aside` what it names."""

    at: float
    type: str
    body: str
    crc: int
    large: str | None = None
    put_aside: tuple[Large, ...] = ()


_STARTED = re.compile(r'\{"at":[^,]+,"type":"run_started","schema_version":(\d{1,9})\b')
"""How the first event of a run begins, also where another version has other fields behind."""
Place = list[str | int]
Load = Callable[[str], bytes | None]


def encode(event: RunEvent) -> Row:
    body = to_json(event)
    if len(body) < LARGE_BYTES:
        return Row(event.at, event.type, body, zlib.crc32(body.encode()))
    value = json.loads(body)
    named: list[tuple[Place, str, int, str]] = []
    aside: list[Large] = []
    for path, text in list(_long_strings(value, [])):
        data, form = _bytes_of(path, text)
        one = Large(hashlib.sha256(data).hexdigest(), data)
        aside.append(one)
        named.append((path, one.sha256, len(data), form))
        _put(value, path, "")
    if not named:
        return Row(event.at, event.type, body, zlib.crc32(body.encode()))
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Row(event.at, event.type, body, zlib.crc32(body.encode()), json.dumps(named), tuple(aside))


def decode(run_id: str, rows: Sequence[tuple[Any, ...]], load: Load, place: str, first: int = 0) -> list[RunEvent]:
    """The events of all rows `(seq, body, crc, large)` of a run, from number `first` on. StoreFailed when one is
    missing, damaged or newer.
    """
    events: list[RunEvent] = []
    for expected, (seq, body, crc, large) in enumerate(rows, first):
        if seq != expected:
            raise StoreFailed(f"run {run_id}: event {expected} is missing from {place}", _RECOVER)
        if (match := _STARTED.match(str(body))) is not None:
            _check_schema(run_id, int(match[1]))
        event = _event(body, crc, large, load, f"run {run_id}: event {seq} in {place}")
        events.append(event)
    return events


_RECOVER = "how to read what comes before it: docs/store.md, Damage"


def _check_schema(run_id: str, version: int) -> None:
    """Of a schema that is not read nothing is read half: names of events and fields may be others."""
    if version > SCHEMA_VERSION:
        raise StoreFailed(f"run {run_id} was recorded by a newer Stockade", "update Stockade")
    if version < OLDEST_SCHEMA_VERSION:
        raise StoreFailed(
            f"run {run_id} was recorded before the first release (record schema {version}; those from"
            f" {OLDEST_SCHEMA_VERSION} on are read)",
            f"read it with that version, or remove it: stockade runs rm --force {run_id}",
        )


def _event(body: object, crc: object, large: object, load: Load, name: str) -> RunEvent:
    text = str(body)
    if crc is not None and zlib.crc32(text.encode(errors="replace")) != crc:
        raise StoreFailed(f"{name} is damaged: its checksum does not fit", _RECOVER)
    if large is not None:
        text = _whole(text, str(large), load, name)
    try:
        return from_json(text)
    except ValueError:
        raise StoreFailed(f"{name} is damaged or of a newer Stockade", _RECOVER) from None


def _whole(body: str, large: str, load: Load, name: str) -> str:
    """The JSON with what was put aside back in its place."""
    try:
        value, named = json.loads(body), json.loads(large)
    except ValueError:
        raise StoreFailed(f"{name} is damaged", _RECOVER) from None
    for path, sha256, size, form in named:
        data = load(sha256)
        if data is None:
            raise StoreFailed(f"{name}: its large output {sha256[:12]}… ({size} bytes) is missing", _RECOVER)
        if len(data) != size or hashlib.sha256(data).hexdigest() != sha256:
            raise StoreFailed(f"{name}: its large output {sha256[:12]}… was changed or damaged", _RECOVER)
        _put(value, path, base64.b64encode(data).decode() if form == "base64" else data.decode())
    return json.dumps(value)


def _long_strings(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    if isinstance(value, str):
        if len(value) >= LARGE_BYTES // 4 and len(value.encode()) >= LARGE_BYTES:
            yield place, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _long_strings(inner, [*place, key])
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _long_strings(inner, [*place, number])


def _bytes_of(place: Place, text: str) -> tuple[bytes, str]:
    if place[-1] == "base64":
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError:
            return text.encode(), "text"
        if base64.b64encode(data).decode() == text:
            return data, "base64"
    return text.encode(), "text"


def _put(value: Any, place: Place, text: str) -> None:
    for key in place[:-1]:
        value = value[key]
    value[place[-1]] = text


__all__ = ["Large", "Load", "Row", "decode", "encode"]
