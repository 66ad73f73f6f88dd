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
from stockade.plugins.coder.work import Attempt, Verdict, best

REPAIR, REWRITE, FRESH_START = "repair", "rewrite", "fresh start"
"""What the next question does with what failed: shows it, tells what came of it, or leaves it out."""
SENT_BACK = "The program passes its checks, and is not accepted."
LAST_STEP = 100
"""Of the program's delivery: behind all steps of an attempt."""


@dataclass(slots=True)
class Progress:
    """`streak` holds the attempts since the last fresh start, one a round. Of the round that is under way: its
    `answers` in the order they came; `asked`: no more come, for the first was worked on; `sent_back`: what a hook said
    of a program that passed.
    """

    attempts: list[Attempt] = field(default_factory=list)
    streak: list[Attempt] = field(default_factory=list)
    rounds: int = 0
    starts: int = 0
    answers: list[ModelAnswered] = field(default_factory=list)
    asked: bool = False
    sent_back: str = ""

    @property
    def done(self) -> list[Attempt]:
        """The attempts of the round that is under way."""
        turns = {answer.turn for answer in self.answers}
        return [one for one in self.attempts if one.number in turns]

    def close(self) -> Attempt:
        """The round is over; its best attempt goes on. With that it is in the streak. One that passed was sent back."""
        done = self.done
        chosen = best(done) or done[0]
        if chosen.verdict.passed:
            back = chosen.verdict.model_copy(update={"passed": False, "words": self.sent_back or SENT_BACK})
            place = self.attempts.index(chosen)
            chosen = self.attempts[place] = chosen.model_copy(update={"verdict": back})
        self.streak.append(chosen)
        self.rounds += 1
        self.answers, self.asked, self.sent_back = [], False, ""
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
        now = self.progress
        match event:
            case ModelAnswered():
                now.answers.append(event)
            case AnswerUnreadable(turn=turn, message=message):
                now.asked = True
                now.attempts.append(unreadable(turn, now.starts, self._answer(turn).content, message))
            case AnswerUnderstood():
                now.asked, self.seen = True, {}
                self.purposes = tuple(step.comment or "" for step in event.answer.steps)
            case ActionFinished(step=step, observation=observation) if step < len(self.purposes):
                self._observed(event.turn, self.purposes[step], observation)
            case MessageInjected(source="repair" | "rewrite") if now.done:
                now.close()
            case MessageInjected(source="fresh start"):
                if now.done:
                    now.close()
                now.begin_anew()
            case MessageInjected(text=text) if any(one.verdict.passed for one in now.done):
                now.sent_back = f"{now.sent_back}\n{text}".strip()
            case RunFinished(reason="check_failed") if now.done:
                now.close()
            case _:
                pass

    def _observed(self, turn: int, purpose: str, observation: Observation) -> None:
        if isinstance(observation, Unknown):  # it was cut there
            return
        self.seen[purpose] = observation
        draft = read(self._answer(turn))
        try:
            over = not self.executor.goes_on(purpose, draft, observation)
        except SandboxFailed:  # the machine's own failure ends the run, not the attempt
            over = False
        if over or purpose == self.purposes[-1]:
            said = self._answer(turn).content
            self.progress.attempts.append(self.executor.read(turn, self.progress.starts, draft, self.seen, said))

    def _answer(self, turn: int) -> ModelAnswer:
        return next(one.answer for one in self.progress.answers if one.turn == turn)


def unreadable(turn: int, start: int, answer: str, message: str) -> Attempt:
    """The attempt of an answer without a program."""
    return Attempt(number=turn, start=start, answer=answer, verdict=Verdict(passed=False, words=message))
