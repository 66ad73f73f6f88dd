"""What the loop needs of the world: small Protocols. Adapters live in sibling packages of core.

Conformance suites for each are in stockade.testing.conformance.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

from stockade.core.actions import Action, Answer, Observation, Step, SubTask, ToolResult
from stockade.core.budget import Account
from stockade.core.data import Data
from stockade.core.events import RunEvent
from stockade.core.messages import Message, ModelAnswer, ModelInfo, ModelRequest
from stockade.core.summary import RunSummary
from stockade.core.tools import Offered, ToolSpec
from stockade_sandbox.port import (
    Applying,
    Backend,
    Deciding,
    Differ,
    Doorkeeper,
    OnNetwork,
    OnProgress,
    Program,
    Programs,
    Resource,
    Reviewer,
    Sandbox,
    SnapshotStore,
)
from stockade_sandbox.results import ExecResult, NetworkRequest

OnText = Callable[[str | None], None]
"""Called with each piece of a streaming answer; with None when the answer begins again: its pieces so far are void.

An empty piece is about a token of thinking, which is no part of the answer.
"""


@runtime_checkable
class Model(Resource, Protocol):
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


@runtime_checkable
class Toolbox(Resource, Protocol):
    """One or several tools that a bot may call beside its built-in actions.

    Entered when the run's sandbox is up, left before it ends. Entering raises UsageError (the user can mend it:
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


class UserPrompt(Protocol):
    """Puts a bot's question to the user."""

    @property
    def attended(self) -> bool:
        """Whether somebody is there."""
        ...

    async def ask(self, question: str) -> str | None:
        """The answer; None when nobody is there to give one."""
        ...


class SubAgentRunner(Protocol):
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


class NetworkApprover(Doorkeeper, Protocol):
    """Asks the user. What they say goes to `record` first, which ends when it is on record."""

    record: Callable[[NetworkRequest], Awaitable[None]] | None


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

    async def events(self, run_id: str, *, first: int = 0, limit: int | None = None) -> list[RunEvent]:
        """In order, from number `first` on, at most `limit`. StoreFailed when the record is damaged; UsageError when
        there is no such run.
        """
        ...

    async def length(self, run_id: str) -> int:
        """How many events it has, without reading them; 0 when there is no such run."""
        ...

    async def find(self, reference: str) -> str:
        """The run id for an id, a unique prefix, or `last`. UsageError otherwise."""
        ...

    async def runs(
        self, *, folder: str | None = None, words: Sequence[str] = (), limit: int | None = None
    ) -> list[RunSummary]:
        """Newest first, at most `limit`: of a folder and what lies in it; whose tasks, answers and commands hold all
        these words.
        """
        ...

    async def said(self, run_id: str, words: Sequence[str]) -> list[tuple[str, str]]:
        """What of a run holds one of these words: `task`, `answer` or `command`, and the beginning of the text."""
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


OnEvent = Callable[[RunEvent], None]
"""Called with each event after it is on disk."""


class Found(Data):
    """One result of a search, as the engine gave it: nobody has looked at it."""

    title: str
    url: str
    snippet: str = ""


@runtime_checkable
class SearchEngine(Protocol):
    """Searches the web, or what it knows of it."""

    @property
    def name(self) -> str: ...

    async def search(self, query: str, count: int) -> Sequence[Found]:
        """At most `count`, best first. ActionFailed, for the model, when the engine cannot be asked."""
        ...


__all__ = ["AddEvent", "AnswerProtocol", "Applying", "Approver", "Backend", "Clock", "Deciding", "Differ",
           "ExecResult", "Found", "Model", "NetworkApprover", "Observation", "OnEvent", "OnNetwork", "OnProgress",
           "OnText", "Program", "Programs", "Resource", "Reviewer", "RunStore", "RunSummary", "Sandbox", "SearchEngine",
           "SnapshotStore", "SubAgentRunner", "Toolbox", "UserPrompt"]  # fmt: skip
