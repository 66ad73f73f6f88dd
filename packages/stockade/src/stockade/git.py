"""What the user's git is asked about a folder of the host: what its ignore files name, and to commit what was applied.

None of its hooks run, since a bot may have written what they would run. Nothing is ever pushed.
"""

import filecmp
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stockade.core.errors import UsageError
from stockade_sandbox.overlay.git_config import LOCAL, system_git
from stockade_sandbox.overlay.safe_fs import decode_path, encode_path

_GIT_S = 120
_QUIET = (
    "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "core.quotePath=false",
    "-c", "protocol.allow=never",
)  # fmt: skip
"""Nothing that a repository of unknown origin names is run, and nothing is fetched, when a change is only looked at."""


def run_git(
    folder: Path, arguments: Sequence[str], stdin: bytes = b"", **variables: str
) -> "subprocess.CompletedProcess[bytes]":
    """Git in a folder, without its hooks. UsageError when there is none; its exit status is the caller's to judge."""
    git = system_git()
    if git is None:
        raise UsageError("git is not installed", "install it")
    env = {name: value for name, value in os.environ.items() if name not in LOCAL}
    env |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", **variables}
    argv = [git, *_QUIET, *arguments]
    try:
        return subprocess.run(argv, cwd=folder, input=stdin, env=env, capture_output=True, timeout=_GIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise UsageError(f"git {arguments[0]} did not end within {_GIT_S} seconds in {folder}") from None
    except OSError as error:
        raise UsageError(f"git cannot be run in {folder}: {error.strerror}") from None


def ignored(folder: Path, paths: Iterable[str]) -> frozenset[str]:
    """Which of these paths of changes the folder's own ignore files name, as git reads them: what is tracked is not.

    The user's own list (core.excludesFile) counts too. None without git.
    """
    asked = b"".join(b"./" + os.fsencode(decode_path(path)) + b"\0" for path in paths)
    if not asked or system_git() is None or not folder.is_dir():
        return frozenset()
    arguments = ("check-ignore", "-z", "--stdin")
    done = run_git(folder, arguments, asked)
    if done.returncode > 1:  # there is no repository, or one that is not ours, or a path lies in a submodule
        with tempfile.TemporaryDirectory(prefix="stockade-git-") as empty:
            run_git(folder, ("init", "--quiet", "--bare", "--template=", empty))
            done = run_git(folder, (*arguments, "--no-index"), asked, GIT_DIR=empty, GIT_WORK_TREE=str(folder))
    found = done.stdout.split(b"\0") if done.returncode == 0 else []
    return frozenset(encode_path(os.fsdecode(name.removeprefix(b"./"))) for name in found if name)


@dataclass(frozen=True, slots=True)
class Commit:
    """One that was made. `ignored`: how many files are not in it, since ignore files name them."""

    name: str
    branch: str
    files: int
    ignored: int


_UNDER_WAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")


def check_commit(folder: Path, branch: str | None) -> None:
    """UsageError, with the way out, where nothing could be committed: before anything is applied."""
    done = run_git(folder, ("rev-parse", "--is-inside-work-tree"))
    if done.stdout.strip() != b"true":
        raise UsageError(f"nothing can be committed in {folder}: {_why(done)}", "apply without --commit")
    for variable in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
        if run_git(folder, ("var", variable)).returncode:
            hint = "git config user.name NAME; git config user.email ADDRESS"
            raise UsageError("git does not know who you are, and would not commit", hint)
    for name in _UNDER_WAY:
        place = os.fsdecode(_asked(folder, "rev-parse", "--git-path", name).rstrip(b"\n"))
        if (folder / place).exists():
            raise UsageError(f"a merge, rebase or the like is under way in {folder}", "end it first: git status")
    if branch is not None:
        if run_git(folder, ("check-ref-format", "--branch", branch)).returncode or branch.startswith("-"):
            raise UsageError(f"{branch!r} is no name of a branch", "letters, digits, -, _, . and /")
        if run_git(folder, ("show-ref", "--verify", "--quiet", f"refs/heads/{branch}")).returncode == 0:
            raise UsageError(
                f"there is a branch {branch} already", "name a new one, or switch to it and leave that out"
            )


def uncommitted(folder: Path, paths: Iterable[str]) -> frozenset[str]:
    """Which of these paths of changes hold something that is not committed: before an apply, edits of the user's own.

    What ignore files name is none. UsageError when git cannot tell.
    """
    files = _committable(folder, paths)[0]
    with _own_index(folder, files) as index:
        base = _head(folder) or _asked(folder, "hash-object", "-t", "tree", "--stdin").strip().decode()
        compared = ("diff-index", "--cached", "--name-only", "--no-renames", "--relative", "-z", base)
        names = _asked(folder, *compared, index=index).split(b"\0")
    return frozenset(encode_path(os.fsdecode(name)) for name in names if name)


def _head(folder: Path) -> str:
    """The commit that is checked out; empty where there is none yet."""
    return run_git(folder, ("rev-parse", "--quiet", "--verify", "HEAD^{commit}")).stdout.strip().decode()


def _committable(folder: Path, paths: Iterable[str]) -> tuple[list[bytes], int]:
    """Those that git knows and no ignore file names, as the file system spells them; and how many one names."""
    every = [path for path in paths if _is_gits(os.fsencode(folder), os.fsencode(decode_path(path)))]
    left_out = ignored(folder, every)
    return [os.fsencode(decode_path(path)) for path in every if path not in left_out], len(left_out)


_UPDATE = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")


def _listed(files: Iterable[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in files)


@contextmanager
def _own_index(folder: Path, files: Iterable[bytes]) -> Iterator[str]:
    """An index of what is committed, with these files as they stand now."""
    with tempfile.TemporaryDirectory(prefix="stockade-git-") as place:
        index = f"{place}/index"
        _asked(folder, "read-tree", _head(folder) or "--empty", index=index)
        _asked(folder, *_UPDATE, stdin=_listed(files), index=index)
        yield index


def commit(folder: Path, paths: Iterable[str], message: str, branch: str | None) -> Commit | None:
    """What stands at these paths (of changes) now, and nothing else, on the current branch or a new one.

    None when that is what was committed already. UsageError when git cannot; the folder and its index are as they were
    then.
    """
    files, left_out = _committable(folder, paths)
    head = _head(folder)
    with _own_index(folder, files) as index:
        tree = _asked(folder, "write-tree", index=index).strip().decode()
    if head and _asked(folder, "rev-parse", f"{head}^{{tree}}").strip().decode() == tree:
        _asked(folder, *_UPDATE, stdin=_listed(files))  # an earlier call may have been killed before it did
        return None
    parents = ("-p", head) if head else ()
    name = _asked(folder, "commit-tree", tree, *parents, "-F", "-", stdin=message.encode(errors="replace"))
    made = name.strip().decode()
    reason = f"stockade: {message.partition(chr(10))[0]}"
    if branch is not None:
        _asked(folder, "update-ref", "-m", reason, f"refs/heads/{branch}", made, "0" * len(made))
        _asked(folder, "symbolic-ref", "-m", reason, "HEAD", f"refs/heads/{branch}")
    else:
        _asked(folder, "update-ref", "-m", reason, "HEAD", made, head or "0" * len(made))
    _asked(folder, *_UPDATE, stdin=_listed(files))  # else the commit would be shown as staged to be taken back
    named = run_git(folder, ("symbolic-ref", "--quiet", "--short", "HEAD")).stdout.strip().decode(errors="replace")
    changed = _asked(folder, "diff-tree", "--root", "--no-commit-id", "--name-only", "-r", "-z", made)
    return Commit(made, named or "no branch", changed.count(b"\0"), left_out)


@dataclass(frozen=True, slots=True)
class Worktree:
    """One that was made, at `place`, on a branch that began at `base`. Of one that was found `base` is empty where its
    branch has commits that no other has. `folder` is the one that was asked for in it.
    """

    place: Path
    folder: Path
    branch: str
    base: str


def add_worktree(folder: Path, name: str) -> Worktree:
    """A worktree of the repository that a folder lies in, beside it, on a new branch of what is committed, with a copy
    of each ignored file that its `.worktreeinclude` names.

    UsageError where there is no repository, or nothing committed in it.
    """
    done = run_git(folder, ("rev-parse", "--show-toplevel", "--show-prefix"))
    if done.returncode:
        raise UsageError(f"--worktree: {folder} is in no git repository", "git init, or leave it out")
    top, prefix = os.fsdecode(done.stdout.removesuffix(b"\n")).rsplit("\n", 1)
    head = _head(folder)
    if not head:
        raise UsageError(f"--worktree: nothing is committed in {top}", "git commit, or leave it out")
    made = Worktree(place := Path(f"{top}-{name}"), place / prefix, f"stockade/{name}", head)
    done = run_git(folder, ("worktree", "add", "--quiet", "-b", made.branch, str(place), head))
    if done.returncode:
        raise UsageError(f"git made no worktree of {top}: {_why(done)}")
    if not made.folder.is_dir():
        drop_worktree(made)
        raise UsageError(f"--worktree: nothing in {folder} is committed", "git commit, or leave it out")
    for name in _included(Path(top)):
        target = place / name
        if not target.parent.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(Path(top, name), target, follow_symlinks=False)
    return made


_INCLUDE = ".worktreeinclude"


def _included(top: Path) -> set[str]:
    """The files that git ignores and the patterns of that file name, written as in an ignore file."""
    if not (top / _INCLUDE).is_file():
        return set()
    of = ("ls-files", "--others", "--ignored", "-z")
    lists = [
        run_git(top, (*of, how)).stdout.split(b"\0") for how in (f"--exclude-from={_INCLUDE}", "--exclude-standard")
    ]
    return {os.fsdecode(name) for name in set(lists[0]) & set(lists[1]) if name}


def drop_worktree(made: Worktree, *, keep_branch: bool = False) -> bool:
    """Remove it, with its branch, if it is as it began; or, to `keep_branch`, if all in it is committed. Whether it is
    gone.
    """
    at = run_git(made.place, ("rev-parse", "HEAD")).stdout.strip().decode()
    common = os.fsdecode(run_git(made.place, ("rev-parse", "--git-common-dir")).stdout.removesuffix(b"\n"))
    if (not keep_branch and at != made.base) or _has_work(made.place):
        return False
    if run_git(Path(common), ("worktree", "remove", str(made.place))).returncode:
        return False
    return keep_branch or run_git(Path(common), ("branch", "--quiet", "-D", made.branch)).returncode == 0


def _has_work(place: Path) -> bool:
    """Whether a worktree holds more than what is committed, and copies as they are in the first one."""
    listed = run_git(place, ("worktree", "list", "--porcelain")).stdout.partition(b"\n")[0]
    first = Path(os.fsdecode(listed.removeprefix(b"worktree ")))
    copies = {
        os.fsencode(name)
        for name in _included(place)
        if (first / name).is_file() and filecmp.cmp(first / name, place / name, shallow=False)
    }
    found = run_git(place, ("status", "--porcelain", "--ignored", "--untracked-files=all", "-z")).stdout.split(b"\0")
    return any(one and one.removeprefix(b"!! ") not in copies for one in found)


def worktree_of_run(folder: Path) -> Worktree | None:
    """The worktree that `add_worktree` made and a folder of a run lies in, as it is now; None where it is no such."""
    if system_git() is None or not folder.is_dir():
        return None
    asked = ("--show-toplevel", "--absolute-git-dir", "--git-common-dir")
    found = run_git(folder, ("rev-parse", "--path-format=absolute", *asked)).stdout
    names = os.fsdecode(found.removesuffix(b"\n")).split("\n")
    top, own, common = names if len(names) == len(asked) else ("", "", "")
    branch = run_git(folder, ("symbolic-ref", "--quiet", "--short", "HEAD")).stdout.decode(errors="replace").strip()
    prefix, _, name = branch.partition("/")
    if own == common or prefix != "stockade" or not (name and top.endswith(f"-{name}")):
        return None
    others = ("--not", f"--exclude={branch}", "--branches", "--remotes", "--tags")
    own_commits = _asked(folder, "rev-list", "--max-count=1", f"refs/heads/{branch}", *others).strip()
    return Worktree(Path(top), folder, branch, "" if own_commits else _head(folder))


def _is_gits(folder: bytes, path: bytes) -> bool:
    """Whether git knows what is there by its path: no folder, and nothing that was below what is a symlink now."""
    parts = path.split(b"/")
    if b".git" in parts:
        return False
    above = (os.path.join(folder, *parts[:end]) for end in range(1, len(parts)))
    here = os.path.join(folder, path)
    return not any(map(os.path.islink, above)) and (os.path.islink(here) or not os.path.isdir(here))


def _asked(folder: Path, *arguments: str, stdin: bytes = b"", index: str | None = None) -> bytes:
    """What git says. UsageError when it does not do it."""
    done = run_git(folder, arguments, stdin, **({"GIT_INDEX_FILE": index} if index else {}))
    if done.returncode:
        raise UsageError(f"git {arguments[0]} failed in {folder}: {_why(done)}", "the folder holds what was applied")
    return done.stdout


def _why(done: "subprocess.CompletedProcess[bytes]") -> str:
    """Git's own words, one line of them."""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[0].removeprefix("fatal: ") if lines else "this is not the work tree of a repository"
