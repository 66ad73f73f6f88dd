"""What goes over the wire, beside the events and their parts, which are those of the record."""

from typing import Annotated, Any, Literal

from pydantic import Field

from stockade.approval.rules import Judgement
from stockade.core.actions import Action
from stockade.core.data import Data
from stockade.core.messages import Usage
from stockade.server.tokens import Scope
from stockade_sandbox.results import Change, EntryKind

Text = Annotated[str, Field(min_length=1, max_length=1_000_000)]
Name = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]
State = Literal["running", "asking", "paused", "interrupted", "done", "stopped", "failed"]
RUNS_A_PAGE = 50


class Wire(Data, defer_build=False):
    """FastAPI makes what checks these at once, and hides what pydantic warns of then."""


class Limits(Wire):
    """`timeout` in seconds, `max_cost` in USD. The server's own hold where they are less."""

    max_turns: int | None = Field(default=None, ge=1)
    timeout: float | None = Field(default=None, gt=0)
    max_tokens: int | None = Field(default=None, ge=1)
    max_cost: float | None = Field(default=None, ge=0)


class NewRun(Wire):
    """`folder`: one of the server's folders, or a path below one of them; `upload`: the id of one that was sent.
    Neither: no folder. `check`: commands that must succeed at the end.
    """

    task: Text
    bot: Annotated[str, Field(max_length=64, pattern=r"^[\w-]+$")] | None = None
    model: Name | None = None
    folder: Name | None = None
    upload: Annotated[str, Field(pattern=r"^[a-z0-9]{16}$")] | None = None
    mode: Literal["ro", "overlay"] = "overlay"
    check: tuple[Name, ...] = Field(default=(), max_length=20)
    protect: tuple[Name, ...] = Field(default=(), max_length=200)
    approve: Literal["never", "ask", "rules"] | None = None
    output_schema: dict[str, Any] | None = None
    limits: Limits = Limits()


class RunLine(Wire):
    """A run in a list. `started`: UNIX s; `waiting`: how many questions are open; `verified`: what its checks said."""

    id: str
    status: State
    started: float
    task: str
    bot: str
    model: str
    folder: str | None = None
    turns: int = 0
    waiting: int = 0
    verified: bool | None = None


class Run(RunLine):
    """A run as its record says. `changes` are those at its end; `decided`: what became of them."""

    reason: str | None = None
    detail: str | None = None
    answer: str | None = None
    usage: Usage = Usage()
    changes: tuple[Change, ...] = ()
    changed_tests: tuple[str, ...] = ()
    decided: Literal["applied", "undone", "discarded"] | None = None


class RunPage(Wire):
    """Newest first. `next`: the cursor of the page behind it; None: there is none."""

    runs: tuple[RunLine, ...]
    next: str | None = None


class Asked(Wire):
    """What a run waits for: an `action` that is to be allowed, exactly as it will be done, with what the rules say of
    it; or a `question` of the bot's. `problem`: what was wrong with the last reply.
    """

    number: int
    at: float
    action: Action | None = None
    judgements: tuple[Judgement, ...] = ()
    question: str | None = None
    problem: str | None = None


class Approval(Wire):
    """`allow` False with a `note`: it is not done, and the bot is told why; without one the run ends. `scope`: for
    this once, as long as the run lasts, or for this bot in this folder from now on.
    """

    allow: bool
    note: Text | None = None
    scope: Literal["once", "session", "always"] = "once"


class Message(Wire):
    """Words for the bot. `question`: the number of the open question that they answer."""

    text: Text
    question: int | None = None


class Rewind(Wire):
    """To the end of `turn`, 0 is the beginning; and on from there with the new `task`, where one is given."""

    turn: int = Field(ge=0)
    task: Text | None = None


class Told(Wire):
    """What became of a message: it answered a question, is told before the next turn, or is a new task."""

    as_: Literal["answer", "steer", "task"] = Field(serialization_alias="as")


class Diff(Wire):
    """`etag` names exactly these changes: an apply gives it back as If-Match. `masked`: names of secrets that are
    hidden in `patch`, and stand in the files. `applied`: paths that are in the folder now, and can be taken back;
    `undone`: those that were, and can be applied again. `caches`: how many changes of caches are left out, by name.
    """

    etag: str
    files: tuple["DiffFile", ...]
    masked: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    caches: dict[str, int] = Field(default_factory=dict)


class DiffFile(Wire):
    """`path` as an apply names it; `patch` is for reading. `colours`, where asked for and the language is known: the
    patch's lines without their marks, each in pieces: [class, text]; k keyword, s string, c comment, n number, f name.
    """

    path: str
    folder: str
    change: Change
    patch: str
    colours: tuple[tuple[tuple[str, str], ...], ...] | None = None


class FileEntry(Wire):
    """`path` as `GET …/files/{path}` takes it; `size` in bytes, of files; `target` of symlinks, never followed."""

    path: str
    kind: EntryKind
    size: int = 0
    target: str | None = None


class FileList(Wire):
    """Folders first, by name. The first list has the other folders of the sandbox by their places there. `left_out`:
    how many more there are.
    """

    entries: tuple[FileEntry, ...]
    left_out: int = 0


class Chosen(Wire):
    """None: all. `flagged`: also what would run by itself on the server's machine later; `merge`: files that changed
    on both sides; `force`: over what was edited since.
    """

    paths: tuple[Name, ...] | None = None
    flagged: bool = False
    merge: bool = False
    force: bool = False


class Output(Wire):
    """What a command has written since, without secrets. `missed`: characters before it that came too fast."""

    stream: Literal["stdout", "stderr"]
    text: str
    missed: int = 0


class Login(Wire):
    """The key of a link that `stockade serve` printed."""

    key: Annotated[str, Field(min_length=20, max_length=100, pattern=r"^[\w-]+$")]


class Who(Wire):
    """The token that a request came with. `at_once`: how many of its runs may be under way."""

    name: str
    scopes: tuple[Scope, ...]
    at_once: int
    max_cost: float | None = None


class ToolLine(Wire):
    """A tool, as `stockade tool list` has it."""

    name: str
    kind: str
    about: str


class Decided(Wire):
    """`paths` that were written, or taken back; `left`: those that were not, and why."""

    paths: tuple[str, ...]
    left: dict[str, str] = Field(default_factory=dict)


class Upload(Wire):
    """A folder that was sent; `left_out`: names of what no folder of a bot may hold: devices, links that lead out."""

    id: str
    bytes: int
    left_out: tuple[str, ...] = ()


class Problem(Wire):
    """RFC 9457. `hint`: the way out."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    hint: str | None = None
