"""How much an autonomous bot repeats itself, and what it repeats: pure functions over what it did.

An action is repeated when it and its outcome were seen among the `WITHIN` actions before it, but for digits and blanks
(a time of day or a counter makes no difference), when it only gives back what was just printed, or when it writes the
file that was written just before once more, nearly as it was. `stretch` is how many such actions stand at the end
without one that is new; `pressure` how many are among the last ones, since small models mix a loop with a word that is
new. bench/endless.py judges whole runs by the same rule.
"""

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

from stockade.core.actions import Action, EditFile, ReadFile, Refused, Shell, WriteFile
from stockade.loop.state import Done
from stockade.loop.stuck import says_nothing_new

WITHIN = 8
LATELY = 12
"""Actions whose repetitions make the pressure."""
ENDLESS = 20
"""A stretch this long is an endless loop."""
_LOOKED_AT = 96
_COMPARED_CHARS, _NEARLY = 400, 0.85
_NUMBER = re.compile(r"\d+")
_SHOWN_CHARS = 100


def plain(text: str) -> str:
    """Without digits and without differences of white space."""
    return " ".join(_NUMBER.sub("#", text).split())


def action_key(action: Action) -> str:
    return plain(action.model_dump_json())


def keys(done: Sequence[Done]) -> list[tuple[str, str]]:
    """Of each action what it was and what came of it."""
    return [
        (action_key(one.step.action), plain(one.observation.model_dump_json(exclude={"duration_s", "same"})))
        for one in done
    ]


def repeated(done: Sequence[Done]) -> list[bool]:
    """For each action, whether it is a repetition."""
    found = keys(done)
    marks: list[bool] = []
    for at, (action, _) in enumerate(found):
        before = found[max(0, at - WITHIN) : at]
        refused = isinstance(done[at].observation, Refused) and any(action == one for one, _ in before)
        marks.append(found[at] in before or refused or says_nothing_new(done, at) or _writes_on(done, at))
    return marks


def _writes_on(done: Sequence[Done], at: int) -> bool:
    """The same file twice in a row, with nothing looked at in between, and hardly changed."""
    now, before = done[at].step.action, done[at - 1].step.action if at else None
    if not isinstance(now, WriteFile) or not isinstance(before, WriteFile) or now.path != before.path:
        return False
    texts = (now.content[:_COMPARED_CHARS], before.content[:_COMPARED_CHARS])
    return SequenceMatcher(None, *texts, autojunk=False).quick_ratio() > _NEARLY


def stretch(done: Sequence[Done]) -> int:
    """How many repetitions stand at the end, one after the other."""
    count = 0
    for mark in reversed(repeated(done[-_LOOKED_AT:])):
        if not mark:
            break
        count += 1
    return count


def pressure(done: Sequence[Done]) -> int:
    """How many of the last actions are repetitions; 0 when the very last one is new and so was the one before it."""
    marks = repeated(done[-LATELY - WITHIN :])[-LATELY:]
    return sum(marks) if any(marks[-2:]) else 0


def began(done: Sequence[Done]) -> int:
    """The turn in which what goes round was done first, among the last actions."""
    recent = done[-LATELY - WITHIN :]
    found = [action_key(one.step.action) for one in recent]
    again = {key for key, mark in zip(found, repeated(recent), strict=True) if mark}
    return min((one.turn for one, key in zip(recent, found, strict=True) if key in again), default=recent[-1].turn)


def longest(marks: Sequence[bool]) -> int:
    """The longest stretch of a whole run."""
    best = now = 0
    for mark in marks:
        now = now + 1 if mark else 0
        best = max(best, now)
    return best


def times(action: Action, done: Sequence[Done]) -> int:
    """How often an action was done among the last ones, but for digits and blanks."""
    key = action_key(action)
    return sum(action_key(one.step.action) == key for one in done[-WITHIN:])


def what_went_round(done: Sequence[Done], count: int) -> list[str]:
    """The last `count` actions in words, each once, the most frequent first."""
    seen = Counter(spelled(one.step.action) for one in done[-count:])
    return [f"{words} ({number} times)" if number > 1 else words for words, number in seen.most_common(4)]


def spelled(action: Action) -> str:
    """One line for the bot."""
    match action:
        case Shell(command=command):
            text = " ".join(command.split())
        case ReadFile(path=path) | WriteFile(path=path) | EditFile(path=path):
            text = f"{action.tool} {path}"
        case _:
            text = action.tool
    return f"`{text}`" if len(text) <= _SHOWN_CHARS else f"`{text[:_SHOWN_CHARS]}...`"
