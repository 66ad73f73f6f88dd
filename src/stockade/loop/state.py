"""The fold: what a run is, computed from its events and from nothing else."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from stockade.core.actions import CommandOutput, Observation, Step
from stockade.core.budget import Spent
from stockade.core.changes import FolderLayer
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    AnswerUnreadable,
    CheckFinished,
    Checkpoint,
    HistoryFolded,
    ModelAnswered,
    Nudged,
    OwnRules,
    Paused,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
    SandboxStarted,
    SubRunFinished,
    ToolsReady,
    TurnsForgotten,
)
from stockade.core.messages import Usage
from stockade.core.tools import ToolSpec
from stockade.loop import outcomes


@dataclass(frozen=True)
class Done:
    """A step and what came of it. Without slots, so that `key` is computed once: every turn looks at the last ones."""

    turn: int
    step: Step
    observation: Observation

    @cached_property
    def key(self) -> tuple[str, str]:
        """See outcomes.py."""
        return outcomes.key(self.step.action, self.observation)


@dataclass(frozen=True, slots=True)
class Sign:
    """That a bot goes in circles. `count` is on one scale for all signs: 2 is worth a word, 6 is the end.

    `way_out` is for the model.
    """

    count: int
    what: str
    way_out: str


@dataclass(slots=True)
class RunState:
    """Where a run stands. Changed only by `apply`."""

    started: RunStarted | None = None
    layers: tuple[FolderLayer, ...] = ()
    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    last_at: float = 0.0
    done: list[Done] = field(default_factory=list)
    in_flight: ActionStarted | None = None
    thought: str = ""
    """Of the last answer."""
    unreadable: int = 0
    """Answers in a row that could not be read."""
    misread: int = 0
    """All of them: they cost tokens and time, no turn."""
    nudges: list[Nudged] = field(default_factory=list)
    failed_checks: int = 0
    finished: RunFinished | None = None
    checkpoint: Checkpoint | None = None
    cwd: str | None = None
    own: OwnRules | None = None
    forgotten: list[TurnsForgotten] = field(default_factory=list)
    forgot_at: int = 0
    """How many actions were `done` when turns were last forgotten."""
    anew_at: int = 0
    """The same, when the bot last began anew."""
    tools: tuple[ToolSpec, ...] = ()
    helpers_turns: int = 0
    signs: tuple[Sign, Sign, Sign] | None = None
    """What stuck.py sees in `done`, None until it has looked: it is asked several times a turn."""
    _begun_at: float | None = None
    _earlier_s: float = 0.0
    _earlier_turns: int = 0
    _earlier_usage: Usage = field(default_factory=Usage)

    def apply(self, event: RunEvent) -> None:
        """Take one event in, in order. The cases that every turn has come first: a long run is read back by this."""
        before, self.last_at = self.last_at, event.at
        match event:
            case ActionFinished() if self.in_flight is not None:
                self.done.append(Done(event.turn, self.in_flight.action, event.observation))
                self.signs = None
                self.in_flight = None
                if isinstance(event.observation, CommandOutput) and event.observation.cwd:
                    self.cwd = event.observation.cwd
            case ActionStarted():
                self.in_flight = event
            case ModelAnswered():
                self.turns = event.turn
                self.usage = self.usage + event.answer.usage
            case AnswerUnderstood():
                self.unreadable = 0
                self.thought = event.answer.thought or ""
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
            case HistoryFolded():
                self.usage = self.usage + event.usage
            case AnswerUnreadable():
                self.unreadable = event.attempt
                self.misread += 1
            case ToolsReady():
                self.tools = event.tools
            case SubRunFinished():
                self.helpers_turns += event.turns
                self.usage = self.usage + event.usage
            case Nudged():
                self.nudges.append(event)
            case OwnRules():
                self.own = event
            case TurnsForgotten():
                self.forgotten.append(event)
                self.forgot_at = len(self.done)
                if event.anew:
                    self.anew_at, self.signs = len(self.done), None
            case CheckFinished():
                self.failed_checks += not event.passed
            case RunFinished():
                self.finished = event
            case _:
                pass

    def _go_on(self, event: RunResumed, before: float) -> None:
        """A new task has a budget of its own; what was going wrong before is not held against what comes."""
        ended = self.finished.at if self.finished else before
        if self._begun_at is not None:
            self._earlier_s += max(0.0, ended - self._begun_at)
        self._begun_at, self.finished, self.unreadable = event.at, None, 0
        self.done.clear()
        self.signs = None
        self.forgotten.clear()
        self.forgot_at = self.anew_at = 0
        if event.task is not None:
            self._earlier_s, self._earlier_usage = 0.0, self.usage
            self._earlier_turns = self._all_turns()
            self.failed_checks = 0
            self.nudges.clear()

    @property
    def since_anew(self) -> list[Done]:
        """What was done in the attempt that is under way."""
        return self.done[self.anew_at :] if self.anew_at else self.done

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
        for nudge in self.nudges:
            count = 0 if nudge.why == "resumed" else count + (nudge.why == "budget")
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
