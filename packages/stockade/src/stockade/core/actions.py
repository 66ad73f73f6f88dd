"""What a bot may ask for, and what it gets back. One union for every bot, protocol and provider."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field

from stockade.core.data import Data
from stockade.core.messages import Image
from stockade_sandbox.results import CommandOutput


class Shell(Data):
    """A command for the run's persistent shell. `timeout_s` replaces the policy's usual limit, up to its longest."""

    tool: Literal["shell"] = "shell"
    command: str
    timeout_s: float | None = Field(default=None, gt=0)


class ReadFile(Data):
    """A text file, or its lines `start` to `end` (1-based, both included)."""

    tool: Literal["read_file"] = "read_file"
    path: str
    start: int | None = Field(default=None, ge=1)
    end: int | None = Field(default=None, ge=1)


class WriteFile(Data):
    """A whole file, its parents made."""

    tool: Literal["write_file"] = "write_file"
    path: str
    content: str


class EditFile(Data):
    """Replace `old` by `new`: where it stands once, or with `replace_all` everywhere. Empty, it makes a new file."""

    tool: Literal["edit_file"] = "edit_file"
    path: str
    old: str
    new: str
    replace_all: bool = False


class ToolCall(Data):
    """A tool by its name, its arguments as the tool's schema wants them."""

    tool: Literal["tool_call"] = "tool_call"
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class AskUser(Data):
    """A question to the user."""

    tool: Literal["ask_user"] = "ask_user"
    question: str


class SubTask(Data):
    """A task for a sub-bot in the same sandbox, on the same budget. `name`: what it is called in lists; `model`: the
    run's stronger or faster one, in place of its boss's; `in_parallel`: more tasks, done at the same time by others.
    """

    tool: Literal["sub_task"] = "sub_task"
    task: str
    max_turns: int | None = Field(default=None, ge=1)
    name: str | None = Field(default=None, pattern=r"^\w[\w.-]{0,39}$")
    model: Literal["smart", "fast"] | None = None
    in_parallel: tuple[str, ...] = Field(default=(), max_length=7)


class Finish(Data):
    """The end of the run, with the answer for the user. `gave_up`: the bot says that the task cannot be done."""

    tool: Literal["finish"] = "finish"
    answer: str
    gave_up: bool = False


class InvalidCall(Data):
    """One of several calls of an answer that is none, as it was `written`, and its `number` among them from 1.

    It is answered with its `problem`; the others are done.
    """

    tool: Literal["invalid_call"] = "invalid_call"
    name: str = ""
    written: str
    problem: str
    number: int


Action = Annotated[
    Shell | ReadFile | WriteFile | EditFile | ToolCall | AskUser | SubTask | Finish | InvalidCall,
    Field(discriminator="tool"),
]

BUILT_IN_TOOLS = ("shell", "read_file", "write_file", "edit_file", "tool_call", "ask_user", "sub_task", "finish")
"""Names that no other tool may have."""


class Step(Data):
    """One action of an answer, with the bot's comment on it. `again`: how often the very same call stands before it in
    a native answer, which tells their results apart.
    """

    action: Action
    comment: str | None = None
    again: int = 0


class Thoughts(Data):
    """What a planner thinks beside its action, for the user who authorises it. Any part may be empty."""

    text: str = ""
    reasoning: str = ""
    plan: tuple[str, ...] = ()
    criticism: str = ""
    speak: str = ""


class Answer(Data):
    """A model's answer as it was understood: at least one step. `thoughts` where the protocol asks for them.

    `spoken`: plain words without a call, read as a `finish` with these words. `summary`: where it said nothing beside
    its actions, what its provider tells of its thinking, for people alone.
    """

    thought: str | None = None
    summary: str | None = None
    spoken: bool = False
    thoughts: Thoughts | None = None
    steps: tuple[Step, ...] = Field(min_length=1)

    @property
    def shown(self) -> str:
        """What people see beside its actions."""
        return self.thought or self.summary or ""


class FileContent(Data):
    """Text of a file: lines `first` to `last` of `total`."""

    kind: Literal["file"] = "file"
    path: str
    text: str
    first: int
    last: int
    total: int


class FileWritten(Data):
    """A file was written; `size` in bytes. `same`: it held that before. Nothing is known of it where it was new.

    `replaced`: the lines at which an edit replaced a text.
    """

    kind: Literal["written"] = "written"
    path: str
    size: int
    lines: int | None = None
    same: bool = False
    size_before: int | None = None
    lines_before: int | None = None
    replaced: tuple[int, ...] = ()


class ToolResult(Data):
    """What a tool returned. `images` are shown to a model that sees, and on record in any case."""

    kind: Literal["tool"] = "tool"
    status: Literal["success", "data", "error"]
    text: str
    images: tuple[Image, ...] = Field(default=(), exclude_if=lambda images: not images)


class Answered(Data):
    """The user's answer to a question."""

    kind: Literal["answered"] = "answered"
    text: str


MARGIN = "  | "
"""Before each line of a file that a bot is shown beside its task."""


class Refused(Data):
    """The action was not done. `by` says who refused: `user`, or a hook by its name; `rule` which rule of it."""

    kind: Literal["refused"] = "refused"
    reason: str
    by: str = "user"
    rule: str = ""


class Failed(Data):
    """The action could not be done; `message` is for the bot."""

    kind: Literal["failed"] = "failed"
    message: str


class Unknown(Data):
    """The run was cut while the action was under way: nobody knows whether it ran."""

    kind: Literal["unknown"] = "unknown"


Observation = Annotated[
    CommandOutput | FileContent | FileWritten | ToolResult | Answered | Refused | Failed | Unknown,
    Field(discriminator="kind"),
]


def fields_of(observation: Observation) -> dict[str, Any]:
    """As JSON has it."""
    return asdict(observation) if isinstance(observation, CommandOutput) else observation.model_dump(mode="json")


class HookWords(Data):
    """What a hook said to the model behind an observation; `rule` names which of its rules spoke."""

    hook: str
    text: str
    rule: str = ""
