"""The tagged union of run events. State is a fold over them; there is no other record of a run.

An event is on disk before its effect is used. Times are UNIX seconds. `schema_version` goes up when a reader of another
one would misread an event: each reads its own and refuses the others by name.
"""

import re
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, TypeAdapter

from stockade.core.actions import Answer, HookWords, Observation, Shell, Step
from stockade.core.budget import Budget
from stockade.core.data import Data
from stockade.core.messages import Image, ModelAnswer, ModelInfo, Sampling, Usage
from stockade.core.settings import listed
from stockade.core.tools import ToolSpec
from stockade_sandbox.policy import Network, Policy
from stockade_sandbox.results import Change, FolderLayer

BOTS_OWN = "the bot's own"
"""Among `sources` of a start: the bot itself wants its answers so."""
SCHEMA_VERSION = 2
OLDEST_SCHEMA_VERSION = 2
"""That of the first release: from it on every record opens. Who raises SCHEMA_VERSION has the classes that changed read
the older form too, and adds a record to tests/data/records.
"""


class Autonomy(Data):
    """Of a bot that lives until it is stopped: what it may set itself by files in its folder, and a scripted intro."""

    goal: bool = True
    prompt: bool = True
    sampling: bool = True
    intro: bool = True


Status = Literal["done", "stopped", "failed"]
StopReason = Literal["finish", "gave_up", "check_failed", "schema", "turns", "time", "tokens", "cost", "loop",
                     "unreadable", "user", "usage", "hook", "tools", "sandbox", "model", "declined", "store",
                     "bug"]  # fmt: skip


Checks = Annotated[tuple[str, ...], BeforeValidator(listed)]
"""Commands that decide whether a run is verified, in order. One may stand alone."""


class Event(Data):
    """Common to all: when it happened."""

    at: float

    @cached_property
    def line(self) -> str:
        """It as one line of JSON, made once: the record, its checksum and whoever listens all want it."""
        return self.model_dump_json()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("line", None)
        return copied


class RunStarted(Event):
    """The first event of a run: all that is needed to run it again."""

    type: Literal["run_started"] = "run_started"
    schema_version: int = SCHEMA_VERSION
    version: str
    run_id: str
    task: str
    bot: str
    model: str
    answers: str
    sandbox: str
    policy: Policy
    budget: Budget
    sampling: Sampling = Sampling()
    system_prompt: str
    images: tuple[Image, ...] = ()
    """What the model is shown beside the task."""
    check: Checks = ()
    protect: tuple[str, ...] = ()
    """Paths of the working folder that are as they were given while a check runs."""
    output_schema: dict[str, Any] | None = None
    """The JSON schema that the answer has to fit."""
    options: dict[str, Any] = Field(default_factory=dict)
    tools: tuple[str, ...] = ()
    """Beside the bot's built-in actions: names and files."""
    actions: tuple[str, ...] | None = None
    """The built-in ones, None for those of the bot."""
    approve: Literal["never", "ask", "rules"] = "never"
    rules: dict[str, Any] | None = None
    """What stands in the user's file of rules."""
    authorised: bool = False
    """The user authorises each action."""
    hooks: tuple[str, ...] = ()
    """Names of the hooks that are on, in the order in which they are asked (loop/hooks.py)."""
    driver: str = ""
    """The registered bot whose code drives the run, or `python:` and a class of a program; empty: the plain loop."""
    boss: str | None = None
    """The run that this one was started by, for a part of its task."""
    autonomy: Autonomy | None = None
    model_profile: str = ""
    """Which row of bots/model_profiles.py its model has; empty where a bot has none of it."""
    sources: dict[str, str] = Field(default_factory=dict)
    """Who said so, of `model_profile` and `answers`."""
    used: Usage = Usage()
    """What was used before, for what the run begins with: the profile of a Planner."""
    parent: str | None = None
    parent_turn: int | None = None
    """A branch has what its parent did up to the end of this turn as its own first events."""


class RunResumed(Event):
    """The run goes on in another process, or after its end. `task` is a new one, with a `budget` of its own from here.

    Otherwise `budget` is the bounds of the whole run from here on. What was used between this event and the one before
    it is nobody's time. `lost`: folders of which what was written before is gone, and it goes on without. `hooks`:
    those that are on from here. `live`: in the sandbox that is up, with its shell. `images` come with the task.
    `network`: what can be reached from here; None in a record that does not say: what could be. `output_schema`: what
    the answer has to fit from here, None what it had to; an empty one is words again.
    """

    type: Literal["run_resumed"] = "run_resumed"
    version: str
    task: str | None = None
    images: tuple[Image, ...] = ()
    model: str
    sandbox: str
    budget: Budget
    check: Checks = ()
    lost: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    network: Network | None = None
    output_schema: dict[str, Any] | None = None
    live: bool = False


class SandboxStarted(Event):
    """The sandbox is up. `layers` say where written files are; `guarantees` what it holds, in words."""

    type: Literal["sandbox_started"] = "sandbox_started"
    backend: str
    layers: tuple[FolderLayer, ...] = ()
    guarantees: tuple[str, ...] = ()


class ToolsReady(Event):
    """The tools that the bot may call beside its built-in actions, as they were described to it."""

    type: Literal["tools_ready"] = "tools_ready"
    tools: tuple[ToolSpec, ...]


class ModelStarted(Event):
    """The model can be asked; what is known of it, its window included. `task_left_out`: characters of the task that do
    not fit in that.
    """

    type: Literal["model_started"] = "model_started"
    info: ModelInfo
    task_left_out: int = 0


class ModelAnswered(Event):
    """The model's words, unread and whole. `sampling` where it was asked with another than the run began with."""

    type: Literal["model_answered"] = "model_answered"
    turn: int
    answer: ModelAnswer
    sampling: Sampling | None = None


class AnswerUnderstood(Event):
    """The actions read from the answer. Committed before the first of them runs."""

    type: Literal["answer_understood"] = "answer_understood"
    turn: int
    answer: Answer


class AnswerUnreadable(Event):
    """No action could be read. `message` says why; `attempt` counts from 1."""

    type: Literal["answer_unreadable"] = "answer_unreadable"
    turn: int
    attempt: int
    message: str


class ActionStarted(Event):
    """Committed before the action runs. Without its ActionFinished, it was in flight when the run was cut."""

    type: Literal["action_started"] = "action_started"
    turn: int
    step: int
    action: Step


class ActionFinished(Event):
    """What came of it. `words` are what hooks said to the model behind it."""

    type: Literal["action_finished"] = "action_finished"
    turn: int
    step: int
    observation: Observation
    words: tuple[HookWords, ...] = ()


class Checkpoint(Event):
    """What the run can go on from: the state of its files and its shell at this place of the record.

    `files` names a snapshot for each layer, None where nothing was written yet or nothing is kept (an `rw` folder).
    `exports` is bash that sets the exported variables, None when they are not known to differ from the start's.
    """

    type: Literal["checkpoint"] = "checkpoint"
    turn: int
    files: tuple[str | None, ...] = ()
    exports: str | None = None


class Paused(Event):
    """The user held the run for `duration_s`, which is not counted as its time. `at` is the end of that.

    `said` is what they typed where they were asked to authorise the action before; None where they held it themselves.
    `slept`: nobody did; the machine slept, or its clock was set, back where `duration_s` is negative.
    """

    type: Literal["paused"] = "paused"
    duration_s: float
    said: str | None = None
    slept: bool = False


class MessageInjected(Event):
    """Something was said to the bot that is neither task nor observation.

    `source`: a hook's name, `user`, `resume`, or the Coder's `repair` and `fresh start`; `rule`: which of its rules.
    """

    type: Literal["message_injected"] = "message_injected"
    turn: int
    source: str
    text: str
    rule: str = ""


class HookRan(Event):
    """A hook ran a program in the sandbox."""

    type: Literal["hook_ran"] = "hook_ran"
    turn: int
    hook: str
    argv: tuple[str, ...]
    exit_code: int


class HistoryCompacted(Event):
    """Turns before `before_turn` are now shown to the model in short. `window` in tokens, where only now learned.

    `summary` is what a fast model made of them, with what that used; empty where there is none. `task_left_out` as of
    ModelStarted.
    """

    type: Literal["history_compacted"] = "history_compacted"
    turn: int
    before_turn: int
    window: int | None = None
    task_left_out: int = 0
    summary: str = ""
    usage: Usage = Usage()


class SelfConfigChanged(Event):
    """What an autonomous bot has set itself, in force from `turn` on; on record when it is not what was before.

    `goal` None: the task holds. `prompt`: its own part. `refused`: what was not taken and why, in words for the bot.
    """

    type: Literal["self_config_changed"] = "self_config_changed"
    turn: int
    goal: str | None = None
    prompt: str | None = None
    sampling: Sampling = Sampling()
    refused: tuple[str, ...] = ()


class NetworkRequested(Event):
    """The sandbox asked for something outside, and that is over. `at` is its end.

    `host` is what was asked for, as printable ASCII; empty when even that could not be read. `status` is HTTP's, 0 when
    there was none. `reason` says why it was refused, or how an allowed one failed. Bytes are those exchanged with the
    server. `count` is above 1 for a flood of alike ones, with their bytes and durations added up. `credential` names
    those whose values the proxy put in, with commas between them.
    """

    type: Literal["network_requested"] = "network_requested"
    host: str
    port: int
    method: str
    verdict: Literal["allowed", "refused"]
    reason: str = ""
    status: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    duration_s: float = 0.0
    count: int = 1
    allow: str = ""
    credential: str = ""


class ProgramsStarted(Event):
    """Programs that were started in the sandbox, by the bot or by what it started. Those with the same file and words
    are one of `programs`, with how many there were; `more` were too many to be told apart.
    """

    type: Literal["programs_started"] = "programs_started"
    programs: tuple[tuple[str, tuple[str, ...], int], ...]
    more: int = 0


class SubRunStarted(Event):
    """A sub-bot begins with a part of the task; what it does is on record as the run `run_id`."""

    type: Literal["sub_run_started"] = "sub_run_started"
    run_id: str
    task: str
    number: int | None = None
    """Of the candidates for the whole task (bestof/); None: a helper has a part of it."""


class SubRunFinished(Event):
    """The sub-bot's end. What it used counts as its boss's from here on."""

    type: Literal["sub_run_finished"] = "sub_run_finished"
    run_id: str
    status: Status
    turns: int = 0
    usage: Usage = Usage()
    number: int | None = None
    verified: bool | None = None
    """Both of a candidate."""


class CandidateChosen(Event):
    """What the candidate `run_id` did is what the run did: its events follow, and tell its `usage` and `turns`, which
    are no more those of a sub-bot.
    """

    type: Literal["candidate_chosen"] = "candidate_chosen"
    run_id: str
    usage: Usage = Usage()
    turns: int = 0


class CheckFinished(Event):
    """A command of `--check` was run: `apart`, in a fresh sandbox on what the bot wrote, or else beside its shell."""

    type: Literal["check_finished"] = "check_finished"
    turn: int
    command: str
    passed: bool
    observation: Observation
    apart: bool = False


class RunFinished(Event):
    """The last event of a run that came to an end. `verified` is None when no check was asked for.
    `changed_tests`, of a run that is verified: what the bot changed of the files that test runners obey.

    `seals`: of each layer, in order, what it held then (FolderLayer.seal).
    """

    type: Literal["run_finished"] = "run_finished"
    status: Status
    reason: StopReason
    detail: str = ""
    answer: str | None = None
    verified: bool | None = None
    changed_tests: tuple[str, ...] = ()
    turns: int = 0
    usage: Usage = Usage()
    changes: tuple[Change, ...] = ()
    seals: tuple[str | None, ...] = ()


class ChangesApplied(Event):
    """The user kept work: `paths` go to the host folder. On record once it is decided: a kill does not stop it."""

    type: Literal["changes_applied"] = "changes_applied"
    paths: tuple[str, ...]


class ChangesUndone(Event):
    """The user took back what was applied: `paths` are again what they were before. On record once it is decided."""

    type: Literal["changes_undone"] = "changes_undone"
    paths: tuple[str, ...]


class ChangesDiscarded(Event):
    """The user threw the layer away; with `paths` only these changes, as paths are shown: the layer stays as it is, and
    the run goes on without them.
    """

    type: Literal["changes_discarded"] = "changes_discarded"
    paths: tuple[str, ...] = ()


RunEvent = Annotated[
    RunStarted | RunResumed | SandboxStarted | ToolsReady | ModelStarted | ModelAnswered | AnswerUnderstood
    | AnswerUnreadable | ActionStarted | ActionFinished | Checkpoint | Paused | MessageInjected | HookRan
    | HistoryCompacted | SelfConfigChanged | NetworkRequested | ProgramsStarted | SubRunStarted | SubRunFinished
    | CandidateChosen | CheckFinished | RunFinished | ChangesApplied | ChangesUndone | ChangesDiscarded,
    Field(discriminator="type"),
]  # fmt: skip


def said_of(event: RunEvent) -> tuple[str, str] | None:
    """What of an event is searched for: `task`, `answer` or `command`, and its words."""
    match event:
        case RunStarted(task=text) | RunResumed(task=str(text)) if text:
            return "task", text
        case RunFinished(answer=str(text)) if text:
            return "answer", text
        case ActionStarted(action=Step(action=Shell(command=text))) if text:
            return "command", text
        case _:
            return None


_BEGINNING = re.compile(r'\{"at":[-+.0-9eE]+,"type":"(\w+)"')


@cache
def _kinds() -> dict[str, type[RunEvent]]:
    """By the word that an event begins with."""
    return {kind.model_fields["type"].default: kind for kind in get_args(get_args(RunEvent)[0])}


@cache
def _adapter() -> TypeAdapter[RunEvent]:
    return TypeAdapter(RunEvent)


def to_json(event: RunEvent, *, ascii_only: bool = False) -> str:
    """One line of JSON. `ascii_only` escapes all else, controls of a terminal included."""
    if not ascii_only:
        return event.line
    text = event.line if event.line.isascii() else event.model_dump_json(ensure_ascii=True)
    return text.replace("\x7f", "\\u007f")


def from_json(text: str | bytes) -> RunEvent:
    """The event of one line. ValueError when it is none, or of a newer schema."""
    text = text.decode() if isinstance(text, bytes) else text
    match = _BEGINNING.match(text)
    kind = _kinds().get(match[1]) if match else None
    # Our own lines say first what they are: nothing need be built for those kinds that a record does not have.
    return kind.model_validate_json(text) if kind else _adapter().validate_json(text)
