"""A bot's commits. Of the repository that a folder has, or is, an apply carries branches, tags and HEAD; the objects
that they need are checked by the host's git and written anew by it. What git keeps for itself is no change.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NoReturn

from stockade_sandbox.errors import ChangedOnHost, UsageError
from stockade_sandbox.overlay.git_config import LOCAL, system_git
from stockade_sandbox.overlay.record import OpenLayer, write_file
from stockade_sandbox.overlay.safe_fs import DirTree, copy_data, encode_path
from stockade_sandbox.results import Change

INDEX = "index.json"
"""Beside a layer, while an apply moves HEAD: which commit each index is of."""
PACKED = "packed-refs"
"""Beside a layer: the file of that name as the host had it at the start."""

_GIT_S = 120
_MAX_PACKED = 64 << 20
_OBJECT = re.compile(r"objects/([0-9a-f]{2}/[0-9a-f]{38}(?:[0-9a-f]{24})?|pack/pack-[0-9a-f]{40,64}\.(?:pack|idx))")
_REF = re.compile(r"refs/(?:heads|tags)/.+")
_OWN = re.compile(
    r"(?:objects|logs|rr-cache|rebase-merge|rebase-apply|sequencer)(?:/.*)?|.*\.lock|index|sharedindex\..*|gc\.(?:log|pid)"
    r"|(?:ORIG|FETCH|MERGE|CHERRY_PICK|REVERT|REBASE|AUTO_MERGE|BISECT|SQUASH|COMMIT|TAG)_[A-Z]+|MERGE_RR|AUTO_MERGE",
    re.DOTALL,
)
"""What git writes for itself, of the repository and of each of its worktrees."""
_ID = re.compile(rb"([0-9a-f]{40}(?:[0-9a-f]{24})?)\n")
_BRANCH = re.compile(rb"ref: (refs/heads/[^\0-\x20\x7f]+)\n")
Part = Literal["own", "ref", "folder"]


def git_prefix(host: DirTree) -> str | None:
    """Where the repository of a folder lies: `.git/`, or empty where the folder is one itself. None where there is none
    whose branches are files.
    """
    for prefix in (".git/", ""):
        kinds = [node and node.kind for node in map(host.node, (f"{prefix}HEAD", f"{prefix}objects", f"{prefix}refs"))]
        if kinds == ["file", "directory", "directory"] and host.node(f"{prefix}reftable") is None:
            return prefix
    return None


def part_of(prefix: str, path: str) -> Part | None:
    """What a path of a folder is in its repository: what git keeps for itself, a branch, tag or HEAD, or a folder of
    these. None for all else, configuration and hooks among it.
    """
    if not path.startswith(prefix):
        return None
    parts = path.removeprefix(prefix).split("/")
    name = "/".join(parts[2:] if parts[0] == "worktrees" and len(parts) > 2 else parts)
    if _OWN.fullmatch(name):
        return "own"
    if name == "HEAD" or _REF.fullmatch(name):
        return "ref"
    return "folder" if name in ("refs", "refs/heads", "refs/tags") else None


def stays_inside(prefix: str, path: str, written: DirTree) -> str | None:
    """Why a path that holds no branch, tag or HEAD (any more) is never applied: it names commits whose objects nobody
    has checked or brought, as stashes and what was fetched do; or it is gone into a file that does.
    """
    name, part = path.removeprefix(prefix), part_of(prefix, path)
    if part == "ref" and name in _packed_of(written, prefix):
        return "git has packed it inside, and it is not gone: have the bot set it anew (git update-ref), or leave it"
    if not path.startswith(prefix) or part or not re.match(r"(?:refs|reftable)/|packed-refs$", name):
        return None
    return "only branches, tags and HEAD are applied: stashes and what was fetched stay inside"


def says(tree: DirTree, path: str) -> str | None:
    """What a branch, tag or HEAD holds: a commit, or `ref: NAME`. None where it is not one that git would write."""
    name = f"/{path}".partition("/refs/")[2]
    node = tree.node(path)
    if node is None or node.kind != "file" or not _is_name(name or "HEAD"):
        return None
    data = tree.read(path, 4096)
    if found := _ID.fullmatch(data):
        return found[1].decode()
    branch = None if name else _BRANCH.fullmatch(data)
    return f"ref: {branch[1].decode(errors='replace')}" if branch and _is_name(os.fsdecode(branch[1])) else None


def _is_name(name: str) -> bool:
    """As git check-ref-format has it."""
    bad = re.compile(r"[\0-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|^[./-]|[./]$|/-")
    return bool(name) and name != "@" and not bad.search(name)


def check_and_fetch(opened: OpenLayer, chosen: dict[str, Change], *, force: bool) -> None:
    """Before branches, tags and HEAD are written: their objects come into the host's repository, as its git takes them
    from a stranger. They stay there when anything fails, and nothing refers to them.

    ChangedOnHost where the host's git has packed another value since; UsageError where a branch is checked out
    elsewhere, or objects are missing or broken.
    """
    prefix = git_prefix(opened.host)
    if prefix is None:
        return
    moved = {p: str(says(opened.written, p)) for p, one in chosen.items() if _is_moved(prefix, p, one)}
    if not moved:
        return
    git_dir = Path(opened.layer.host, prefix)
    if (done := _trusted(git_dir)).returncode:
        _refuse(done.stderr.decode(errors="replace"))
    _check_places(opened, prefix, moved)
    if not force:
        _check_packed(opened, prefix, moved)
    kinds = {(value, "tags" if f"/{path}".partition("/refs/")[2].startswith("tags/") else "heads")
             for path, value in moved.items() if not value.startswith("ref: ")}  # fmt: skip
    if kinds:
        _fetch(opened, prefix, git_dir, {f"refs/{kind}/{value}": value for value, kind in sorted(kinds)})


def _is_moved(prefix: str, path: str, change: Change) -> bool:
    return part_of(prefix, path) == "ref" and change.kind != "deleted" and change.entry == "file"


def _check_places(opened: OpenLayer, prefix: str, moved: dict[str, str]) -> None:
    worktrees = f"{prefix}worktrees"
    names = opened.host.names(worktrees) if opened.host.node(worktrees) else []
    own = [name for name in names if prefix == "" and _is_folder(opened.written, f"{worktrees}/{name}")]
    heads = [f"{worktrees}/{name}/HEAD" for name in names if name not in own]
    for head in [*heads, *(["HEAD"] if own else [])]:
        path = prefix + (says(opened.host, head) or "").removeprefix("ref: ")
        if path in moved or head in moved:
            what = f"{encode_path(path if path in moved else head)!r} is checked out in another worktree"
            raise UsageError(what, "leave it out, or switch there to another branch")
    packed = _packed_of(opened.host, prefix)
    for head, value in moved.items():
        ref = value.removeprefix("ref: ")
        if value != ref and prefix + ref not in moved and ref not in packed and opened.host.node(prefix + ref) is None:
            raise UsageError(f"{encode_path(head)!r} would be on {ref}, which is not there", "choose that branch too")


def _is_folder(tree: DirTree, path: str) -> bool:
    node = tree.node(path)
    return node is not None and node.kind == "directory"


def _check_packed(opened: OpenLayer, prefix: str, moved: dict[str, str]) -> None:
    """Of those that the host keeps in no file of their own: the base of the others is their file."""
    kept = opened.base / PACKED
    was, now = _packed(kept.read_bytes() if kept.exists() else b""), _packed_of(opened.host, prefix)
    names = {one: one.removeprefix(prefix) for one in moved if opened.host.node(one) is None}
    other = [one for one, name in names.items() if now.get(name) not in (was.get(name), moved[one])]
    if other:
        what = f"changed on the host since the run began: {', '.join(repr(encode_path(one)) for one in other[:5])}"
        raise ChangedOnHost(what, "leave it out, or apply with --force to have the bot's")


def _packed_of(tree: DirTree, prefix: str) -> dict[str, str]:
    node = tree.node(f"{prefix}{PACKED}")
    return _packed(tree.read(f"{prefix}{PACKED}", _MAX_PACKED)) if node and node.kind == "file" else {}


def _packed(data: bytes) -> dict[str, str]:
    lines = (os.fsdecode(line).partition(" ") for line in data.split(b"\n") if line and line[:1] not in b"#^")
    return {name: value for value, _, name in lines}


def keep_packed(folder: DirTree, place: Path) -> None:
    """Note what the host's git has packed, beside a layer that is being made."""
    prefix = git_prefix(folder)
    if prefix is not None and (node := folder.node(f"{prefix}{PACKED}")) and node.kind == "file":
        (place / PACKED).write_bytes(folder.read(f"{prefix}{PACKED}", _MAX_PACKED))


def _fetch(opened: OpenLayer, prefix: str, git_dir: Path, refs: dict[str, str]) -> None:
    """By way of a repository of our own: the bot's objects as copies, none of its settings, and the host's beside."""
    with opened.scratch() as place:
        form = "sha256" if len(next(iter(refs.values()))) == 64 else "sha1"
        _git(None, "init", "--quiet", "--bare", f"--object-format={form}", "--template=", place)
        _copy_objects(opened, prefix, Path(place))
        Path(place, "objects/info").mkdir(parents=True, exist_ok=True)
        Path(place, "objects/info/alternates").write_bytes(os.fsencode(git_dir / "objects") + b"\n")
        if (git_dir / "shallow").is_file():
            shutil.copyfile(git_dir / "shallow", Path(place, "shallow"))
        for name, value in refs.items():
            _git(Path(place), "update-ref", name, value)
        _git(
            git_dir, "-c", "fetch.fsckObjects=true", "-c", "protocol.file.allow=always", "fetch", "--quiet",
            "--no-tags", "--no-write-fetch-head", "--no-auto-gc", "--no-recurse-submodules", place, *refs,
        )  # fmt: skip


def _copy_objects(opened: OpenLayer, prefix: str, place: Path) -> None:
    """Regular files alone, of names that git gives its objects; what the host has itself is passed over."""
    written, root = opened.written, f"{prefix}objects"
    if (node := written.node(root)) is None or node.kind != "directory":
        return
    for folder in written.names(root):
        within = f"{root}/{folder}"
        if (node := written.node(within)) is None or node.kind != "directory":
            continue
        for name in written.names(within):
            path = f"{within}/{name}"
            found = written.node(path)
            is_object = found is not None and found.kind == "file" and _OBJECT.fullmatch(path.removeprefix(prefix))
            if is_object and opened.host.node(path) is None:
                to = place / path.removeprefix(prefix)
                to.parent.mkdir(parents=True, exist_ok=True)
                with written.file(path) as source, to.open("wb") as out:
                    copy_data(source, out.fileno())


def _git(git_dir: Path | None, *arguments: str) -> str:
    """UsageError, in git's own words, where it does not do it. No hook runs."""
    done = _run(git_dir, *arguments)
    if done.returncode:
        _refuse(done.stderr.decode(errors="replace"))
    return done.stdout.decode(errors="replace").strip()


def _run(git_dir: Path | None, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    git = system_git()
    if git is None:
        raise UsageError("git is not installed, and what the bot committed cannot be checked", "install it")
    env = {name: value for name, value in os.environ.items() if name not in LOCAL}
    env |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"} | ({"GIT_DIR": str(git_dir)} if git_dir else {})
    quiet = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
    argv = [git, *quiet, *arguments]
    try:
        return subprocess.run(
            argv, env=env, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"git {arguments[0]} did not end within {_GIT_S} seconds", "leave the commits out") from None


def _trusted(git_dir: Path) -> "subprocess.CompletedProcess[bytes]":
    """Of status 0 where git obeys the settings there, as it does not those of a repository that is another user's;
    GIT_DIR alone would not have it look.
    """
    return _run(None, "-C", str(git_dir), "rev-parse", "--git-dir")


def _refuse(words: str) -> NoReturn:
    lines = [line for line in words.strip().splitlines() if line.startswith(("fatal: ", "error: "))]
    why = lines[0].partition(": ")[2] if lines else "it does not say why"
    raise UsageError(f"git does not take the bot's commits: {why}", "apply the files alone: --only PATH")


@contextmanager
def index_follows(host: DirTree, folder: str, paths: Iterable[str], note: Path | None = None) -> Iterator[None]:
    """Where writing these paths moves HEAD, the index goes from the old commit to the new one: what is staged stays so.
    Where what is staged is in the way, it stays as it is, and git status shows the rest. `note`: where it is kept what
    is to be done, for `finish_index` after a kill.
    """
    prefix = git_prefix(host)
    if prefix is None or not any(part_of(prefix, path) == "ref" for path in paths):
        yield
        return
    root = Path(folder, prefix)
    if _trusted(root).returncode:
        yield
        return
    dirs = [root, *(one for one in sorted((root / "worktrees").glob("*")) if (one / "HEAD").is_file())]
    before = {str(one): _commit_of(one) for one in dirs}
    if note is not None:
        write_file(note, json.dumps(before).encode())
    yield
    _follow(before)
    if note is not None:
        note.unlink()


def finish_index(note: Path) -> None:
    """What a kill cut off of `index_follows`, once the files are written or taken back."""
    if note.exists():
        _follow(json.loads(note.read_bytes()))
        note.unlink()


def _follow(before: dict[str, str]) -> None:
    for one, old in before.items():
        new = _commit_of(Path(one))
        if new and old != new and Path(one, "index").exists():
            _run(Path(one), "read-tree", "-i", "-m", *([old] if old else []), new)


def _commit_of(git_dir: Path) -> str:
    done = _run(git_dir, "rev-parse", "--quiet", "--verify", "HEAD^{commit}")
    return done.stdout.decode().strip() if done.returncode == 0 else ""
