"""What of a bot's work needs a person's eye, and what cannot be kept at all. Pure functions over names and modes."""

import re
import stat
from collections.abc import Callable, Iterable
from fnmatch import translate

from stockade_sandbox.overlay.flag_rules import FOLDERS, RULES
from stockade_sandbox.overlay.safe_fs import Node
from stockade_sandbox.results import Change, EntryKind

_GIT_LOUD = {
    "hooks": "git runs it on the host: a hook",
    "config": "git runs commands that its config names",
    "config.worktree": "git runs commands that its config names",
    "commondir": "sends git to another folder's config and hooks",
    "info": "git reads filters and excludes from it",
    "attributes": "git reads filters from it",
    "modules": "a nested repository's own hooks and config",
    "worktrees": "sends git to another folder's config and hooks",
}

_GLOBS = [(re.compile(translate(pattern)), why) for pattern, why in RULES.items() if "*" in pattern]
_ANY_GLOB = re.compile("|".join(pattern.pattern for pattern, _ in _GLOBS))

_BARE = {
    "head": "git takes a folder with it for a repository, and runs what its config names",
    "packed-refs": "git takes a folder with it for a repository",
    "config": "git, ssh and other tools run commands that such a file names",
    "commondir": "sends git to another folder's config and hooks",
}


def _git(parts: list[str], entry: EntryKind) -> str | None:
    if ".git" not in parts:
        return None
    at = parts.index(".git")
    inside = parts[at + 1 :]
    nested = "a repository inside the folder; " if at > 0 else ""
    if not inside:
        what = "changes which repository git uses here" if entry != "directory" else "git trusts what is in it"
        return nested + what
    return nested + _GIT_LOUD.get(inside[0], "git trusts what is in .git")


def _bare(parts: list[str]) -> str | None:
    if "hooks" in parts[:-1]:
        return "git runs it on the host if its folder is taken for a repository"
    return _BARE.get(parts[-1])


def _named(parts: list[str]) -> str | None:
    for tail in ("/".join(parts[-depth:]) for depth in (1, 2, 3)):
        if why := RULES.get(tail):
            return why
        if _ANY_GLOB.match(tail):
            return next(why for pattern, why in _GLOBS if pattern.match(tail))
    return None


def flag(
    path: str, *, entry: EntryKind = "file", mode: int = 0o644, mode_before: int | None = None, deleted: bool = False
) -> str | None:
    """Why a person should look at a changed path first: it would run on the host later, or be obeyed there.

    `mode_before` is None for what is new. Names are compared without case, as some file systems do.
    """
    parts = path.casefold().split("/")
    if why := _git(parts, entry):
        return why
    if deleted:
        return None
    for part in parts:
        if why := FOLDERS.get(part):
            return why
    if why := (_named(parts) if entry != "directory" else None) or _bare(parts):
        return why
    if entry == "file" and mode & 0o111 and not (mode_before or 0) & 0o111:
        return "can be run as a program now"
    return None


_CACHES = (
    "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".pytype", ".pyre", ".hypothesis", ".tox", ".nox",
    ".import_linter_cache", ".ipynb_checkpoints", ".eslintcache", ".stylelintcache", ".parcel-cache", ".sass-cache",
    ".turbo", ".gradle", "node_modules/.cache", "node_modules/.vite", "node_modules/.vite-temp",
)  # fmt: skip
"""What tools keep for themselves and make anew: a name, or the end of a path."""


def cache_of(path: str) -> tuple[str, str] | None:
    """The folder, or file, that a path is or lies in and that is such a cache: its path, and what it is called."""
    parts = path.split("/")
    for end in range(1, len(parts) + 1):
        for name in (parts[end - 1], "/".join(parts[max(0, end - 2) : end])):
            if name in _CACHES:
                return "/".join(parts[:end]), name
    return None


def without_caches(changes: Iterable[Change]) -> tuple[tuple[Change, ...], dict[str, int]]:
    """The changes that are not of caches, and how many are, by the name of the cache.

    What is gone with a folder that is gone stays among them; a folder made for nothing but caches does not.
    """
    every = tuple(changes)
    replaced = {change.path for change in every if change.kind in ("deleted", "type")}
    kept, left = list[Change](), dict[str, int]()
    holders, full = set[str](), set[str]()
    for change in every:
        found = cache_of(change.path)
        above = _above(found[0] if found else change.path)
        if found is None or any(folder in replaced for folder in above):
            kept.append(change)
            full.update(above)
        else:
            left[found[1]] = left.get(found[1], 0) + 1
            holders.update(above)
    empty = holders - full
    return tuple(one for one in kept if not (one.kind == "added" and one.path in empty)), left


def _above(path: str) -> list[str]:
    """The folders that a path lies in."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _leaves(path: str, target: str) -> str | None:
    """Why a symlink may lead out of the folder.

    `..` is counted only where it leads: after a name, that name could be a symlink and `..` mean anything.
    """
    if target.startswith("/"):
        return f"a symlink to an absolute path, {target}"
    steps = [part for part in target.split("/") if part not in ("", ".")]
    up = 0
    while up < len(steps) and steps[up] == "..":
        up += 1
    if ".." in steps[up:]:
        return f"a symlink with '..' in the middle, {target}"
    if up > path.count("/"):
        return f"a symlink out of the folder, {target}"
    return None


_SPECIAL: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def refusal(path: str, node: Node) -> str | None:
    """Why an entry can never be applied to the host, or None."""
    if node.trouble:
        return node.trouble
    mode = node.stat.st_mode
    for test, what in _SPECIAL:
        if test(mode):
            return what
    if node.kind == "file" and mode & (stat.S_ISUID | stat.S_ISGID):
        return "a set-uid or set-gid program"
    return _leaves(path, node.target) if node.target is not None else None
