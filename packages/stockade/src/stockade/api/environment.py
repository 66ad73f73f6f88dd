"""Folders for bots, and a sandbox as Microbots calls it: an environment."""

from dataclasses import dataclass, replace
from pathlib import Path

from stockade.core.errors import UsageError
from stockade_sandbox import Sandbox
from stockade_sandbox.policy import FolderMode, policy_of


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


@dataclass(frozen=True, slots=True)
class Execution:
    """What a command did. `error` is its stderr; 124 is the return code of one that took too long."""

    return_code: int
    output: str
    error: str


class Environment(Sandbox):
    """A Sandbox with Microbots' two calls: `with Environment("data", "READ_ONLY") as box: box.execute("ls")`.

    `permission` is READ_ONLY, or READ_WRITE for an overlay; a Folder says its own mode.
    """

    def __init__(self, folder_to_mount: Folder | str | Path | None = None, permission: str | None = None) -> None:
        if permission not in (None, "READ_ONLY", "READ_WRITE"):
            raise UsageError(f"there is no permission {permission!r}", "READ_ONLY or READ_WRITE")
        if folder_to_mount is not None and not isinstance(folder_to_mount, Folder):
            folder_to_mount = Folder(folder_to_mount, "ro" if permission == "READ_ONLY" else "overlay")
        policy = policy_of(None if folder_to_mount is None else str(folder_to_mount), ())
        super().__init__(policy=replace(policy, streams="separate"))

    def execute(self, command: str, timeout: float | None = None) -> Execution:
        """A command in the persistent shell: what it changes there stays. `timeout` in seconds."""
        done = self.exec(shell=command, timeout=timeout)
        return Execution(done.exit_code, done.text, done.stderr.decode(errors="backslashreplace"))

    def kill(self) -> None:
        """Ends it and all that runs in it. Does nothing the second time."""
        self.__exit__(None, None, None)
