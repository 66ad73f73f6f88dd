"""Files of a folder that git on this machine runs or obeys: what the user's own settings name, by git's own account."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from stockade_sandbox.errors import SandboxFailed
from stockade_sandbox.overlay.flags import git_keys

_GIT_S = 20
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
"""First: a virtual environment that a bot may write to can be on the user's PATH."""
LOCAL = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_NAMESPACE", "GIT_COMMON_DIR")
"""Variables that send git to another repository than that of the folder it is called in."""


def system_git() -> str | None:
    """The program; the user's PATH counts where the system has none."""
    return shutil.which("git", path=_SYSTEM_PATH) or shutil.which("git")


def named_by_git(folder: Path) -> dict[str, str]:
    """Paths below `folder`, and what git's setting says of each; empty where there is no repository, or no git.

    The settings are the host's, not those of a bot. SandboxFailed when git does not answer.
    """
    root = next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)
    git = system_git()
    if root is None or git is None:
        return {}
    settings = _settings(git, root)
    named, patterns = dict[str, str](), git_keys()
    for origin, setting in zip(settings[::2], settings[1::2], strict=False):
        key, _, value = setting.partition("\n")
        if any(fnmatchcase(key.lower(), pattern) for pattern in patterns):
            for path in _paths(value, root, root / origin.removeprefix("file:")):
                if path.startswith(f"{folder}/"):
                    named[path.removeprefix(f"{folder}/")] = f"git runs or obeys it on the host: {key} names it"
    return named


def identity(folder: Path) -> dict[str, str]:
    """The user's `name` and `email` in that folder, whoever's it is; empty without git, or where they are not set."""
    git = system_git()
    entries = (setting.partition("\n") for setting in (_settings(git, folder) if git else [])[1::2])
    wanted = {"user.name": "name", "user.email": "email"}
    return {wanted[key]: value for key, _, value in entries if key in wanted}


def _settings(git: str, root: Path) -> list[str]:
    """Where each is from, and what it is, in a folder of somebody else's too; nothing where git cannot read them, and
    runs nothing either. Reading them runs nothing."""
    env = {name: value for name, value in os.environ.items() if name not in LOCAL}
    argv = [git, "-c", "safe.directory=*", "config", "--list", "--show-origin", "--includes", "-z"]
    try:
        done = subprocess.run(argv, cwd=root, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_S,
                              check=False)  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise SandboxFailed(f"git did not list its settings of {root} within {_GIT_S} seconds") from error
    return os.fsdecode(done.stdout).split("\0") if done.returncode == 0 else []


def _paths(value: str, root: Path, config: Path) -> Iterator[str]:
    """Whatever of a value may be a path: from the root of the repository, where git runs programs, or from the file
    that says it, where it looks for others."""
    try:
        words = shlex.split(value.removeprefix("!"))
    except ValueError:
        words = value.split()
    for word in {value, *words}:
        for base in (root, config.parent):
            path = base / os.path.expanduser(word)
            yield from (os.path.normpath(path), os.path.realpath(path))
