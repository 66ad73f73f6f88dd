"""An event as a row: its JSON, a checksum, and what is too large for a row put aside by its sha256.

A string of `LARGE_BYTES` or more is taken out of the JSON. `large` lists where it stood: `[path, sha256, size, form]`,
where `path` are keys and positions, and `form` is `text` or `base64` (what is put aside is then the bytes themselves).
What is put aside is a file, `ab/abcdef...`, on disk when `save` returns.
"""

import base64
import contextlib
import hashlib
import json
import os
import re
import secrets
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stockade.core.errors import StoreFailed
from stockade.core.events import SCHEMA_VERSION, RunEvent, from_json, to_json

LARGE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Large:
    """Something put aside."""

    sha256: str
    data: bytes


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
        if (match := _STARTED.match(str(body))) is not None and int(match[1]) != SCHEMA_VERSION:
            raise _of_another_schema(run_id, int(match[1]))
        event = _event(body, crc, large, load, f"run {run_id}: event {seq} in {place}")
        events.append(event)
    return events


_RECOVER = "how to read what comes before it: docs/store.md, Damage"


def _of_another_schema(run_id: str, version: int) -> StoreFailed:
    """Names of events and fields are others in each: nothing of it is read half."""
    if version > SCHEMA_VERSION:
        return StoreFailed(f"run {run_id} was recorded by a newer Stockade", "update Stockade")
    why = f"run {run_id} was recorded by an older Stockade (record schema {version}, this one reads {SCHEMA_VERSION})"
    return StoreFailed(why, f"read it with that version, or remove it: stockade runs rm --force {run_id}")


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


class BlobFolder:
    """Made when something is put into it. OSError from all methods."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, large: Iterable[Large]) -> None:
        """Files and the folders that name them are synced, also those that another process has just written."""
        for one in large:
            self._save(one)

    def load(self, sha256: str) -> bytes | None:
        """The bytes as they stand there now; None when there is no such file."""
        try:
            return self._path(sha256).read_bytes()
        except FileNotFoundError:
            return None

    def keep(self, named: Collection[str]) -> None:
        """Remove all others, and what a kill left half written."""
        for path in list(self.folder.glob("??/*")):
            if path.name not in named:
                path.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # there is more in it
                    path.parent.rmdir()

    def _path(self, sha256: str) -> Path:
        if len(sha256) != 64 or not all(char in "0123456789abcdef" for char in sha256):
            return self.folder / "none"
        return self.folder / sha256[:2] / sha256

    def _save(self, one: Large) -> None:
        path = self._path(one.sha256)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        result = self.load(one.sha256)
        if result is None or hashlib.sha256(result).hexdigest() != one.sha256:
            _write(path, one.data)
        else:
            _sync(path)
        for folder in (path.parent, self.folder, self.folder.parent):
            _sync(folder)


def _write(path: Path, data: bytes) -> None:
    """Under a name of its own first: a kill leaves no half of a file under a name that promises its content."""
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
