"""Implements core.ports.Approver: rules first, then the user where the rules say so.

What the user allows for the run or for always is remembered by the exact words of each part, so that an allowed
`pytest -q` does not allow `pytest -q; rm -rf .`. A refusing rule is never overruled by what is remembered.
"""

import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

from stockade.approval.authorise import REFUSED
from stockade.approval.parts import Parsed, Part, parse
from stockade.approval.remembered import Remembered
from stockade.approval.rules import Judgement, RuleSet, strictest
from stockade.core.actions import Action, AskUser, EditFile, Finish, InvalidCall, Shell, ToolCall, WriteFile
from stockade.core.data import Data

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
