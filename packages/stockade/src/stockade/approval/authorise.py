"""Implements core.ports.Approver: the user authorises each action, or grants a number of them in a row.

AutoGPT's words: `y` for this action, `y -N` for N of them with this one, `n` to stop, anything else is feedback for the
bot, and the action is not done. What is neither of them is asked again: bad input never authorises. Where nobody can be
asked, nothing is done and the run stops.
"""

import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from stockade.core.actions import Action, AskUser, Finish, InvalidCall
from stockade.core.ports import Approver

MAX_GRANTED = 9999
REFUSED = "the user refused it"
LEFT = "the user stopped the run"
NOBODY = "nobody is there to authorise what the bot wants to do"
_YES = re.compile(r"(?:y|yes)(?:\s+-\s?(?P<count>\d+))?", re.IGNORECASE)
_MEANT_YES = re.compile(r"(?:y|yes)\s*[-+\d].*", re.IGNORECASE)
_LEAVES = frozenset({"n", "no", "exit", "quit"})
_FORM = "write y, y -N with N from 1 to 9999, n, or feedback in words"


@dataclass(frozen=True, slots=True)
class Granted:
    """This many actions, the one that was asked about among them."""

    count: int


@dataclass(frozen=True, slots=True)
class Leave:
    """The run shall stop here."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """The action is not to be done; `text` is for the bot."""

    text: str


@dataclass(frozen=True, slots=True)
class Misread:
    """Neither of them; `problem` is for the user."""

    problem: str


def understand(typed: str) -> Granted | Leave | Feedback | Misread:
    """What the user means by a line."""
    text = typed.strip()
    if not text:
        return Misread(f"nothing was typed: {_FORM}")
    if text.lower() in _LEAVES:
        return Leave()
    if (found := _YES.fullmatch(text)) is not None:
        digits = (found["count"] or "1").lstrip("0")
        if not digits or len(digits) > len(str(MAX_GRANTED)) or not digits.isascii():
            return Misread(_FORM)
        return Granted(int(digits))
    if _MEANT_YES.fullmatch(text):
        return Misread(f"this authorises nothing: {_FORM}")
    return Feedback(text)


def authorises(typed: str) -> bool:
    """Whether this line lets an action run."""
    return isinstance(understand(typed), Granted)


Ask = Callable[[Action, str | None], Awaitable[str | None]]
"""Shows the action whole, and what was wrong with the last line; the line that was typed, None at the end of input."""


class Held(Protocol):
    """The run that an action belongs to."""

    def away(self) -> AbstractContextManager[list[str]]:
        """Inside, time is nobody's; what is appended to the list is recorded as the user's word."""
        ...

    def stop(self, why: str) -> None:
        """Nothing more is begun; the run closes in order."""
        ...


class Authoriser:
    """`ask` None: there is nobody. `granted` actions are done without a question, None means any number.

    `rules` go first: what they refuse is not asked about. `told` hears how many are left after each that is done
    without a question.
    """

    def __init__(self, run: Held, rules: Approver | None = None) -> None:
        self.ask: Ask | None = None
        self.told: Callable[[int | None], None] = lambda left: None
        self.granted: int | None = 0
        self._run = run
        self._rules = rules

    @property
    def rules(self) -> Approver | None:
        """What goes first."""
        return self._rules

    @property
    def goes_on_alone(self) -> bool:
        """Whether the next action is done without a question."""
        return self.granted is None or self.granted > 0

    def take_back(self) -> None:
        """The next action is asked about again."""
        self.granted = 0

    async def judge(self, action: Action) -> str | None:
        """None when it may be done, else the reason for the bot."""
        if isinstance(action, Finish | AskUser | InvalidCall):
            return None
        if self._rules is not None and (reason := await self._rules.judge(action)) is not None:
            return reason
        if self.granted is None or self.granted > 0:
            self.granted = None if self.granted is None else self.granted - 1
            self.told(self.granted)
            return None
        if self.ask is None:
            self._run.stop(NOBODY)
            return NOBODY
        with self._run.away() as said:
            return await self._asked(action, self.ask, said)

    async def _asked(self, action: Action, ask: Ask, said: list[str]) -> str | None:
        problem: str | None = None
        while True:
            typed = await ask(action, problem)
            said.append(typed.strip() if typed is not None else "(left)")
            match Leave() if typed is None else understand(typed):
                case Granted(count):
                    self.granted = count - 1
                    return None
                case Feedback(text):
                    return f"{REFUSED}: {text}"
                case Leave():
                    self._run.stop(LEFT)
                    return LEFT
                case Misread(words):
                    problem = words
