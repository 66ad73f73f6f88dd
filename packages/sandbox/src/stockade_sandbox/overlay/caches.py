"""What tools keep for themselves and make anew: known by its name, or by a tag that it has."""

from collections.abc import Callable, Iterable
from functools import cache

from stockade_sandbox.overlay.record import OpenLayer
from stockade_sandbox.overlay.safe_fs import decode_path
from stockade_sandbox.results import Change

_CACHES = (
    "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".pytype", ".pyre", ".hypothesis", ".tox", ".nox",
    ".import_linter_cache", ".ipynb_checkpoints", ".eslintcache", ".stylelintcache", ".parcel-cache", ".sass-cache",
    ".turbo", ".gradle", "node_modules/.cache", "node_modules/.vite", "node_modules/.vite-temp",
)  # fmt: skip
"""A name, or the end of a path."""
_TAG, _SIGNATURE = "CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55"
"""A file of that name with that beginning says it of the folder that it is in: https://bford.info/cachedir/."""


def _cache_of(path: str, is_tagged: Callable[[str], bool]) -> tuple[str, str] | None:
    """The folder, or file, that a path is or lies in and that is such a cache: its path, and what it is called."""
    parts = path.split("/")
    for end in range(1, len(parts) + 1):
        place = "/".join(parts[:end])
        for name in (parts[end - 1], "/".join(parts[max(0, end - 2) : end])):
            if name in _CACHES:
                return place, name
        if is_tagged(place):
            return place, parts[end - 1]
    return None


def without_caches(
    changes: Iterable[Change], is_tagged: Callable[[str], bool]
) -> tuple[tuple[Change, ...], dict[str, int]]:
    """The changes that are not of caches, and how many are, by the name of the cache. `is_tagged` as of `tagged`.

    What is gone with a folder that is gone stays among them; a folder made for nothing but caches does not.
    """
    every = tuple(changes)
    replaced = {change.path for change in every if change.kind in ("deleted", "type")}
    kept, left = list[Change](), dict[str, int]()
    holders, full = set[str](), set[str]()
    for change in every:
        found = _cache_of(change.path, is_tagged)
        above = _above(found[0] if found else change.path)
        if found is None or any(folder in replaced for folder in above):
            kept.append(change)
            full.update(above)
        else:
            left[found[1]] = left.get(found[1], 0) + 1
            holders.update(above)
    empty = holders - full
    return tuple(one for one in kept if not (one.kind == "added" and one.path in empty)), left


def tagged(found: Iterable[Change], opened: OpenLayer) -> Callable[[str], bool]:
    """Whether a folder has a tag that it is a cache: one of the host's that the bot left, or in a folder that it made.
    What it puts beside your own files says nothing.
    """
    kinds = {change.path: change.kind for change in found}

    @cache
    def is_tagged(folder: str) -> bool:
        tag = f"{folder}/{_TAG}"
        is_new = kinds.get(folder) == "added"
        if not is_new and tag in kinds:
            return False
        try:
            tree = opened.written if is_new else opened.host
            return tree.read(decode_path(tag), len(_SIGNATURE)) == _SIGNATURE
        except OSError:  # none, or none that can be read: the folder is shown
            return False

    return is_tagged


def _above(path: str) -> list[str]:
    """The folders that a path lies in."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
