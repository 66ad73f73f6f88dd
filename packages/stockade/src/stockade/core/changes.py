"""What a bot changed in a folder, as data for review."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from stockade.core.data import Data

ChangeKind = Literal["added", "modified", "deleted", "mode", "type"]
EntryKind = Literal["file", "symlink", "directory", "special"]


class Change(Data):
    """One path below the folder, `/`-separated, relative.

    `refused`: why applying it is not possible at all (a device, a way out of the folder).
    `flagged`: why a person should look at it first (it would run on the host later).
    `size` and `mode` are those after the change; `target` is a symlink's.
    """

    path: str
    kind: ChangeKind
    entry: EntryKind = "file"
    size: int = 0
    mode: int = 0
    target: str | None = None
    binary: bool = False
    added_lines: int = 0
    removed_lines: int = 0
    refused: str | None = None
    flagged: str | None = None


class FolderLayer(Data):
    """Where the writing of one folder went: enough to diff, apply or discard it after the run.

    `strategy`: `overlay` (upper layer in `layer`), `copy` (a whole copy in `layer`), `direct` (the host folder itself).
    `seal`: what the layer held when the run ended (`Reviewer.seal`); None while it is written to.
    """

    host: str
    inside: str
    mode: Literal["ro", "overlay", "rw"]
    strategy: Literal["overlay", "copy", "direct"]
    layer: str | None = None
    seal: str | None = None

    @property
    def written(self) -> Path | None:
        """Where the sandbox writes to, when that is not the host folder itself."""
        return Path(self.layer, "copy" if self.strategy == "copy" else "upper") if self.layer is not None else None

    @property
    def is_lost(self) -> bool:
        """Whether it had a place of its own, which is not on this machine any more."""
        return self.layer is not None and not Path(self.layer, "layer.json").exists()


@dataclass(slots=True)
class Moved:
    """What an undo, or an apply after one, did: `paths` that went, `left` those that stayed, each with the reason."""

    paths: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)

    def add(self, more: "Moved") -> None:
        self.paths += more.paths
        self.left |= more.left


def what_changed(change: Change) -> str:
    """The extent of a change, in a word or two for a list."""
    if change.kind == "mode":
        return f"mode {change.mode:o}"
    return "binary" if change.binary else f"+{change.added_lines} -{change.removed_lines}"


def shown_path(inside: str, path: str) -> str:
    """Relative for the working folder, with its place in the sandbox for others."""
    return path if inside == "/workspace" else f"{inside}/{path}"
