"""Renames as git finds them: equal files first, then pairs that share at least half of their bytes.

The measure is git's (diffcore-rename.c, diffcore-delta.c): a file is cut at newlines, and after 64 bytes; what both
have is counted in bytes, and compared with the larger of the two. A hostile pair of folders costs no more than the
bounds below: what is beyond them is shown as removed and added.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from stockade_sandbox.results import Renamed

LEAST = 50
"""Of 100, as git's -M."""
MOST_BYTES = 16 << 20
"""What is read in all for pairs that are not equal."""
MOST_PAIRS = 40_000
_PIECE = 64


@dataclass
class File:
    """One that is gone, or new. `digest` of its content; `read` gives all of it, or None when it is not to be had."""

    path: str
    size: int
    digest: Callable[[], str | None]
    read: Callable[[], bytes | None]
    _pieces: "Counter[bytes] | None" = field(default=None, init=False)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def pieces(self) -> "Counter[bytes]":
        """Its pieces, each with the number of bytes in all its copies."""
        if self._pieces is None:
            *whole, last = (self.read() or b"").replace(b"\r\n", b"\n").split(b"\n")
            lines = [(line + b"\n", count) for line, count in Counter(whole).items()]
            self._pieces = Counter()
            for line, count in [*lines, (last, 1)]:
                for at in range(0, len(line), _PIECE):
                    piece = line[at : at + _PIECE]
                    self._pieces[piece] += count * len(piece)
        return self._pieces


def find_renames(gone: Iterable[File], new: Iterable[File]) -> dict[str, Renamed]:
    """By the new path. Each old one is used once."""
    olds, news = list(gone), list(new)
    if not olds or not news:
        return {}
    found = _equal(olds, news)
    used = {one.old for one in found.values()}
    olds = [one for one in olds if one.path not in used and one.size]
    news = [one for one in news if one.path not in found and one.size]
    if len(olds) * len(news) > MOST_PAIRS:
        return found
    left, readable = MOST_BYTES, set[str]()
    for one in sorted([*olds, *news], key=lambda one: one.size):
        if (left := left - one.size) < 0:
            break
        readable.add(one.path)
    scores = []
    for after in news:
        for before in olds:
            if {before.path, after.path} <= readable and (score := similarity(before, after)) >= LEAST:
                scores.append((-score, before.name != after.name, after.path, before.path))
    for score, _, path, old in sorted(scores):
        if path not in found and old not in used:
            found[path] = Renamed(old, -score)
            used.add(old)
    return found


def _equal(olds: list[File], news: list[File]) -> dict[str, Renamed]:
    """Files of one content; where there are several, one of the same name goes before."""
    sizes = {one.size for one in olds} & {one.size for one in news}
    by_content: dict[str, list[File]] = {}
    for one in olds:
        if one.size in sizes and (digest := one.digest()):
            by_content.setdefault(digest, []).append(one)
    found: dict[str, Renamed] = {}
    waiting = []
    for one in news:
        candidates = by_content.get(one.digest() or "", []) if one.size in sizes else []
        if same := next((old for old in candidates if old.name == one.name), None):
            candidates.remove(same)
            found[one.path] = Renamed(same.path, 100)
        else:
            waiting.append((one, candidates))
    for one, candidates in waiting:
        if candidates:
            found[one.path] = Renamed(candidates.pop(0).path, 100)
    return found


def similarity(before: File, after: File) -> int:
    """Of 100: how much of the larger one is in both. 100 is for equal ones only."""
    larger = max(before.size, after.size)
    if min(before.size, after.size) * 100 < larger * LEAST:
        return 0
    old, new = before.pieces(), after.pieces()
    small, large = (old, new) if len(old) < len(new) else (new, old)
    shared = sum(min(size, large.get(piece, 0)) for piece, size in small.items())
    return min(99, shared * 100 // larger)
