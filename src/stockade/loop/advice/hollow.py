"""A question that is answered with "Task is done.": the bot is asked once for the answer itself."""

import re

from stockade.core.actions import Finish
from stockade.core.events import Nudged, RunStarted
from stockade.loop.advice.review import MAX_TASK_CHARS
from stockade.loop.state import RunState

_WHY = "hollow"
_ASKS = re.compile(
    r"\?\s*$|^(?:what|which|who|how|why|when|where)\b"
    r"|\b(?:answer with|finish with|tell me|tell us|say (?:what|which|who|how|why|when|where|whether|if))\b",
    re.IGNORECASE,
)
_ENDS = {"done", "complete", "completed", "finish", "finished", "end", "ended", "exit"}
_EMPTY = (
    "the this your my all it i have has been is are was were now and there no more to with fully successfully task"
    " tasks job work question request shell session file files step steps read answered process processed"
)
_HOLLOW = _ENDS.union(_EMPTY.split())
_MOST_WORDS = 40


def is_hollow(answer: str) -> bool:
    """Whether it says no more than that something is done."""
    words = re.findall(r"[^\s.,!:;'\"`]+", answer.lower())
    return not words or (len(words) <= _MOST_WORDS and _HOLLOW.issuperset(words) and not _ENDS.isdisjoint(words))


def nudge(finish: Finish, started: RunStarted, state: RunState, now: float) -> Nudged | None:
    """Only where the task plainly asks for words: a file that is written needs none."""
    if not _ASKS.search(started.task) or not is_hollow(finish.answer):
        return None
    bound = started.budget.max_turns
    if any(event.why == _WHY for event in state.nudges) or (bound and state.spent(now).turns >= bound):
        return None
    task = f"Task: {started.task[:MAX_TASK_CHARS]}"
    text = f"That is no answer.\n{task}\nFinish with the answer itself; if you do not know it yet, find it out."
    return Nudged(at=now, turn=state.turns, why=_WHY, text=text)
