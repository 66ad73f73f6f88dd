"""Conflicts, where the host's content differs from the base and from what the bot made of it; and merging both, three
ways, by `git merge-file`.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from stockade_sandbox.errors import ChangedOnHost, UsageError
from stockade_sandbox.overlay.base import Base
from stockade_sandbox.overlay.changes import Comparison, check_whole, compare_all, reading
from stockade_sandbox.overlay.diff import is_binary
from stockade_sandbox.overlay.git_config import system_git
from stockade_sandbox.overlay.journal import Look
from stockade_sandbox.overlay.record import OpenLayer, Original, open_layer
from stockade_sandbox.overlay.safe_fs import LARGE, MODE_BITS, DirTree, Node, decode_path, digest_of, encode_path
from stockade_sandbox.overlay.writing import Chosen
from stockade_sandbox.results import Change, FolderLayer

CHANGED = "changed on the host since the run began"
_SHOWN = 5
_GIT_S = 60
_NO_CONFIG = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}


def check_conflicts(chosen: Chosen, opened: OpenLayer, base: Base) -> None:
    """ChangedOnHost, naming them, when chosen paths have other content on the host than the run met."""
    if clashing := conflicting(chosen, opened, base):
        refuse(clashing)


def refuse(clashing: Iterable[str]) -> NoReturn:
    """Raise ChangedOnHost for paths."""
    raise ChangedOnHost(
        f"{CHANGED}: {listed(map(encode_path, clashing))}",
        "see your side: stockade runs diff --host; then apply with --merge, or with --force to have the bot's",
    )


def conflicting(chosen: Chosen, opened: OpenLayer, base: Base) -> list[str]:
    """The paths of chosen changes, each of which differs from the host, where the host is not what it was."""
    return [path for path, change in chosen.items() if not _is_as_it_was(path, change, opened, base)]


def _is_as_it_was(path: str, change: Change, opened: OpenLayer, base: Base) -> bool:
    now = opened.host.node(path)
    entry = base.of(path, opened.host, opened.written)
    if now is not None and now.kind == change.entry == "directory":
        was_one = entry.state == "known" and entry.kind == "directory"
        if entry.state == "absent" or (was_one and change.kind != "mode"):
            return True  # both made the folder; or its mode does not matter
    return entry.is_same(opened.host, path, now)


def listed(paths: Iterable[str]) -> str:
    """The first few of them, quoted, and how many more there are."""
    shown = [repr(path) for path in paths]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more


class Merged(DirTree):
    """A layer as it is, but for the content of files that were merged: that is read from `contents`."""

    def __init__(self, root: Path, contents: Mapping[str, Path]) -> None:
        super().__init__(root)
        self._contents = contents

    @contextmanager
    def file(self, path: str) -> Iterator[int]:
        if (content := self._contents.get(path)) is None:
            with super().file(path) as fd:
                yield fd
            return
        with content.open("rb") as merged:
            yield merged.fileno()

    def bots(self, path: str) -> Look | None:
        """What the layer itself has of a file that was merged."""
        node = self.node(path) if path in self._contents else None
        if node is None:
            return None
        with super().file(path) as fd:
            return Look("file", node.mode, node.size, digest_of(fd))


class Picked(Merged):
    """A layer of which only some hunks are taken: what is picked is all that there is of a file."""

    def node(self, path: str) -> Node | None:
        content = self._contents.get(path)
        return super().node(path) if content is None else Node(content.stat())

    def bots(self, path: str) -> Look | None:
        return None


@contextmanager
def picked(chosen: Chosen, opened: OpenLayer, contents: Mapping[str, bytes]) -> Iterator[tuple[Chosen, OpenLayer]]:
    """The chosen changes, and the layer to read them from, with these contents of files by path. Modes are the host's.

    UsageError where a path is no file that the bot modified.
    """
    wanted = {decode_path(path): data for path, data in contents.items()}
    if not wanted:
        yield chosen, opened
        return
    with opened.scratch() as folder:
        result, places = dict(chosen), dict[str, Path]()
        for number, (path, data) in enumerate(wanted.items()):
            change, host = chosen.get(path), opened.host.node(path)
            if (
                change is None
                or host is None
                or not change.kind == "modified"
                or not change.entry == host.kind == "file"
            ):
                raise UsageError(f"{encode_path(path)!r} cannot be applied in part", "apply all of it, or nothing")
            places[path] = Path(folder, f"{number}.picked")
            places[path].write_bytes(data)
            places[path].chmod(host.mode & MODE_BITS)
            result[path] = replace(change, size=len(data), mode=host.mode & MODE_BITS)
        with Picked(opened.written.root, places) as written:
            yield result, replace(opened, written=written)


@dataclass
class Merge:
    """`chosen`: what is to be written, merged or as the bot has it; `contents` of those that were merged; `left`: what
    cannot be merged, each with the reason."""

    chosen: Chosen = field(default_factory=dict)
    contents: dict[str, Path] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)


def merge_all(chosen: Chosen, opened: OpenLayer, base: Base, folder: Path) -> Merge:
    """What becomes of chosen changes; merged contents are made in `folder`. UsageError without git, where it is needed.

    Nothing is written to the host.
    """
    both = set(conflicting(chosen, opened, base))
    found = Merge()
    for path, change in chosen.items():
        if path not in both:
            found.chosen[path] = change
            continue
        was = base.of(path, opened.host, opened.written)
        reason = _why_not(path, was, change, opened, base) or _merge_one(path, change, was, opened, base, folder, found)
        if reason:
            found.left[path] = reason
    return found


def _why_not(path: str, was: Original, change: Change, opened: OpenLayer, base: Base) -> str | None:
    """Why there is nothing to merge, or None."""
    host = opened.host.node(path)
    if host is None:
        return "you removed it and the bot changed it"
    if change.kind == "deleted":
        return "the bot removed it and you changed it"
    if was.state == "unknown":
        return "you changed it while the bot did: what it was before is not known"
    if was.state == "absent":
        return "both made it, with other content"
    if not host.kind == change.entry == was.kind == "file":
        return "only files can be merged"
    if base.data(was) is None or max(host.size, change.size) > LARGE:
        return f"only its hash is kept: it is larger than {LARGE >> 20} MiB, or was changed before the bot did"
    if _merged_mode(was, host, change) is None:
        return "both changed its mode"
    return None


def _merged_mode(was: Original, host: Node, change: Change) -> int | None:
    """The mode of the side that changed it; None when both did, not to the same."""
    before, ours, bots = was.mode & MODE_BITS, host.mode & MODE_BITS, change.mode & MODE_BITS
    if before in (ours, bots):
        return bots if ours == before else ours
    return ours if ours == bots else None


def _merge_one(
    path: str, change: Change, was: Original, opened: OpenLayer, base: Base, folder: Path, found: Merge
) -> str | None:
    """Merge a file into `found`, or say why it cannot be."""
    host = opened.host.node(path)
    before, ours = base.data(was), opened.host.read(path, LARGE)
    bots = opened.written.read(path, LARGE)
    assert host is not None
    assert before is not None
    mode = _merged_mode(was, host, change)
    assert mode is not None
    if before in (ours, bots) or ours == bots:
        merged = bots if ours == before else ours
    elif any(map(is_binary, (before, ours, bots))):
        return "it is no text"
    elif isinstance(result := _git(before, ours, bots, folder), str):
        return result
    else:
        merged = result
    content = folder / f"{len(found.contents)}.merged"
    content.write_bytes(merged)
    found.contents[path] = content
    found.chosen[path] = replace(change, kind="modified", size=len(merged), mode=mode)
    return None


def _git(before: bytes, ours: bytes, bots: bytes, folder: Path) -> bytes | str:
    """The merged text, or why there is none. Git's own configuration does not count."""
    git = system_git()
    if git is None:
        raise UsageError("merging is done by git, which is not installed", "install git; or apply with --force")
    names = ("host", "base", "bot")
    for name, data in zip(names, (ours, before, bots), strict=True):
        (folder / name).write_bytes(data)
    env = {**_NO_CONFIG, "PATH": os.environ.get("PATH", os.defpath), "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    try:
        done = subprocess.run([git, "merge-file", "-p", "-q", *names], cwd=folder, env=env, capture_output=True,
                              timeout=_GIT_S, check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"git did not merge it within {_GIT_S} seconds"
    if done.returncode == 0:
        return done.stdout
    if done.returncode > 127:  # what git itself could not do
        return f"git cannot merge it: {done.stderr.decode(errors='replace').strip()[:200]}"
    return "both changed the same lines"


@contextmanager
def resolved(
    chosen: Chosen, opened: OpenLayer, base: Base, *, force: bool, merge: bool
) -> Iterator[tuple[Chosen, OpenLayer]]:
    """What is to be written, and the layer to read it from: merged with the host's side, or as it is.

    ChangedOnHost when something of it cannot be merged, which `force` writes as the bot has it.
    """
    if not merge:
        yield chosen, opened
        return
    with opened.scratch() as folder:
        found = merge_all(chosen, opened, base, Path(folder))
        if found.left and not force:
            refuse(found.left)
        result = {path: found.chosen.get(path, change) for path, change in chosen.items()}
        with Merged(opened.written.root, found.contents) as written:
            yield result, replace(opened, written=written)


def find_conflicts(layer: FolderLayer, changes: Iterable[Change], *, merge: bool = False) -> dict[str, str]:
    """Of these changes, those that conflict with the host's side, by path, each with the reason.

    With `merge` only those that cannot be merged. LayerLost as for `find_changes`; UsageError without git.
    """
    asked = {decode_path(change.path) for change in changes}
    if layer.strategy == "direct" or not asked:
        return {}
    with reading(layer), open_layer(layer) as opened:
        check_whole(layer, opened.written)
        comparison = Comparison(opened)
        chosen = {path: change for path, change in compare_all(comparison).items() if path in asked}
        if merge:
            with opened.scratch() as folder:
                found = merge_all(chosen, opened, comparison.base, Path(folder)).left
        else:
            found = dict.fromkeys(conflicting(chosen, opened, comparison.base), CHANGED)
        return {encode_path(path): reason for path, reason in found.items()}
