"""What a sandbox gives back: of commands and programs, of requests to the network, and of what changed in a folder."""

import base64 as _base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from stockade_sandbox.policy import STRICT, Policy

Stream = Literal["stdout", "stderr"]
ShellEvent = Literal["shell_restarted", "shell_restored", "shell_lost_state", "shell_impersonated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of output in order of arrival; all of `stdout` where the policy has one stream. `text` when it is UTF-8,
    else `base64`; never both.
    """

    __pydantic_config__ = STRICT

    stream: Stream
    text: str | None = None
    base64: str | None = None

    @classmethod
    def of(cls, stream: Stream, data: bytes) -> "Chunk":
        try:
            return cls(stream=stream, text=data.decode())
        except UnicodeDecodeError:
            return cls(stream=stream, base64=_base64.b64encode(data).decode())

    @property
    def data(self) -> bytes:
        return (self.text or "").encode() if self.base64 is None else _base64.b64decode(self.base64)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutput:
    """What a command did. `truncated_bytes` were cut from the middle of the output and are not in `chunks`.

    `shell_event`: the command ended the shell itself. `shell_restored`: it goes on with the state from before the
    command; `shell_restarted`: a fresh one was started and the state is lost; `shell_impersonated`: something else
    reported in its place, and it was restarted, from before the command where that is possible.
    """

    __pydantic_config__ = STRICT

    kind: Literal["command"] = "command"
    exit_code: int
    chunks: tuple[Chunk, ...] = ()
    cwd: str = ""
    timed_out: bool = False
    truncated_bytes: int = 0
    duration_s: float = 0.0
    shell_event: ShellEvent | None = None

    def stream(self, name: Stream) -> bytes:
        return b"".join(chunk.data for chunk in self.chunks if chunk.stream == name)

    @property
    def stdout(self) -> bytes:
        return self.stream("stdout")

    @property
    def stderr(self) -> bytes:
        return self.stream("stderr")

    @property
    def output(self) -> bytes:
        """Both streams in order of arrival."""
        return b"".join(chunk.data for chunk in self.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """A program run beside the shell. Output is cut at the call's `max_output_bytes`, by `truncated_bytes`."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramStart:
    """A program that was started inside: the file, and its words as it was given them, of which the first 4 KiB. `at`
    in UNIX s.
    """

    at: float
    program: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRequest:
    """The sandbox asked for something outside, and that is over. `at` is its end (UNIX s).

    `host` is what was asked for, as printable ASCII; empty when even that could not be read. `status` is HTTP's, 0 when
    there was none. `reason` says why it was refused, or how an allowed one failed. Bytes are those exchanged with the
    server. `credential` names the credentials whose values the proxy put in, with commas between them. `allow` is the
    rule of `--net` that was missing.
    """

    at: float
    host: str
    port: int
    method: str
    verdict: Literal["allowed", "refused"]
    reason: str = ""
    status: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    duration_s: float = 0.0
    credential: str = ""
    allow: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided about changes: `paths` go to the folder, or are taken `back`. Its time (UNIX s) names it."""

    at: float
    paths: tuple[str, ...]
    back: bool


ChangeKind = Literal["added", "modified", "deleted", "mode", "type"]
EntryKind = Literal["file", "symlink", "directory", "special"]
MARK = "[redacted"
"""What every replaced secret begins with: a bot that writes it into a file may have lost what stood there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One path below the folder, `/`-separated, relative.

    `refused`: why applying it is not possible at all (a device, a way out of the folder).
    `flagged`: why a person should look at it first (it would run on the host later). `held`: it would by itself, and is
    left out of an apply that does not name it.
    `size` and `mode` are those after the change; `target` is a symlink's.
    """

    __pydantic_config__ = STRICT

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
    held: bool = False


@dataclass(frozen=True, slots=True)
class Renamed:
    """Where a new file comes from: the path that it had, and how much is alike, of 100."""

    old: str
    similarity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderLayer:
    """Where the writing of one folder went: enough to diff, apply or discard it after the run.

    `strategy`: `overlay` (upper layer in `layer`), `copy` (a whole copy in `layer`), `direct` (the host folder itself).
    `seal`: what the layer held when the run ended (`Reviewer.seal`); None while it is written to. `without`: paths
    that the user threw away: they are no change any more, and the folder's own again once the run goes on.
    """

    __pydantic_config__ = STRICT

    host: str
    inside: str
    mode: Literal["ro", "overlay", "rw"]
    strategy: Literal["overlay", "copy", "direct"]
    layer: str | None = None
    seal: str | None = None
    without: tuple[str, ...] = ()

    @property
    def written(self) -> Path | None:
        """Where the sandbox writes to, when that is not the host folder itself."""
        return Path(self.layer, "copy" if self.strategy == "copy" else "upper") if self.layer is not None else None

    @property
    def source(self) -> str:
        """The host directory whose content the sandbox sees, where it is no overlay."""
        return f"{self.layer}/copy" if self.strategy == "copy" else self.host

    @property
    def is_lost(self) -> bool:
        """Whether it had a place of its own, which is not on this machine any more."""
        return self.layer is not None and not Path(self.layer, "layer.json").exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What was written to the folders of a sandbox at one moment, a name for each of its `layers`, in which it is: as
    long as they are there. What its programs had in memory and in /tmp is not in it.
    """

    policy: Policy
    layers: tuple[FolderLayer, ...]
    names: tuple[str | None, ...]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the doctor found, one cell of it. `required`: without it no sandbox is started here. `tried`: what was done
    to know.

    `backend` is None for what is the machine's. Names of one kind are alike for all backends: `sandbox`, `limit: ...`,
    `escape: ...`.
    """

    backend: str | None = None
    name: str
    tried: str
    held: bool
    required: bool = True
    cause: str | None = None
    way_out: str | None = None
