"""Implements core.ports.Approver twice: by rules and a question where they say so, and by the user for each action.

By rules: what the user allows for the run or for always is remembered by the exact words of each part, so that an
allowed `pytest -q` does not allow `pytest -q; rm -rf .`. A refusing rule is never overruled by what is remembered.

By the user, in AutoGPT's words: `y` for this action, `y -N` for N of them with this one, `n` to stop, anything else is
feedback for the bot, and the action is not done. What is neither of them is asked again: bad input never authorises.
Where nobody can be asked, nothing is done and the run stops.
"""

import re
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Protocol

from stockade.approval.parts import Parsed, Part, parse
from stockade.approval.remembered import Remembered
from stockade.approval.rules import Judgement, RuleSet, strictest
from stockade.core.actions import Action, AskUser, EditFile, Finish, InvalidCall, Shell, ToolCall, WriteFile
from stockade.core.data import Data
from stockade.core.ports import Approver

MAX_GRANTED = 9999
REFUSED = "the user refused it"
LEFT = "the user stopped the run"
NOBODY = "nobody is there to authorise what the bot wants to do"
_YES = re.compile(r"(?:y|yes)(?:\s+-\s?(?P<count>\d+))?", re.IGNORECASE)
_MEANT_YES = re.compile(r"(?:y|yes)\s*[-+\d].*", re.IGNORECASE)
_LEAVES = frozenset({"n", "no", "exit", "quit"})
_FORM = "write y, y -N with N from 1 to 9999, n, or feedback in words"


def understand(typed: str) -> int | str | None:
    """What the user means by a line: how many actions are granted, the one that was asked about among them; words for
    the bot, and the action is not to be done; None, the run shall stop here. ValueError, for the user, for neither.
    """
    text = typed.strip()
    if not text:
        raise ValueError(f"nothing was typed: {_FORM}")
    if text.lower() in _LEAVES:
        return None
    if (found := _YES.fullmatch(text)) is not None:
        digits = (found["count"] or "1").lstrip("0")
        if not digits or len(digits) > len(str(MAX_GRANTED)) or not digits.isascii():
            raise ValueError(_FORM)
        return int(digits)
    if _MEANT_YES.fullmatch(text):
        raise ValueError(f"this authorises nothing: {_FORM}")
    return text


def authorises(typed: str) -> bool:
    """Whether this line lets an action run."""
    try:
        return isinstance(understand(typed), int)
    except ValueError:
        return False


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
        self.rules = rules
        self._run = run

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
        if self.rules is not None and (reason := await self.rules.judge(action)) is not None:
            return reason
        if self.goes_on_alone:
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
            try:
                meant = None if typed is None else understand(typed)
            except ValueError as error:
                problem = str(error)
                continue
            if isinstance(meant, int):
                self.granted = meant - 1
                return None
            if meant is None:
                self._run.stop(LEFT)
            return LEFT if meant is None else f"{REFUSED}: {meant}"


Scope = Literal["once", "run", "always"]


class Question(Data):
    """What the user is asked: the action exactly as it will be done, and what the rules say of its parts."""

    action: Action
    judgements: tuple[Judgement, ...] = ()


class Reply(Data):
    """The user's word. `allow` None is no; `words` are for the bot, as they were typed."""

    allow: Scope | None = None
    words: str = ""


AskPerson = Callable[[Question], Awaitable[Reply]]
"""Asks the user; what cannot be understood must never be read as a yes."""


class RulesApprover:
    """`ask` None: there is nobody to ask, so what would be asked is refused. `away` is entered around a question."""

    def __init__(
        self,
        rules: RuleSet,
        ask: AskPerson | None,
        remembered: Remembered | None = None,
        away: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._rules = rules
        self.ask = ask
        self._away = away
        self._remembered = remembered or Remembered()

    async def judge(self, action: Action) -> str | None:
        """None when the action may be done, else the reason for the bot."""
        if isinstance(action, Finish | AskUser | InvalidCall):
            return None
        parsed = _parsed(action)
        judgements = self._rules.judge(parsed)
        decision = strictest(judgements)
        if decision == "refuse":
            return _refusal(judgements)
        if decision == "allow" or self._remembered.allows(parsed):
            return None
        if self.ask is None:
            return f"{_refusal(judgements)} Nobody is there to allow it."
        with self._away():
            reply = await self.ask(Question(action=action, judgements=judgements))
        if reply.allow is None:
            return f"{REFUSED}: {reply.words}" if reply.words else REFUSED
        self._remembered.add(parsed, reply.allow, time.time())
        return None


def _parsed(action: Action) -> Parsed:
    """Other actions than commands are judged as a program of the tool's name."""
    match action:
        case Shell():
            return parse(action.command)
        case WriteFile() | EditFile():
            return Parsed((Part((action.tool, action.path), f"{action.tool} {action.path}", (action.path,)),))
        case ToolCall():
            return Parsed((Part((action.name,), action.name),))
        case _:
            return Parsed((Part((action.tool,), action.tool),))


def _refusal(judgements: tuple[Judgement, ...]) -> str:
    """For the bot: which part, why, and what to do instead."""
    lines = []
    for one in judgements:
        if one.decision != "allow":
            words = f"{one.text.strip()[:200]!r} is not allowed" if one.text.strip() else "not allowed"
            lines.append(f"{words}: {one.reason}." + (f" Instead: {one.instead}." if one.instead else ""))
    return " ".join(lines)
