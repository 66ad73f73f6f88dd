"""The fold: what a run is, computed from its events and from nothing else."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Literal

from stockade.core.actions import Observation, Refused, Step, fields_of
from stockade.core.budget import Spent
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    AnswerUnreadable,
    CandidateChosen,
    CheckFinished,
    Checkpoint,
    HistoryCompacted,
    MessageInjected,
    ModelAnswered,
    ModelStarted,
    Paused,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
    SandboxStarted,
    SelfConfigChanged,
    SubRunFinished,
    ToolsReady,
)
from stockade.core.messages import ModelInfo, Usage
from stockade.core.tools import ToolSpec
from stockade.loop.verdict import is_equal
from stockade_sandbox.results import CommandOutput, FolderLayer


@dataclass(frozen=True)
class CompletedStep:
    """A step and what came of it. Without slots, so that `key` is computed once: every turn looks at the last ones."""

    turn: int
    step: Step
    observation: Observation

    @cached_property
    def key(self) -> str:
        """The action and every byte of its result, but for how long it took: equal when both were the same again."""
        observed, digest = self.observation, sha256(self.step.action.model_dump_json().encode())
        left_out = {"duration_s", "same", "chunks", "lines_before", "size_before"}
        reported = {name: value for name, value in fields_of(observed).items() if name not in left_out}
        digest.update(json.dumps(reported, sort_keys=True).encode())
        if isinstance(observed, CommandOutput):
            for stream in (observed.stdout, b"\0", observed.stderr):
                digest.update(stream)
        return digest.hexdigest()


HookAct = Literal["message", "words", "refusal"]


@dataclass(slots=True)
class RunState:
    """Where a run stands. Changed only by `apply`."""

    started: RunStarted | None = None
    layers: tuple[FolderLayer, ...] = ()
    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    last_at: float = 0.0
    model: ModelInfo | None = None
    done: list[CompletedStep] = field(default_factory=list)
    in_flight: ActionStarted | None = None
    acted: bool = False
    """Whether any action was ever begun; `done` is anew when the run goes on."""
    unreadable: int = 0
    """Answers in a row that could not be read."""
    misread: int = 0
    """All of them: they cost tokens and time, no turn."""
    injected: list[MessageInjected] = field(default_factory=list)
    hook_acts: Counter[tuple[str, HookAct]] = field(default_factory=Counter)
    """How often each hook has said something to the bot, added words to an observation, or refused, in this task."""
    equal_failures: int = 0
    """Of checks in a row, up to now, that said the same or judged the same files."""
    checked: dict[str, bool] = field(default_factory=dict)
    """What each check said, since the last action."""
    finished: RunFinished | None = None
    checkpoint: Checkpoint | None = None
    cwd: str | None = None
    own: SelfConfigChanged | None = None
    tools: tuple[ToolSpec, ...] = ()
    helpers_turns: int = 0
    _failed: CheckFinished | None = None
    _failed_on: tuple[str | None, ...] = ()
    _begun_at: float | None = None
    _earlier_s: float = 0.0
    _earlier_turns: int = 0
    _earlier_usage: Usage = field(default_factory=Usage)

    def apply(self, event: RunEvent) -> None:
        """Take one event in, in order. The cases that every turn has come first: a long run is read back by this."""
        before, self.last_at = self.last_at, event.at
        match event:
            case ActionFinished() if self.in_flight is not None:
                self.done.append(CompletedStep(event.turn, self.in_flight.action, event.observation))
                self.in_flight = None
                self.hook_acts.update((message.hook, "words") for message in event.words)
                if isinstance(event.observation, Refused):
                    self.hook_acts[event.observation.by, "refusal"] += 1
                if isinstance(event.observation, CommandOutput) and event.observation.cwd:
                    self.cwd = event.observation.cwd
            case ActionStarted():
                self.in_flight, self.acted = event, True
                self.checked.clear()
            case ModelAnswered():
                self.turns = event.turn
                self.usage = self.usage + event.answer.usage
            case AnswerUnderstood():
                self.unreadable = 0
            case Checkpoint():
                self.checkpoint = event
            case RunStarted():
                self.started, self._begun_at = event, event.at
                self.usage = self.usage + event.used
            case RunResumed():
                self._go_on(event, before)
            case Paused():
                self._earlier_s -= event.duration_s
            case SandboxStarted():
                if event.layers != self.layers and self.checkpoint is not None:  # snapshots are those of a layer
                    self.checkpoint = self.checkpoint.model_copy(update={"files": ()})
                self.layers = event.layers
            case HistoryCompacted():
                self.usage = self.usage + event.usage
            case AnswerUnreadable():
                self.unreadable = event.attempt
                self.misread += 1
            case ToolsReady():
                self.tools = event.tools
            case SubRunFinished():
                self.helpers_turns += event.turns
                self.usage = self.usage + event.usage
            case CandidateChosen():
                self.helpers_turns -= event.turns
                self.usage = self.usage - event.usage
            case MessageInjected():
                self.injected.append(event)
                self.hook_acts[event.source, "message"] += 1
            case ModelStarted():
                self.model = event.info
            case SelfConfigChanged():
                self.own = event
            case CheckFinished():
                self._judged(event)
            case RunFinished():
                self.finished = event
            case _:
                pass

    def _judged(self, event: CheckFinished) -> None:
        files = self.checkpoint.files if self.checkpoint else ()
        last, self.checked[event.command] = self._failed, event.passed
        if not event.passed:
            same = last is not None and (
                is_equal(last, event) or (last.command == event.command and files == self._failed_on)
            )
            self.equal_failures = self.equal_failures + 1 if same else 1
            self._failed, self._failed_on = event, files

    def _go_on(self, event: RunResumed, before: float) -> None:
        """A new task has a budget of its own; what was going wrong before is not held against what comes."""
        ended = self.finished.at if self.finished else before
        if self._begun_at is not None:
            self._earlier_s += max(0.0, ended - self._begun_at)
        self._begun_at, self.finished, self.unreadable = event.at, None, 0
        self.done.clear()
        self.checked.clear()
        if event.task is not None:
            self._earlier_s, self._earlier_usage = 0.0, self.usage
            self._earlier_turns = self._all_turns()
            self._failed, self.equal_failures = None, 0
            self.injected.clear()
            self.hook_acts.clear()

    @property
    def readable(self) -> int:
        """Turns that count: those whose answer could be read."""
        return self.turns - self.misread

    def _all_turns(self) -> int:
        return self.readable + self.helpers_turns

    @property
    def warnings(self) -> int:
        """How often the bot was told that its budget comes to an end, which it has anew when the run goes on."""
        count = 0
        for message in self.injected:
            count = 0 if message.source == "resume" else count + (message.source == "budget")
        return count

    def spent(self, now: float) -> Spent:
        """What was used of the budget by `now` (UNIX seconds), for the task that is being done."""
        begun = now if self._begun_at is None else self._begun_at
        return Spent(
            turns=self._all_turns() - self._earlier_turns,
            elapsed_s=max(0.0, self._earlier_s + now - begun),
            usage=self.usage - self._earlier_usage,
        )


def fold(events: Iterable[RunEvent]) -> RunState:
    """The state after `events`. An action without its end becomes Unknown only when the run is resumed."""
    state = RunState()
    for event in events:
        state.apply(event)
    return state
