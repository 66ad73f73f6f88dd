"""A question that is answered with "Task is done.": the bot is asked once for the answer itself, and if it says the
same again, what it thought stands for it. Small models say "it is 3" in the thought and "done" in the answer.
"""

import re

from stockade.core.actions import CommandOutput, Finish
from stockade.core.events import Nudged, RunStarted
from stockade.loop.advice.asked import asks_for_words
from stockade.loop.advice.review import MAX_TASK_CHARS
from stockade.loop.advice.said import quoted
from stockade.loop.state import RunState

_WHY = "hollow"
_ENDS = {"done", "complete", "completed", "finish", "finished", "end", "ended", "exit"}
_EMPTY = (
    "the this your my all it i have has been is are was were now and there no more to with fully successfully task"
    " tasks job work question request shell session file files step steps read answered process processed"
    " output result command correct succeeded further needed action actions as so"
)
_HOLLOW = _ENDS.union(_EMPTY.split())
_MOST_WORDS = 40
_SHOWN_CHARS = 400


def is_hollow(answer: str) -> bool:
    """Whether it says no more than that something is done."""
    words = re.findall(r"[^\s.,!:;'\"`]+", answer.lower())
    return not words or (len(words) <= _MOST_WORDS and _HOLLOW.issuperset(words) and not _ENDS.isdisjoint(words))


def nudge(finish: Finish, started: RunStarted, state: RunState, now: float) -> Nudged | None:
    """Only where the task plainly asks for words: a file that is written needs none."""
    if not asks_for_words(started.task) or not is_hollow(finish.answer):
        return None
    bound = started.budget.max_turns
    if any(event.why == _WHY for event in state.nudges) or (bound and state.spent(now).turns >= bound):
        return None
    task = f"Task: {started.task[:MAX_TASK_CHARS]}"
    text = (
        f"That is no answer.\n{task}\n{_known(state)}Finish with the answer itself; if you do not know it, find it out."
    )
    return Nudged(at=now, turn=state.turns, why=_WHY, text=text)


def spoken(answer: str, started: RunStarted, state: RunState) -> str:
    """The answer for the person. Where a question was asked and it says nothing, it is the thought it came with, or
    else what was printed last.
    """
    if not started.advice or not asks_for_words(started.task) or not is_hollow(answer):
        return answer
    return state.thought if not is_hollow(state.thought) else f"{answer}\n{_known(state)}".strip()


def _known(state: RunState) -> str:
    """What the last command printed, where that is short: the answer, most of the time."""
    seen = state.done[-1].observation if state.done else None
    if not isinstance(seen, CommandOutput) or seen.exit_code:
        return ""
    printed = quoted(seen.output.decode(errors="replace").strip())
    return f"The last command printed:\n{printed}\n" if 0 < len(printed) <= _SHOWN_CHARS else ""
