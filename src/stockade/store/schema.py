"""Numbered migrations: files beside this one, applied once each and in order."""

import re
from importlib import resources
from typing import Literal

from stockade.core.errors import StoreFailed

Kind = Literal["sqlite", "postgres"]
_NUMBERED = re.compile(r"(\d{4})_\w+\.sql")
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)


def migrations(kind: Kind) -> tuple[tuple[str, ...], ...]:
    """The statements of each migration; the first is number 1."""
    folder = resources.files("stockade.store") / "migrations" / kind
    found = sorted((entry.name, entry.read_text()) for entry in folder.iterdir() if _NUMBERED.fullmatch(entry.name))
    assert [int(name[:4]) for name, _ in found] == list(range(1, len(found) + 1)), "migrations are numbered from 1"
    return tuple(_statements(text) for _, text in found)


def outstanding(version: int, kind: Kind, place: str) -> list[tuple[int, tuple[str, ...]]]:
    """What a record of this version still needs. StoreFailed when it is newer than we are."""
    known = migrations(kind)
    if version > len(known):
        raise StoreFailed(
            f"the record {place} was written by a newer Stockade (schema {version}, this one knows {len(known)})",
            "update Stockade, or choose another record with --store",
        )
    return list(enumerate(known[version:], version + 1))


def _statements(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in _COMMENT.sub("", text).split(";") if part.strip())
