"""What the user's git is asked about a folder of the host: what its ignore files name, and to commit what was applied.

None of its hooks run, since a bot may have written what they would run. Nothing is ever pushed.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stockade.core.errors import UsageError
from stockade_sandbox.overlay.safe_fs import decode_path, encode_path

_GIT_S = 120
_QUIET = (
    "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "core.quotePath=false",
    "-c", "protocol.allow=never",
)  # fmt: skip
"""Nothing that a repository of unknown origin names is run, and nothing is fetched, when a change is only looked at."""
_LOCAL = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_NAMESPACE", "GIT_COMMON_DIR")


def run_git(
    folder: Path, arguments: Sequence[str], stdin: bytes = b"", **variables: str
) -> "subprocess.CompletedProcess[bytes]":
    """Git in a folder, without its hooks. UsageError when there is none; its exit status is the caller's to judge."""
    git = shutil.which("git")
    if git is None:
        raise UsageError("git is not installed", "install it")
    env = {name: value for name, value in os.environ.items() if name not in _LOCAL}
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
    if not asked or shutil.which("git") is None or not folder.is_dir():
        return frozenset()
    arguments = ("check-ignore", "-z", "--stdin")
    done = run_git(folder, arguments, asked)
    if done.returncode > 1:  # there is no repository, or one that is not ours, or a path lies in a submodule
        with tempfile.TemporaryDirectory(prefix="stockade-git-") as empty:
            run_git(folder, ("init", "--quiet", "--bare", empty))
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


def commit(folder: Path, paths: Iterable[str], message: str, branch: str | None) -> Commit | None:
    """What stands at these paths (of changes) now, and nothing else, on the current branch or a new one.

    None when that is what was committed already. UsageError when git cannot; the folder and its index are as they were
    then.
    """
    every = [path for path in paths if _is_gits(os.fsencode(folder), os.fsencode(decode_path(path)))]
    left_out = ignored(folder, every)
    files = [os.fsencode(decode_path(path)) for path in every if path not in left_out]
    listed = b"".join(path + b"\0" for path in files)
    head = run_git(folder, ("rev-parse", "--quiet", "--verify", "HEAD^{commit}")).stdout.strip().decode()
    update = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
    with tempfile.TemporaryDirectory(prefix="stockade-git-") as place:
        index = f"{place}/index"
        _asked(folder, "read-tree", head or "--empty", index=index)
        _asked(folder, *update, stdin=listed, index=index)
        tree = _asked(folder, "write-tree", index=index).strip().decode()
    if head and _asked(folder, "rev-parse", f"{head}^{{tree}}").strip().decode() == tree:
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
    _asked(folder, *update, stdin=listed)  # else the commit would be shown as staged to be taken back
    named = run_git(folder, ("symbolic-ref", "--quiet", "--short", "HEAD")).stdout.strip().decode(errors="replace")
    changed = _asked(folder, "diff-tree", "--root", "--no-commit-id", "--name-only", "-r", "-z", made)
    return Commit(made, named or "no branch", changed.count(b"\0"), len(left_out))


@dataclass(frozen=True, slots=True)
class Worktree:
    """One that was made, at `place`, on a branch that began at `base`. `folder` is the one that was asked for in it."""

    place: Path
    folder: Path
    branch: str
    base: str


def add_worktree(folder: Path, name: str) -> Worktree:
    """A worktree of the repository that a folder lies in, beside it, on a new branch from what is committed.

    UsageError where there is no repository, or nothing committed in it.
    """
    done = run_git(folder, ("rev-parse", "--show-toplevel", "--show-prefix"))
    if done.returncode:
        raise UsageError(f"--worktree: {folder} is in no git repository", "git init, or leave it out")
    top, prefix = os.fsdecode(done.stdout.removesuffix(b"\n")).rsplit("\n", 1)
    head = run_git(folder, ("rev-parse", "--quiet", "--verify", "HEAD^{commit}")).stdout.strip().decode()
    if not head:
        raise UsageError(f"--worktree: nothing is committed in {top}", "git commit, or leave it out")
    made = Worktree(place := Path(f"{top}-{name}"), place / prefix, f"stockade/{name}", head)
    done = run_git(folder, ("worktree", "add", "--quiet", "-b", made.branch, str(place), head))
    if done.returncode:
        raise UsageError(f"git made no worktree of {top}: {_why(done)}")
    if not made.folder.is_dir():
        drop_worktree(made)
        raise UsageError(f"--worktree: nothing in {folder} is committed", "git commit, or leave it out")
    return made


def drop_worktree(made: Worktree) -> bool:
    """Remove it, with its branch, if it is as it began. Whether it is gone."""
    at = run_git(made.place, ("rev-parse", "HEAD")).stdout.strip().decode()
    common = os.fsdecode(run_git(made.place, ("rev-parse", "--git-common-dir")).stdout.removesuffix(b"\n"))
    if at != made.base or run_git(made.place, ("status", "--porcelain", "--ignored")).stdout:
        return False
    if run_git(Path(common), ("worktree", "remove", str(made.place))).returncode:
        return False
    return run_git(Path(common), ("branch", "--quiet", "-D", made.branch)).returncode == 0


def _is_gits(folder: bytes, path: bytes) -> bool:
    """Whether git knows what is there by its path: no folder, and nothing that was below what is a symlink now."""
    parts = path.split(b"/")
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
