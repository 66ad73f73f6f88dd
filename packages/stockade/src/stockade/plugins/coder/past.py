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
from stockade.plugins.coder.answers import Draft, read
from stockade.plugins.coder.executor import Executor
from stockade.plugins.coder.work import Attempt, Verdict, best

REPAIR, REWRITE, FRESH_START = "repair", "rewrite", "fresh start"
"""What the next question does with what failed: shows it, tells what came of it, or leaves it out."""
SENT_BACK = "The program passes its checks, and is not accepted."
LAST_STEP = 100
"""Of the program's delivery: behind all steps of an attempt."""


@dataclass(slots=True)
class Round:
    """Answers to one kind of question, in the order they came, and the attempts with them, by turn.

    `asked`: no more answers come, for the first was worked on. `sent_back`: what a hook said of one that passed.
    """

    answers: list[ModelAnswered] = field(default_factory=list)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    asked: bool = False
    sent_back: str = ""

    @property
    def done(self) -> list[Attempt]:
        return [self.attempts[answer.turn] for answer in self.answers if answer.turn in self.attempts]


@dataclass(slots=True)
class Progress:
    """`streak` holds the attempts since the last fresh start, one a round; `open` is the round that is under way."""

    attempts: list[Attempt] = field(default_factory=list)
    streak: list[Attempt] = field(default_factory=list)
    rounds: int = 0
    starts: int = 0
    open: Round = field(default_factory=Round)

    def close(self) -> Attempt:
        """The round is over; its best attempt goes on. With that it is in the streak. One that passed was sent back."""
        done, words, self.open = self.open.done, self.open.sent_back, Round()
        chosen = best(done) or done[0]
        if chosen.verdict.passed:
            back = chosen.verdict.model_copy(update={"passed": False, "words": words or SENT_BACK})
            place = self.attempts.index(chosen)
            chosen = self.attempts[place] = chosen.model_copy(update={"verdict": back})
        self.rounds += 1
        self.streak.append(chosen)
        return chosen

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
        now = self.progress.open
        match event:
            case ModelAnswered():
                now.answers.append(event)
            case AnswerUnreadable(turn=turn, message=message):
                now.asked = True
                self._add(unreadable(turn, self.progress.starts, self._answer(turn), message))
            case AnswerUnderstood():
                now.asked, self.seen = True, {}
                self.purposes = tuple(step.comment or "" for step in event.answer.steps)
            case ActionFinished(step=step, observation=observation) if step < len(self.purposes):
                self._observed(event.turn, self.purposes[step], observation)
            case MessageInjected(source="repair" | "rewrite") if now.done:
                self.progress.close()
            case MessageInjected(source="fresh start"):
                if now.done:
                    self.progress.close()
                self.progress.begin_anew()
            case MessageInjected(text=text) if any(one.verdict.passed for one in now.done):
                now.sent_back = f"{now.sent_back}\n{text}".strip()
            case RunFinished(reason="check_failed") if now.done:
                self.progress.close()
            case _:
                pass

    def _observed(self, turn: int, purpose: str, observation: Observation) -> None:
        if isinstance(observation, Unknown):  # it was cut there
            return
        self.seen[purpose] = observation
        draft = read(next(one.answer for one in self.progress.open.answers if one.turn == turn))
        if is_over(self.executor, purpose, draft, observation) or purpose == self.purposes[-1]:
            attempt = self.executor.read(turn, self.progress.starts, draft, self.seen)
            self._add(attempt.model_copy(update={"answer": self._answer(turn)}))

    def _answer(self, turn: int) -> str:
        return next(one.answer.content for one in self.progress.open.answers if one.turn == turn)

    def _add(self, attempt: Attempt) -> None:
        self.progress.open.attempts[attempt.number] = attempt
        self.progress.attempts.append(attempt)


def is_over(executor: Executor, purpose: str, draft: Draft, observation: Observation) -> bool:
    """Whether an attempt ended with this. The machine's own failure ends the run, not the attempt."""
    try:
        return not executor.goes_on(purpose, draft, observation)
    except SandboxFailed:
        return False


def unreadable(turn: int, start: int, answer: str, message: str) -> Attempt:
    """The attempt of an answer without a program."""
    return Attempt(number=turn, start=start, answer=answer, verdict=Verdict(passed=False, words=message))


__all__ = ["FRESH_START", "LAST_STEP", "REPAIR", "REWRITE", "Progress", "Round", "progress_of", "unreadable"]
