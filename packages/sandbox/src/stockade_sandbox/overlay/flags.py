"""What of a bot's work needs a person's eye, and what cannot be kept at all. Pure functions over names, modes and,
where a file only runs something by some of its keys or lines (flags.toml), contents.
"""

import json
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import translate
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from stockade_sandbox.overlay.safe_fs import Node
from stockade_sandbox.results import EntryKind
from stockade_sandbox.toml import parse_toml

_WHEN = {
    "entering": "by itself, on entering the folder",
    "opening": "by itself, on opening the folder",
    "pulling": "by itself, on pulling",
    "committing": "by itself, on committing",
    "command": "at an ordinary command",
    "asked": "when you start it",
}
_SHOWN = ("command", "asked")
"""Of these times the ones that are only shown first; at the others it is held."""


@dataclass(frozen=True, slots=True)
class Flag:
    """Why a person should look at a change first. `held`: it would run, or be obeyed, by itself."""

    why: str
    held: bool = True


@dataclass(frozen=True, slots=True)
class Rule:
    """One of flags.toml, which says what each field means."""

    names: tuple[str, ...]
    by: str
    when: str
    source: str
    but: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    lines: str = ""

    @property
    def flag(self) -> Flag:
        return Flag(f"{self.by} ({_WHEN[self.when]})", self.when not in _SHOWN)


@cache
def _data() -> dict[str, Any]:
    return parse_toml(resources.files(__package__).joinpath("flags.toml").read_text("utf-8"))


@cache
def rules() -> tuple[Rule, ...]:
    """All of them, as the file has them."""
    return msgspec.convert(_data()["rule"], tuple[Rule, ...])


def git_keys() -> list[str]:
    """Patterns of those of git's settings that name programs, or files that git obeys."""
    return list(_data()["git"]["keys"])


@dataclass(frozen=True, slots=True)
class _Index:
    """The rules by what they match: names and ends of paths, patterns of these, and folders of one name or several."""

    exact: dict[str, Rule]
    globs: tuple[tuple[re.Pattern[str], Rule], ...]
    any_glob: re.Pattern[str]
    folders: dict[str, Rule]
    deepest: int

    def of(self, parts: list[str]) -> Iterator[Rule]:
        for start in range(len(parts)):
            for depth in range(1, self.deepest + 1):
                if rule := self.folders.get("/".join(parts[start : start + depth])):
                    yield rule
        for tail in ("/".join(parts[-depth:]) for depth in (1, 2, 3)):
            if rule := self.exact.get(tail):
                yield rule
            elif self.any_glob.match(tail):
                yield from (rule for pattern, rule in self.globs if pattern.match(tail) and tail not in rule.but)


@cache
def _index() -> _Index:
    every = [(name, rule) for rule in rules() for name in rule.names]
    folders = {name.removesuffix("/"): rule for name, rule in every if name.endswith("/")}
    globs = [(translate(name), rule) for name, rule in every if "*" in name]
    return _Index(
        {name: rule for name, rule in every if "*" not in name and not name.endswith("/")},
        tuple((re.compile(pattern), rule) for pattern, rule in globs),
        re.compile("|".join(pattern for pattern, _ in globs)),
        folders,
        max(name.count("/") for name in folders) + 1,
    )


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

_NEVER = frozenset({"hooks", "config", "config.worktree", "commondir", "attributes"})
_DATA = frozenset({"refs", "objects", "logs"})
"""Of a repository, what holds any names."""


def never(path: str, entry: EntryKind) -> str | None:
    """Why a path is never applied, named or not: git obeys it, of whatever repository in the folder."""
    parts = path.casefold().split("/")
    if ".git" not in parts or (parts[-1] == ".git" and entry == "directory"):
        return None
    inside = parts[parts.index(".git") + 1 :]
    if not inside or entry == "symlink":
        return "it says which repository git uses, which is never applied: make it yourself"
    if inside[0] not in _DATA and not _NEVER.isdisjoint(inside):
        return "git's configuration and hooks are never applied: write them yourself"
    return None


_BARE = {
    "head": "git takes a folder with it for a repository, and runs what its config names",
    "packed-refs": "git takes a folder with it for a repository",
    "config": "git, ssh and other tools run commands that such a file names",
    "commondir": "sends git to another folder's config and hooks",
}


def _git(parts: list[str], entry: EntryKind) -> Flag | None:
    if ".git" not in parts:
        return None
    at = parts.index(".git")
    inside = parts[at + 1 :]
    nested = "a repository inside the folder; " if at > 0 else ""
    if not inside:
        what = "changes which repository git uses here" if entry != "directory" else "git trusts what is in it"
        return Flag(nested + what)
    return Flag(nested + _GIT_LOUD.get(inside[0], "git trusts what is in .git"))


def _bare(parts: list[str]) -> Flag | None:
    if "hooks" in parts[:-1]:
        return Flag("git runs it on the host if its folder is taken for a repository")
    return Flag(_BARE[parts[-1]]) if parts[-1] in _BARE else None


Texts = Callable[[], tuple[bytes, bytes] | None]
"""A file as it was (empty: it was not) and as it is; None where that is not to be had."""


def flag(
    path: str,
    *,
    entry: EntryKind = "file",
    mode: int = 0o644,
    mode_before: int | None = None,
    deleted: bool = False,
    texts: Texts = lambda: None,
) -> Flag | None:
    """Why a person should look at a changed path first: it would run on the host later, or be obeyed there.

    `mode_before` is None for what is new. Names are compared without case, as some file systems do.
    """
    parts = path.casefold().split("/")
    if found := _git(parts, entry):
        return found
    if deleted:
        return None
    flags = [rule.flag for rule in _index().of(parts) if _counts(rule, parts, entry, texts)]
    if entry != "directory" and (found := _bare(parts)):
        flags.append(found)
    if entry == "file" and mode & 0o111 and not (mode_before or 0) & 0o111:
        flags.append(Flag(f"now executable ({_WHEN['asked']})", held=False))
    return next((one for one in flags if one.held), flags[0] if flags else None)


def _counts(rule: Rule, parts: list[str], entry: EntryKind, texts: Texts) -> bool:
    """Whether what was changed is of the kind that runs. What cannot be read counts."""
    if entry == "directory":
        return any(f"{'/'.join(parts[start:])}/" in rule.names for start in range(len(parts)))
    both = texts() if entry == "file" and (rule.plain or rule.lines) else None
    if both is None:
        return True
    try:
        old, new = (text.decode() for text in both)
        if rule.lines:
            counts = [Counter(text.split("\n")) for text in (old, new)]
            differing = (counts[0] - counts[1]) + (counts[1] - counts[0])
            return not all(re.fullmatch(rule.lines, line.strip()) for line in differing)
        read = json.loads if parts[-1].endswith("json") else parse_toml
        return _differs(read(old) if old else {}, read(new), rule.plain)
    except (ValueError, RecursionError):
        return True


def _differs(old: Any, new: Any, plain: tuple[str, ...], at: str = "") -> bool:
    """Whether two values are unlike in any but the `plain` keys."""
    if at in plain or (old == new and type(old) is type(new)):
        return False
    if not all(one is None or isinstance(one, dict) for one in (old, new)):
        return True
    old, new = old or {}, new or {}
    return any(_differs(old.get(key), new.get(key), plain, f"{at}.{key}" if at else key) for key in {**old, **new})


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
