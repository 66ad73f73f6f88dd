"""The fold: what a run is, computed from its events and from nothing else."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from stockade.core.actions import Observation, Step
from stockade.core.budget import Spent
from stockade.core.changes import FolderLayer
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    AnswerUnreadable,
    CheckFinished,
    ModelAnswered,
    Nudged,
    RunEvent,
    RunFinished,
    RunStarted,
    SandboxStarted,
)
from stockade.core.messages import Usage


@dataclass(frozen=True)
class Done:
    """A step and what came of it. Without slots, so that `key` is computed once: every turn looks at the last ones."""

    turn: int
    step: Step
    observation: Observation

    @cached_property
    def key(self) -> tuple[str, str]:
        """The action and its outcome but for how long it took: equal when it was done again in vain."""
        return self.step.action.model_dump_json(), self.observation.model_dump_json(exclude={"duration_s"})


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
    unreadable: int = 0
    nudges: list[Nudged] = field(default_factory=list)
    failed_checks: int = 0
    finished: RunFinished | None = None

    def apply(self, event: RunEvent) -> None:
        """Take one event in, in order."""
        self.last_at = event.at
        match event:
            case RunStarted():
                self.started = event
            case SandboxStarted():
                self.layers = event.layers
            case ModelAnswered():
                self.turns = event.turn
                self.usage = self.usage + event.answer.usage
            case AnswerUnderstood():
                self.unreadable = 0
            case AnswerUnreadable():
                self.unreadable = event.attempt
            case ActionStarted():
                self.in_flight = event
            case ActionFinished() if self.in_flight is not None:
                self.done.append(Done(event.turn, self.in_flight.action, event.observation))
                self.in_flight = None
            case Nudged():
                self.nudges.append(event)
            case CheckFinished():
                self.failed_checks += not event.passed
            case RunFinished():
                self.finished = event
            case _:
                pass

    def spent(self, now: float) -> Spent:
        """What was used of the budget by `now` (UNIX seconds)."""
        begun = self.started.at if self.started else now
        return Spent(turns=self.turns, elapsed_s=max(0.0, now - begun), usage=self.usage)


def fold(events: Iterable[RunEvent]) -> RunState:
    """The state after `events`. An action without its end becomes Unknown only when the run is resumed."""
    state = RunState()
    for event in events:
        state.apply(event)
    return state
