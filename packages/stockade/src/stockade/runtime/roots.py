"""What whoever is served may choose: the folder, and how long a run lasts where the options leave that open."""

from collections.abc import Sequence
from dataclasses import dataclass
from os.path import expanduser, isdir, realpath
from pathlib import Path

from stockade.core.errors import UsageError
from stockade.paths import current_folder
from stockade_sandbox.policy import FolderMode, parse_folder

DEFAULT_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class Roots:
    """`paths` with what may be done at most: `ro`, or `overlay`, which needs an apply of its own. Never `rw`."""

    paths: tuple[tuple[Path, FolderMode], ...]

    @classmethod
    def of(cls, folders: Sequence[str]) -> "Roots":
        """Of `--folder`, by default the current one. UsageError for none at all, a home, or the whole machine."""
        found = []
        for text in folders or (str(current_folder()),):
            rule = parse_folder(text, "overlay", "/workspace")
            path = Path(realpath(rule.host))
            if rule.mode == "rw":
                raise UsageError(f"--folder {text}: a client may not be given rw", "changes are applied with run_apply")
            if not isdir(path):
                raise UsageError(f"--folder {text}: there is no such folder")
            if path == Path(path.anchor) or path == Path(realpath(expanduser("~"))):
                raise UsageError(f"{path} is too much for clients to choose from", "give --folder PATH")
            found.append((path, rule.mode))
        return cls(tuple(found))

    def allowed(self, folder: str, mode: FolderMode) -> str:
        """The folder as `--folder` takes it, its links followed. UsageError when it is none of them."""
        if not folder or "\0" in folder:
            raise UsageError("this names no folder")
        path = Path(realpath(self.paths[0][0] / expanduser(folder)))
        for root, most in self.paths:
            if path == root or root in path.parents:
                if not isdir(path):
                    raise UsageError(f"there is no folder {folder}")
                return f"{path}:{'ro' if 'ro' in (mode, most) else 'overlay'}"
        places = ", ".join(str(root) for root, _ in self.paths)
        raise UsageError(f"{folder} is not among the folders of this server", f"they are {places}, and what is below")
