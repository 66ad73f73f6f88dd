"""Folders for bots."""

from dataclasses import dataclass
from pathlib import Path

from stockade_sandbox.policy import FolderMode


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of this machine. `mode`: `ro`, `overlay` (changes are reviewed) or `rw`."""

    path: str | Path
    mode: FolderMode = "overlay"

    def __post_init__(self) -> None:
        if self.mode not in ("ro", "overlay", "rw"):
            raise ValueError(f"the mode of a folder is ro, overlay or rw, not {self.mode!r}")

    def __str__(self) -> str:
        return f"{self.path}:{self.mode}"
