"""A folder whose `.git` is a file: a worktree, or a submodule by itself. Its repository lies elsewhere, and is shown at
the place where git looks for it, as an overlay, if it says itself that the folder is its own.

Anybody can write such a file, a bot or an archive too. Nobody can make a repository of the user's name his folder.
"""

import configparser
import os
import posixpath
from dataclasses import dataclass, field
from pathlib import Path

from stockade_sandbox.policy import FolderRule

_MAX = 4096
_CONFIG_MAX = 1 << 20
_SYSTEM = ("", "bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "usr")
_SHARED = ("/home", "/tmp", "/var", "/var/tmp")


@dataclass(frozen=True, slots=True)
class GitLink:
    """The repository of a folder that names one elsewhere, and `links` that its settings need inside. `problem`: why it
    is not shown; git does not work in the folder then.
    """

    folder: FolderRule | None = None
    links: dict[str, str] = field(default_factory=dict)
    problem: str = ""


def git_link(rule: FolderRule) -> GitLink | None:
    """Of a folder; None where it names no repository elsewhere. Its modes: `ro` as the folder is, else `overlay`."""
    file = Path(rule.host, ".git")
    try:
        if not os.path.isfile(file):  # also where that is not for us to see
            return None
        named = _line(file, "gitdir: ")
        own = Path(os.path.realpath(os.path.join(rule.host, named)))
        inside = posixpath.normpath(posixpath.join(rule.inside, named))
        found = _worktree(rule, own, inside) or _submodule(rule, own, inside)
    except (OSError, ValueError) as error:
        return GitLink(problem=f"{file} is not as git writes it: {error}")
    return found or GitLink(problem=f"{file} names {own}, which does not name this folder: it is not shown")


def borrows(rule: FolderRule) -> str:
    """Why git does not work in a folder, or with a repository, whose objects are partly another's; else empty.

    They are not shown: whoever wrote the folder chose where they are.
    """
    for place in (".git/objects/info/alternates", "objects/info/alternates"):
        if os.path.isfile(file := Path(rule.host, place)):
            return f"{file} names objects of another repository, which is not shown: git will not work in {rule.host}"
    return ""


def _line(file: Path, begin: str = "") -> str:
    """What the one line of one of git's files says. ValueError where it says more, or something else."""
    with file.open("rb") as source:
        text = os.fsdecode(source.read(_MAX + 1))
    line = text.removesuffix("\n").removesuffix("\r")
    if len(text) > _MAX or "\n" in line or "\0" in line or not line.startswith(begin) or line == begin:
        raise ValueError(f"{file.name} has no line {begin}PATH")
    return line.removeprefix(begin)


def is_repository(path: Path) -> bool:
    """Whether a folder is what others have as `.git`."""
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _worktree(rule: FolderRule, own: Path, inside: str) -> GitLink | None:
    """`REPOSITORY/worktrees/NAME`, whose `gitdir` names the folder's file, and `commondir` the repository."""
    common = own.parent.parent
    if own.parent.name != "worktrees" or not is_repository(common):
        return None
    back, up = (os.path.join(own, _line(own / name)) for name in ("gitdir", "commondir"))
    if not _same(back, os.path.join(rule.host, ".git")) or not _same(up, str(common)):
        return None
    return _shown(rule, common, posixpath.dirname(posixpath.dirname(inside)), {})


def _submodule(rule: FolderRule, own: Path, inside: str) -> GitLink | None:
    """A repository whose `core.worktree` is the folder."""
    if not is_repository(own):
        return None
    with (own / "config").open("rb") as source:
        text = source.read(_CONFIG_MAX).decode(errors="replace")
    config = configparser.RawConfigParser(strict=False, allow_no_value=True, inline_comment_prefixes=("#", ";"))
    try:
        config.read_string("\n".join(line.strip() for line in text.split("\n")))
    except configparser.Error:
        return None
    worktree = config.get("core", "worktree", fallback=None)
    if not worktree or not _same(os.path.join(own, worktree), rule.host):
        return None
    place = posixpath.normpath(posixpath.join(inside, worktree))
    return _shown(rule, own, inside, {place: rule.inside} if place != rule.inside else {})


def _shown(rule: FolderRule, common: Path, inside: str, links: dict[str, str]) -> GitLink:
    for place in (inside, *links):
        if place.split("/")[1] in _SYSTEM or place in _SHARED:
            what = f"the repository of {rule.host} would have to be shown at {place}, which is the system's"
            return GitLink(problem=f"{what}: git will not work there")
        if f"{place}/".startswith(f"{rule.inside}/"):
            return GitLink(problem=f"the repository of {rule.host} would have to be shown inside of it")
    return GitLink(FolderRule(host=str(common), mode="ro" if rule.mode == "ro" else "overlay", inside=inside), links)
