"""What the user's git is asked about a folder of the host: what its ignore files name.

Git runs on what stands in the folder now, before anything of a bot is in it. None of its hooks run.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from stockade.core.errors import UsageError
from stockade_sandbox.overlay.safe_fs import decode_path, encode_path

_GIT_S = 120
_QUIET = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "core.quotePath=false")
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
