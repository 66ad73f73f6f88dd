"""Rows read out of the pages of a SQLite file, whatever else of the file is broken.

The tables of a record only grow, so every row that stands anywhere in it is a row of it: pages are looked at one by
one, without the tree above them. WITHOUT ROWID tables are index b-trees, whose rows stand in leaves and in inner pages.
Format: https://www.sqlite.org/fileformat2.html
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MAGIC = b"SQLite format 3\0"
_HEADER, _LEAF, _INNER = 100, 0x0A, 0x02
_WAL_HEADER, _FRAME_HEADER = 32, 24
_PAGE_SIZES = {1 << power for power in range(9, 17)}
_USUAL_PAGE = 4096
_LONGEST_CHAIN = 1 << 20

Row = tuple[Any, ...]


class Pages:
    """The pages of a file, with those of its write-ahead log in their place. OSError when it cannot be read."""

    def __init__(self, path: Path) -> None:
        self._file = _mapped(path)
        wal = _mapped(path.with_name(f"{path.name}-wal"))
        self.size = _page_size(self._file, wal)
        self.usable = self.size - (self._file[20] if self._file[:16] == _MAGIC and len(self._file) > 20 else 0)
        self._newer = dict(_frames(wal, self.size))
        self.count = max([len(self._file) // self.size, *self._newer])

    def __getitem__(self, number: int) -> bytes:
        """Page `number`, from 1; empty when there is none."""
        if number in self._newer:
            return self._newer[number]
        return bytes(self._file[(number - 1) * self.size : number * self.size]) if number > 0 else b""

    def rows(self) -> Iterator[Row]:
        """Of all index b-trees, in no order; some of them twice. What makes no sense is left out."""
        for number in range(1, self.count + 1):
            page = self[number]
            base = _HEADER if number == 1 else 0
            if len(page) < self.size or page[base] not in (_LEAF, _INNER):
                continue
            inner = page[base] == _INNER
            cells = int.from_bytes(page[base + 3 : base + 5])
            first = base + (12 if inner else 8)
            for place in range(first, min(first + 2 * cells, self.size - 1), 2):
                at = int.from_bytes(page[place : place + 2]) + (4 if inner else 0)
                try:
                    yield _record(self._payload(page, at))
                except (IndexError, ValueError, OverflowError):
                    continue

    def _payload(self, page: bytes, at: int) -> bytes:
        total, at = _varint(page, at)
        usable = self.usable
        most, least = (usable - 12) * 64 // 255 - 23, (usable - 12) * 32 // 255 - 23
        local = total
        if total > most:
            local = least + (total - least) % (usable - 4)
            local = local if local <= most else least
        parts, have = [page[at : at + local]], local
        following = int.from_bytes(page[at + local : at + local + 4]) if local < total else 0
        for _ in range(_LONGEST_CHAIN):
            if have >= total:
                break
            more = self[following]
            if len(more) < usable:
                raise ValueError("the chain of pages is broken")
            parts.append(more[4 : min(usable, 4 + total - have)])
            have, following = have + len(parts[-1]), int.from_bytes(more[:4])
        payload = b"".join(parts)
        if len(payload) != total:
            raise ValueError("the cell is cut off")
        return payload


def _record(payload: bytes) -> Row:
    size, at = _varint(payload, 0)
    kinds = []
    while at < size:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    values: list[Any] = []
    for kind in kinds:
        value, at = _value(payload, at, kind)
        values.append(value)
    if at != len(payload):
        raise ValueError("not a record")
    return tuple(values)


def _value(payload: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind == 0:
        return None, at
    if kind in (8, 9):
        return kind - 8, at
    if kind == 7:
        return struct.unpack(">d", payload[at : at + 8])[0], at + 8
    if kind < 7:
        size = (0, 1, 2, 3, 4, 6, 8)[kind]
        return int.from_bytes(payload[at : at + size], signed=True), at + size
    if kind < 12:
        raise ValueError("no such kind")
    size = (kind - 12) // 2
    data = payload[at : at + size]
    if len(data) != size:
        raise ValueError("cut off")
    return (data.decode() if kind % 2 else data), at + size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for number in range(9):
        byte = data[at + number]
        if number == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            return value, at + number + 1
    raise ValueError("not a number")


def _mapped(path: Path) -> "mmap.mmap | bytes":
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (FileNotFoundError, ValueError):  # ValueError: an empty file
        return b""


def _page_size(file: "mmap.mmap | bytes", wal: "mmap.mmap | bytes") -> int:
    """What either header says, if that can be; else what nearly all have."""
    said = int.from_bytes(file[16:18]) if file[:16] == _MAGIC else 0
    for size in (65536 if said == 1 else said, int.from_bytes(wal[8:12])):
        if size in _PAGE_SIZES:
            return size
    return _USUAL_PAGE


def _frames(wal: "mmap.mmap | bytes", size: int) -> Iterator[tuple[int, bytes]]:
    """Those of the log's present round: later ones of a page go before earlier ones."""
    salts = bytes(wal[16:24])
    for at in range(_WAL_HEADER, len(wal) - _FRAME_HEADER - size + 1, _FRAME_HEADER + size):
        if bytes(wal[at + 8 : at + 16]) == salts:
            yield int.from_bytes(wal[at : at + 4]), bytes(wal[at + _FRAME_HEADER : at + _FRAME_HEADER + size])
