"""Where a coder's work stands: a fold over the record of its run, so that it goes on in another process.

What the model answered is not asked again. An attempt that was cut is run again from its answer: each has a workspace
of its own, so that is safe. Its actions are on record with what they are for as their comment.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from stockade.core.actions import Observation, Unknown
from stockade.core.errors import SandboxFailed
from stockade.core.events import (
    ActionFinished,
    AnswerUnderstood,
    AnswerUnreadable,
    MessageInjected,
    ModelAnswered,
    RunEvent,
    RunFinished,
)
from stockade.core.messages import ModelAnswer
from stockade.plugins.coder.answers import read
from stockade.plugins.coder.executor import Executor
from stockade.plugins.coder.work import Attempt, Verdict

REPAIR, REWRITE, FRESH_START = "repair", "rewrite", "fresh start"
"""What the next question does with what failed: shows it, tells what came of it, or leaves it out."""
SENT_BACK = "The program passes its checks, and is not accepted."
LAST_STEP = 100
"""Of the program's delivery: behind all steps of an attempt."""


@dataclass(slots=True)
class Progress:
    """`streak` holds the attempts since the last fresh start, one a round. Of the round that is under way: what the
    model `answered`; `sent_back`: what a hook said of a program that passed.
    """

    attempts: list[Attempt] = field(default_factory=list)
    streak: list[Attempt] = field(default_factory=list)
    rounds: int = 0
    starts: int = 0
    answered: ModelAnswered | None = None
    sent_back: str = ""

    @property
    def done(self) -> Attempt | None:
        """The attempt of the round that is under way."""
        last = self.attempts[-1] if self.attempts and self.answered else None
        return last if last and self.answered and last.number == self.answered.turn else None

    def close(self) -> Attempt:
        """The round is over, and its attempt in the streak. One that passed was sent back."""
        last = self.attempts[-1]
        if last.verdict.passed:
            back = last.verdict.model_copy(update={"passed": False, "words": self.sent_back or SENT_BACK})
            last = self.attempts[-1] = last.model_copy(update={"verdict": back})
        self.streak.append(last)
        self.rounds += 1
        self.answered, self.sent_back = None, ""
        return last

    def begin_anew(self) -> None:
        self.streak.clear()
        self.starts += 1


def progress_of(history: Sequence[RunEvent], executor: Executor) -> Progress:
    """What is on record of it. `executor` is asked what observations mean, and stays as it is."""
    fold = _Fold(replace(executor, _ready=set(), _begun=False))
    for event in history:
        fold.apply(event)
    return fold.progress


@dataclass(slots=True)
class _Fold:
    executor: Executor
    progress: Progress = field(default_factory=Progress)
    purposes: tuple[str, ...] = ()
    seen: dict[str, Observation] = field(default_factory=dict)

    def apply(self, event: RunEvent) -> None:
        now = self.progress
        match event:
            case ModelAnswered():
                now.answered = event
            case AnswerUnreadable(turn=turn, message=message):
                now.attempts.append(unreadable(turn, now.starts, self._answer().content, message))
            case AnswerUnderstood():
                self.seen = {}
                self.purposes = tuple(step.comment or "" for step in event.answer.steps)
            case ActionFinished(step=step, observation=observation) if step < len(self.purposes):
                self._observed(event.turn, self.purposes[step], observation)
            case MessageInjected(source="repair" | "rewrite") if now.done:
                now.close()
            case MessageInjected(source="fresh start"):
                if now.done:
                    now.close()
                now.begin_anew()
            case MessageInjected(text=text) if now.done and now.done.verdict.passed:
                now.sent_back = f"{now.sent_back}\n{text}".strip()
            case RunFinished(reason="check_failed") if now.done:
                now.close()
            case _:
                pass

    def _observed(self, turn: int, purpose: str, observation: Observation) -> None:
        if isinstance(observation, Unknown):  # it was cut there
            return
        self.seen[purpose] = observation
        draft = read(self._answer())
        try:
            over = not self.executor.goes_on(purpose, draft, observation)
        except SandboxFailed:  # the machine's own failure ends the run, not the attempt
            over = False
        if over or purpose == self.purposes[-1]:
            said = self._answer().content
            self.progress.attempts.append(self.executor.read(turn, self.progress.starts, draft, self.seen, said))

    def _answer(self) -> ModelAnswer:
        assert self.progress.answered is not None
        return self.progress.answered.answer


def unreadable(turn: int, start: int, answer: str, message: str) -> Attempt:
    """The attempt of an answer without a program."""
    return Attempt(number=turn, start=start, answer=answer, verdict=Verdict(passed=False, words=message))
