"""Whether a bot says itself, as it ends, that its task is not done."""

import re

from stockade.core.actions import Finish
from stockade.core.events import Nudged, RunStarted
from stockade.loop.advice.review import MAX_TASK_CHARS
from stockade.loop.state import RunState

DETAIL = "the bot says that the task is not done"
_WHY = "gave_up"
_LEAST_TURNS = 2
_READ = 1000
"""Characters of an answer: what became of the task is said at its beginning."""
_DONE = r"(?:done|complete|completed|finished|solved|fulfilled|accomplished|possible)\b"
_NOT = re.compile(
    r"\b(?:task|job|work)\b[^.!?\n]{0,20}?\b(?:(?:is|was|has|could|can|will) ?(?:not|n['’]t)|cannot)"
    rf"(?:\s+(?:yet|still|be|been|fully|completely))*\s+{_DONE}"
    r"|\b(?:task|job|work) (?:is|remains) (?:still )?(?:un(?:done|finished|solved)|incomplete)\b"
    r"|\b(?:can(?:not|['’]t| not)|could(?: not|n['’]t)|(?:am|was|were) (?:not able|unable) to|unable to|failed to)\s+"
    r"(?:do|complete|finish|solve|fulfill?|accomplish|carry out)\s+"
    r"(?:the|this|that|your) (?:\w+ )?(?:task|job|work|request)\b",
    re.IGNORECASE,
)


def says_not_done(answer: str) -> bool:
    """Only in plain words about the task itself: "no such line could be found" may be all that was asked."""
    return _NOT.search(answer[:_READ]) is not None


def nudge(finish: Finish, started: RunStarted, state: RunState, now: float) -> Nudged | None:
    """Once, and only where turns are left for it."""
    bound = started.budget.max_turns
    if not says_not_done(finish.answer) or any(event.why == _WHY for event in state.nudges):
        return None
    if bound and bound - state.spent(now).turns < _LEAST_TURNS:
        return None
    task = f"Task: {started.task[:MAX_TASK_CHARS]}"
    text = f"You say yourself that it is not done.\n{task}\nDo it now. Only if it cannot be done, finish and say why."
    return Nudged(at=now, turn=state.turns, why=_WHY, text=text)
