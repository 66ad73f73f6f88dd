"""What a sandbox is to whoever uses it: small Protocols. Conformance suites are in stockade.testing.conformance."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypedDict, Unpack, runtime_checkable

from stockade_sandbox.policy import Policy
from stockade_sandbox.results import (
    Change,
    CommandOutput,
    Decision,
    ExecResult,
    FolderLayer,
    Moved,
    NetworkRequest,
    ProgramStart,
    Renamed,
    Stream,
)

MAX_COMMAND_BYTES = 1_000_000

OnNetwork = Callable[[NetworkRequest], None]
"""Called in the event loop with each request that a sandbox made, at its end; must not block."""


class Resource(Protocol):
    """Something that is entered before it is used, and left."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class Sandbox(Resource, Protocol):
    """One sealed place with one persistent shell in it. Entering starts it, leaving ends all of it.

    Everything here may raise SandboxDied; entering raises PolicyNotEnforceable or SandboxFailed. Whoever wants to know
    what it asks of the network sets `on_network` before entering.
    """

    on_network: OnNetwork | None

    @property
    def backend(self) -> str: ...

    @property
    def layers(self) -> tuple[FolderLayer, ...]: ...

    @property
    def guarantees(self) -> tuple[str, ...]: ...

    async def run(self, command: str, timeout_s: float | None = None) -> CommandOutput:
        """In the persistent shell. `timeout_s` None is the policy's; it ends the whole process tree with 124."""
        ...

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        """A program in the shell's current folder, not in the shell: for file actions, tools and checks."""
        ...


@runtime_checkable
class RecordsFirst(Protocol):
    """A sandbox that lends the user's ssh-agent. Before each signature it tells `on_network` and awaits `on_record`,
    which ends when all that was told is on record.
    """

    on_record: Callable[[], Awaitable[None]] | None


OnProgress = Callable[[str, int, int], None]
"""What is being done, and how far it is: (words, done, total); total 0 when unknown."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A kind of sandbox. `prepare` makes one for a policy, its layers below a folder of the run; it blocks while
    folders are copied, and raises UsageError, PolicyNotEnforceable or SandboxFailed before anything runs. `reopen`
    makes one on the layers that an earlier one had. Neither enters it.
    """

    prepare: Callable[[Policy, Path, OnProgress | None], Sandbox]
    reopen: Callable[[Policy, Sequence[FolderLayer], Path], Sandbox]
    sweep: Callable[[], list[str]] | None = None
    """Removes what sandboxes of processes that are gone left outside of their folders; what it was, a name each."""
    sealed: bool = True
    """False: it holds nothing, and `stockade doctor` has nothing to try in it."""
    far: bool = False
    """Its folders are paths of another machine."""
    own_kernel: bool = False
    """What runs in it does not reach this machine's kernel."""
    shows_programs: bool = False
    """Programs of this machine are found in it at their own path: toolchains.py."""
    bounds_memory: Callable[[], bool] = lambda: True
    """Whether memory is bounded as a total here, not a process at a time. Blocks."""


class Program(Protocol):
    """A program inside, while it is wanted. One reader and one writer at a time; errors are anyio's of byte streams."""

    @property
    def status(self) -> int | None:
        """As a shell would give it; None while it runs, or when nobody can tell."""
        ...

    async def receive(self, max_bytes: int = 65536) -> bytes:
        """Some of what it wrote to standard output; what is not read stops it, sooner or later."""
        ...

    async def send(self, item: bytes) -> None: ...

    async def send_eof(self) -> None: ...

    async def exit_reason(self) -> str:
        """Waits for its end: the end of what it wrote to standard error, or why it never ran."""
        ...


class StartedProgram(Program, Protocol):
    """One whose end can be asked for, and told from others."""

    async def receive_error(self, max_bytes: int = 65536) -> bytes:
        """The same of standard error, of one that was started with `errors`: both have to be read."""
        ...

    async def kill(self) -> None:
        """Ends it and all that it has started."""
        ...

    async def signal(self, number: int) -> None:
        """To the group in the foreground of its terminal, else to its own. ValueError for what is no signal."""
        ...

    async def resize(self, rows: int, columns: int) -> None:
        """Its terminal, 1 to 65535 each, else ValueError; nothing where it has none."""
        ...

    async def wait(self) -> int | None:
        """For its end, which comes after all that it wrote; its status."""
        ...

    @property
    def timed_out(self) -> bool: ...

    @property
    def error(self) -> str:
        """Why it never ran (its status is 126 or 127 then), or which limit of ours ended it; empty for any other."""
        ...


@runtime_checkable
class Programs(Protocol):
    """A sandbox that also runs programs beside the shell for as long as they are wanted: servers."""

    def program(
        self,
        argv: Sequence[str],
        cwd: str | None = None,
        timeout_s: float | None = None,
        *,
        errors: bool = False,
        terminal: tuple[int, int] | None = None,
        root: bool = False,
    ) -> AbstractAsyncContextManager[StartedProgram]:
        """Started when entered, in the working folder or `cwd` (empty: where the shell is); ended when left, by the
        same task, before the sandbox. `timeout_s`: None is as long as it is wanted; 0 is the policy's limit.
        `terminal`: rows and columns of one; all that it writes there is its standard output. `root`: as Policy.root.

        ActionFailed when there are too many; SandboxDied.
        """
        ...


@runtime_checkable
class Shells(Protocol):
    """A sandbox that also has further persistent shells, beside its own and each other."""

    def shell(self, *, root: bool = False) -> AbstractAsyncContextManager["Shell"]:
        """One with a state of its own, in the working folder; ended when left, by the same task, before the sandbox.
        `root`: as Policy.root.

        ActionFailed when there are too many, and when it was ended from inside; SandboxDied.
        """
        ...


class Rooted(Protocol):
    """One whose policy has `root`, whatever the backend: others refuse that policy."""

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20,
        *, root: bool,
    ) -> ExecResult:  # fmt: skip
        """As Sandbox.exec."""
        ...


class Shell(Protocol):
    async def run(self, command: str, timeout_s: float | None = None) -> CommandOutput:
        """As Sandbox.run."""
        ...

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        """As Sandbox.exec, in its own folder."""
        ...


@runtime_checkable
class TellsExports(Protocol):
    """A sandbox whose shell says of itself what it exports, so that nobody has to ask."""

    @property
    def exports(self) -> str | None:
        """At the end of its last command, as `export -p` says it; None before that. Too long: as it was before."""
        ...


@runtime_checkable
class Freezable(Protocol):
    """A sandbox whose programs can be made to stand still."""

    def frozen(self) -> AbstractAsyncContextManager[None]:
        """Inside, nothing in it runs or writes; all goes on after. UsageError where that cannot be had."""
        ...


class Doorkeeper(Protocol):
    """May let out what the list of the network does not have, by the rule that is missing: HOST or HOST:PORT."""

    def may(self, rule: str) -> bool:
        """Whether `allows` could say yes."""
        ...

    async def allows(self, rule: str) -> bool:
        """Waits for whoever decides. What it says is on record then."""
        ...


@runtime_checkable
class HasDoorkeeper(Protocol):
    """A sandbox whose proxy asks one, which is set before entering, for names that are not on its list."""

    doorkeeper: Doorkeeper | None


OnOutput = Callable[[Stream, bytes], None]
"""Called in the event loop with each piece that the shell's command writes, as it comes; must not block."""


@runtime_checkable
class TellsPrograms(Protocol):
    """A sandbox that writes down every program that is started in it, where `tells_programs` is set before entering."""

    tells_programs: bool

    def started_programs(self) -> tuple[Sequence[ProgramStart], int]:
        """Those since this was last asked, in order; and how many more there were than it keeps."""
        ...


@runtime_checkable
class ShowsOutput(Protocol):
    """A sandbox that says what its shell's command writes while it runs; all of it, also what `run` will leave out."""

    on_output: OnOutput | None


@runtime_checkable
class Interruptible(Protocol):
    """A sandbox whose shell's command can be ended from outside, as a Ctrl-C does; the shell is as it was before it."""

    async def interrupt(self, why: str) -> bool:
        """Ends it with status 130, and says `why` behind its output; False where the shell does none. SandboxDied."""
        ...


class Kept(Sandbox, Protocol):
    """keeping.KeptSandbox, which is imported where it is wanted."""

    @property
    def base(self) -> Path: ...

    @property
    def policy(self) -> Policy: ...

    async def stop(self) -> None:
        """Nothing runs in it any more; what was written stays."""
        ...

    async def destroy(self) -> None: ...

    async def snapshot(self) -> tuple[str | None, ...]: ...


class Differ(Protocol):
    """How one side of a folder differs from another, by path."""

    def changes(self, layer: FolderLayer) -> tuple[Change, ...]: ...

    def left_out(self, layer: FolderLayer) -> Mapping[str, int]:
        """How many changes the last look at a layer left out, by the name of the cache that they are of."""
        ...

    def unified_diff(
        self,
        layer: FolderLayer,
        change: Change,
        renamed: Renamed | None = None,
        binary: Callable[[bytes], None] | None = None,
    ) -> str:
        """What `git apply` reads; of one of `renames`, with where it comes from. `binary`: with binary files, each side
        of which it sees before.
        """
        ...

    def texts(self, layer: FolderLayer, change: Change) -> tuple[bytes, bytes] | None:
        """Both sides of a file that can be decided on by hunk."""
        ...

    def content(self, layer: FolderLayer, change: Change, *, raw: bool = False) -> bytes | None:
        """A text file as the bot made it, or with `raw` any file of up to 64 MiB; None for any other."""
        ...

    def renames(self, layer: FolderLayer, changes: Iterable[Change]) -> dict[str, Renamed]:
        """Of the new files among these, by path, those that are old ones under another name."""
        ...


class Deciding(TypedDict, total=False):
    """How a decision about changes is carried out. `force`: also over what was edited since. `record` gets it when it
    is decided, before anything is written; `progress` what is done, how many entries of it, and of how many.
    """

    force: bool
    record: Callable[[Decision], None] | None
    progress: Callable[[str, int, int], None]


class Applying(Deciding, total=False):
    """`merge`: what both sides changed is merged. `contents`: by path, what is written in place of all that the bot
    made of a file. `reviewed`: by path, the `digests` of what was looked at: ReviewOutdated when it is not that now.
    """

    merge: bool
    contents: Mapping[str, bytes]
    reviewed: Mapping[str, str] | None


class Reviewer(Differ, Protocol):
    """Diff, apply and discard of a folder's layer."""

    def seal(self, layer: FolderLayer) -> str | None:
        """How many entries the layer holds, and their hash; None where there is no layer.

        A layer that has one and holds anything else is LayerLost to `changes` and `apply`, and never a change.
        """
        ...

    def digests(self, layer: FolderLayer, changes: Iterable[Change]) -> dict[str, str]:
        """By path, what each change is known by, with the content of both sides."""
        ...

    def conflicts(self, layer: FolderLayer, changes: Iterable[Change], *, merge: bool = False) -> dict[str, str]:
        """By path, why a change conflicts with the host's side, and cannot be merged with it where `merge` is asked."""
        ...

    def apply(self, layer: FolderLayer, changes: Iterable[Change], **how: Unpack[Applying]) -> tuple[str, ...]:
        """ChangedOnHost, and nothing written, when the host's files changed meanwhile: unless `force`, or where `merge`
        can put both together.
        """
        ...

    def undo(self, layer: FolderLayer, only: Collection[str] | None = None, **how: Unpack[Deciding]) -> Moved:
        """All that was applied of a layer is taken back, or what is shown as one of `only`; also when it is gone."""
        ...

    def redo(
        self,
        layer: FolderLayer,
        changes: Iterable[Change] | None = None,
        contents: Mapping[str, bytes] | None = None,
        **how: Unpack[Deciding],
    ) -> Moved:
        """What was taken back is applied again where the layer is gone; or some of it. `contents` as of apply."""
        ...

    def holding(self, layers: Iterable[FolderLayer]) -> AbstractContextManager[None]:
        """Inside, nobody applies to the folders of these layers, and nothing that was decided about them is cut off.

        FolderMoved when it is, and the folder is not there.
        """
        ...

    def recover(self, layer: FolderLayer) -> bool:
        """Complete what was decided about the layer's folder and cut off. Whether anything was."""
        ...

    def decisions(self, layer: FolderLayer) -> list[Decision]:
        """What was last decided of a layer; on record, unless a kill was in between."""
        ...

    def discard(self, layer: FolderLayer) -> None: ...


@runtime_checkable
class SnapshotStore(Protocol):
    """Snapshots of the folders that a bot writes to, so that a run can go on from any of its turns."""

    async def keep(self) -> tuple[str | None, ...]:
        """One name a layer, durable when this returns; the same name as before when nothing was written since.

        SandboxFailed when there is no room, or a folder cannot be read.
        """
        ...

    def close(self) -> None:
        """Let go of what it holds of this machine. Nothing is kept after that."""
        ...
