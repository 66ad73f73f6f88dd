"""What the loop needs of the world: small Protocols. Adapters live in sibling packages of core.

Conformance suites for each are in stockade.testing.conformance.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypedDict, Unpack, runtime_checkable

from stockade.core.actions import Action, Answer, CommandOutput, Observation, Step, SubTask, ToolResult
from stockade.core.budget import Account
from stockade.core.changes import Change, FolderLayer, Moved
from stockade.core.data import Data
from stockade.core.events import ChangesApplied, ChangesUndone, NetworkRequested, RunEvent
from stockade.core.messages import Message, ModelAnswer, ModelInfo, ModelRequest
from stockade.core.policy import Policy
from stockade.core.tools import Offered, ToolSpec

OnText = Callable[[str | None], None]
"""Called with each piece of a streaming answer; with None when the answer begins again: its pieces so far are void.

An empty piece is about a token of thinking, which is no part of the answer.
"""

OnNetwork = Callable[[NetworkRequested], None]
"""Called in the event loop with each request that a sandbox made, at its end; must not block."""


class _Resource(Protocol):
    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class Model(_Resource, Protocol):
    """A language model. Entering connects (or starts a server of ours); leaving lets go of it."""

    @property
    def info(self) -> ModelInfo:
        """Known after entering."""
        ...

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """One answer. Raises ModelUnavailable, ModelOverloaded (retries are already spent) or ContextExceeded.

        Cancelling ends the generation on the server.
        """
        ...


@runtime_checkable
class AnswerProtocol(Protocol):
    """One spelling of the action union: a pure pair of functions, and what the server must be told."""

    @property
    def name(self) -> str: ...

    def instructions(self, tools: Sequence[Offered]) -> str:
        """The part of the system prompt that says how to answer, for the named tools."""
        ...

    def listing(self, tools: Sequence[Offered]) -> str:
        """Tools that come on top of those of the instructions, in the same form."""
        ...

    def constrain(self, request: ModelRequest, tools: Sequence[Offered]) -> ModelRequest:
        """The request with what the server must enforce (a schema, tool definitions, a stop string)."""
        ...

    def read(self, answer: ModelAnswer, tools: Sequence[Offered]) -> Answer:
        """Lenient. Raises UnreadableAnswer with a message for the model; never an empty success."""
        ...

    def write(self, answer: Answer) -> Message:
        """The answer as it goes into the history: cleaned, in this protocol's own form."""
        ...

    def observed(self, step: Step, text: str) -> Message:
        """What came of a step, as the next message; `text` is already clipped."""
        ...


class ExecResult(Data):
    """A program run beside the shell. Output is cut at the call's `max_output_bytes`, by `truncated_bytes`."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated_bytes: int = 0


@runtime_checkable
class Sandbox(_Resource, Protocol):
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

    async def last_words(self) -> str:
        """Waits for its end: the end of what it wrote to standard error, or why it never ran."""
        ...


@runtime_checkable
class Programs(Protocol):
    """A sandbox that also runs programs beside the shell for as long as they are wanted: servers."""

    def carried(self) -> AbstractAsyncContextManager[None]:
        """Within it, programs may be entered and left by any task, in any order. May be nested."""
        ...

    def program(self, argv: Sequence[str]) -> AbstractAsyncContextManager[Program]:
        """Started when entered, in the working folder; ended when left, by the same task, before the sandbox. Outside
        of `carried` the first program must be left last.

        ActionFailed when there is no room for it; SandboxDied.
        """
        ...


@runtime_checkable
class Toolbox(_Resource, Protocol):
    """One or several tools that a bot may call beside its built-in actions.

    Entered when the run's sandbox is up, left before it ends. Entering raises UsageError (the person can mend it:
    what, and how) or SandboxFailed.
    """

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """Known after entering; the same as long as the run lasts."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> ToolResult:
        """What the tool returned. Whatever the tool, its peer or the arguments do wrong is a result of status `error`,
        within `timeout_s` where that is given, written for the model. Raises only SandboxFailed, and KeyError for a
        name that is none of `specs`.
        """
        ...


AddEvent = Callable[[RunEvent], Awaitable[None]]
"""Puts an event of the run on record."""


class Asker(Protocol):
    """Puts a bot's question to the user."""

    @property
    def attended(self) -> bool:
        """Whether somebody is there."""
        ...

    async def ask(self, question: str) -> str | None:
        """The answer; None when nobody is there to give one."""
        ...


class Helper(Protocol):
    """Does a task that a bot hands on."""

    async def do(self, task: SubTask, account: Account, add: AddEvent) -> Observation:
        """What came of it, whatever that is. `account` bounds it; `add` puts on record what there is to know of it.

        Raises SandboxFailed and StoreFailed.
        """
        ...


@runtime_checkable
class Approver(Protocol):
    """Says yes (None) or why not, before an action runs."""

    async def judge(self, action: Action) -> str | None: ...


class RunSummary(Data):
    """A row of `runs list`."""

    run_id: str
    started: float
    task: str
    bot: str
    model: str
    status: str
    turns: int
    driver: str | None = None
    """The living process that drives it, in words."""
    problem: str | None = None
    """What is wrong with the row of one whose status is `damaged`; of its other fields only the id says something."""


@runtime_checkable
class RunStore(Protocol):
    """Append-only. `append` returns when the events are on disk."""

    async def append(self, run_id: str, events: Sequence[RunEvent], *, durable: bool = True) -> None:
        """All or none of them. StoreFailed when that is not possible, RunTaken when somebody else drives the run.

        Without `durable` they are safe from the end of any process when this returns, but a power cut may take them
        back, and then all that came after them too, until the next append that is durable.
        """
        ...

    def driving(self, run_id: str) -> AbstractAsyncContextManager[None]:
        """Inside, nobody else can append to this run, which may be one that is yet to begin.

        RunTaken on entering when somebody does; from `append` inside when the run was taken over, which can happen
        only after this process was cut off from the record for longer than a lease lasts.
        """
        ...

    async def driver(self, run_id: str) -> str | None:
        """The living process that drives the run, in words (`process 17 on host`); None when nobody does."""
        ...

    async def events(self, run_id: str) -> list[RunEvent]:
        """In order. StoreFailed when the record is damaged; UsageError when there is no such run."""
        ...

    async def length(self, run_id: str) -> int:
        """How many events it has, without reading them; 0 when there is no such run."""
        ...

    async def find(self, reference: str) -> str:
        """The run id for an id, a unique prefix, or `last`. UsageError otherwise."""
        ...

    async def runs(self) -> list[RunSummary]:
        """Newest first."""
        ...

    async def remove(self, run_id: str) -> None:
        """Away with a run and its helpers, all of it or nothing, also with one that is damaged; twice is the same.

        From then on `find`, `events` and `append` say that it was removed (RunRemoved). RunTaken when somebody else
        drives it.
        """
        ...

    async def removed(self) -> dict[str, float]:
        """The ids of all that were removed, each with when (UNIX s)."""
        ...

    async def sweep(self) -> None:
        """Away with what was put aside for runs that are not on record any more."""
        ...

    async def close(self) -> None: ...


class Clock(Protocol):
    """Time, so that tests need none. `now` is UNIX seconds, `monotonic` only for differences."""

    def now(self) -> float: ...

    def monotonic(self) -> float: ...


class Differ(Protocol):
    """How one side of a folder differs from another, by path."""

    def changes(self, layer: FolderLayer) -> tuple[Change, ...]: ...

    def unified_diff(self, layer: FolderLayer, change: Change) -> str: ...


class Deciding(TypedDict, total=False):
    """How a decision about changes is carried out. `force`: also over what was edited since. `record` gets the event
    when it is decided, before anything is written; `progress` what is done, how many entries of it, and of how many.
    """

    force: bool
    record: Callable[[RunEvent], None] | None
    progress: Callable[[str, int, int], None]


class Applying(Deciding, total=False):
    """`merge`: what both sides changed is merged."""

    merge: bool


class Reviewer(Differ, Protocol):
    """Diff, apply and discard of a folder's layer."""

    def seal(self, layer: FolderLayer) -> str | None:
        """How many entries the layer holds, and their hash; None where there is no layer.

        A layer that has one and holds anything else is LayerLost to `changes` and `apply`, and never a change.
        """
        ...

    def conflicts(self, layer: FolderLayer, changes: Iterable[Change], *, merge: bool = False) -> dict[str, str]:
        """By path, why a change conflicts with the host's side, and cannot be merged with it where `merge` is asked."""
        ...

    def apply(self, layer: FolderLayer, changes: Iterable[Change], **how: Unpack[Applying]) -> tuple[str, ...]:
        """ChangedOnHost, and nothing written, when the host's files changed meanwhile: unless `force`, or where `merge`
        can put both together.
        """
        ...

    def undo(self, layer: FolderLayer, **how: Unpack[Deciding]) -> Moved:
        """All that was applied of a layer is taken back, also when the layer itself is gone."""
        ...

    def redo(self, layer: FolderLayer, **how: Unpack[Deciding]) -> Moved:
        """What was taken back is applied again, where the layer is gone."""
        ...

    def holding(self, layers: Iterable[FolderLayer]) -> AbstractContextManager[None]:
        """Inside, nobody applies to the folders of these layers, and nothing that was decided about them is cut off.

        FolderMoved when it is, and the folder is not there.
        """
        ...

    def recover(self, layer: FolderLayer) -> None:
        """Complete what was decided about the layer's folder and cut off."""
        ...

    def decisions(self, layer: FolderLayer) -> list[ChangesApplied | ChangesUndone]:
        """What was last decided of a layer; on record, unless a kill was in between."""
        ...

    def discard(self, layer: FolderLayer) -> None: ...


@runtime_checkable
class Keeper(Protocol):
    """Snapshots of the folders that a bot writes to, so that a run can go on from any of its turns."""

    async def keep(self) -> tuple[str | None, ...]:
        """One name a layer, durable when this returns; the same name as before when nothing was written since.

        SandboxFailed when there is no room, or a folder cannot be read.
        """
        ...

    def close(self) -> None:
        """Let go of what it holds of this machine. Nothing is kept after that."""
        ...


OnEvent = Callable[[RunEvent], None]
"""Called with each event after it is on disk."""

__all__ = ["AddEvent", "AnswerProtocol", "Approver", "Asker", "Backend", "Clock", "ExecResult", "Helper", "Keeper",
           "Model", "Observation", "OnEvent", "OnNetwork", "OnProgress", "OnText", "Program", "Programs", "Reviewer",
           "RunStore", "RunSummary", "Sandbox", "Toolbox"]  # fmt: skip
