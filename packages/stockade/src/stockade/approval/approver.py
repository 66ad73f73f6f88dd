"""Implements core.ports.Approver: what the rules allow is done, what they refuse is not, all else is the user's to say.

In AutoGPT's words, wherever somebody is asked: `y` for this action, `y -N` for N of them with this one, `n` to stop,
anything else is feedback for the bot, and the action is not done; `run` and `always` allow the exact words of each
command, so that an allowed `pytest -q` does not allow `pytest -q; rm -rf .`, nor a tool's call one with other
arguments. What is none of them is asked again: bad input never authorises. Where nobody can be asked, nothing is done.
"""

import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

from stockade.approval.line import Command, NotPlainError, Word, leaves_names, read
from stockade.approval.remembered import Remembered
from stockade.approval.rules import Judgement, RuleSet
from stockade.core.actions import Action, AskUser, EditFile, Finish, InvalidCall, ReadFile, Shell, ToolCall, WriteFile
from stockade.core.data import Data

MAX_GRANTED = 9999
REFUSED = "the user refused it"
LEFT = "the user stopped the run"
NOBODY = "nobody is there to authorise what the bot wants to do"
Scope = Literal["once", "run", "always"]
_YES = re.compile(r"(?:y|yes)(?:\s+-\s?(?P<count>\d+))?", re.IGNORECASE)
_MEANT_YES = re.compile(r"(?:y|yes)\s*[-+\d].*", re.IGNORECASE)
_LEAVES = frozenset({"n", "no", "exit", "quit"})
_SCOPES: dict[str, Scope] = {"o": "once", "once": "once", "r": "run", "run": "run", "a": "always", "always": "always"}
_FORM = "write y, y -N with N from 1 to 9999, run, always, n, or feedback in words"


class Reply(Data):
    """The user's word: so many actions are granted, the one that was asked about among them, its words for `scope`. 0:
    it is not to be done, and `words` are for the bot; without words the run shall stop here.
    """

    granted: int = 0
    scope: Scope = "once"
    words: str = ""


def understand(typed: str | None) -> Reply:
    """What the user means by a line, None at the end of input. ValueError, for the user, for what is bad input."""
    text = "exit" if typed is None else typed.strip()
    if not text:
        raise ValueError(f"nothing was typed: {_FORM}")
    if text.lower() in _LEAVES:
        return Reply()
    if (scope := _SCOPES.get(text.lower())) is not None:
        return Reply(granted=1, scope=scope)
    if (found := _YES.fullmatch(text)) is not None:
        digits = (found["count"] or "1").lstrip("0")
        if not digits or len(digits) > len(str(MAX_GRANTED)) or not digits.isascii():
            raise ValueError(_FORM)
        return Reply(granted=int(digits))
    if _MEANT_YES.fullmatch(text):
        raise ValueError(f"this authorises nothing: {_FORM}")
    return Reply(words=text)


async def understood(ask: Callable[[str | None], Awaitable[str | None]]) -> tuple[str | None, Reply]:
    """The line that was typed and what the user means by it. What is bad input is asked again, with what is wrong."""
    problem: str | None = None
    while True:
        typed = await ask(problem)
        try:
            return typed, understand(typed)
        except ValueError as error:
            problem = str(error)


def authorises(typed: str) -> bool:
    """Whether this line lets an action run."""
    try:
        return understand(typed).granted > 0
    except ValueError:
        return False


class Question(Data):
    """What the user is asked: the action exactly as it will be done, and what the rules say of its commands."""

    action: Action
    judgements: tuple[Judgement, ...] = ()


Ask = Callable[[Question, str | None], Awaitable[str | None]]
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
    """`ask` None: there is nobody. `granted` actions are done without a question, None means any number; `told` hears
    how many are left after each. `every`: the bot is one whose user authorises each action; where there is nobody, the
    run stops. `changed` is what may have changed the meaning of names in the shell: then no table holds.
    """

    def __init__(
        self, run: Held, rules: RuleSet | None = None, remembered: Remembered | None = None, *, every: bool = False
    ) -> None:
        self.ask: Ask | None = None
        self.told: Callable[[int | None], None] = lambda left: None
        self.granted: int | None = 0
        self.every = every
        self.changed = ""
        self._run, self._rules, self._remembered = run, rules or RuleSet(), remembered or Remembered()

    @property
    def goes_on_alone(self) -> bool:
        """Whether the next action is done without a question."""
        return self.granted is None or self.granted > 0

    def take_back(self) -> None:
        """The next action is asked about again."""
        self.granted = 0

    def ran(self, actions: Iterable[Action]) -> None:
        """These are done, or were before: whether the table still holds is up to them."""
        for action in actions:
            if isinstance(action, Shell) and not self.changed and not leaves_names(action.command):
                self.changed = " ".join(action.command.split())[:60]

    async def judge(self, action: Action) -> str | None:
        """None when it may be done, else the reason for the bot."""
        if isinstance(action, Finish | AskUser | InvalidCall):
            return None
        commands, judgements = self._judged(action)
        if any(one.decision == "refuse" for one in judgements):
            return _refusal(judgements)
        if all(one.decision == "allow" for one in judgements):
            return None
        asked = [one for one, judged in zip(commands, judgements, strict=True) if judged.decision != "allow"]
        if not all(map(self._remembered.allows, asked)):
            if self.goes_on_alone:
                self.granted = None if self.granted is None else self.granted - 1
                self.told(self.granted)
            elif self.ask is None:
                if self.every:
                    self._run.stop(NOBODY)
                return NOBODY if self.every else f"{_refusal(judgements)} Nobody is there to allow it."
            else:
                with self._run.away() as said:
                    why = judgements if self._rules.command else ()
                    reply = await self._asked(Question(action=action, judgements=why), self.ask, said)
                if not reply.granted:
                    return f"{REFUSED}: {reply.words}" if reply.words else LEFT
                self._remembered.add(asked, reply.scope, time.time())
        self.ran((action,))
        return None

    def _judged(self, action: Action) -> tuple[tuple[Command, ...], tuple[Judgement, ...]]:
        """Other actions than commands are judged as a command of the tool's name, behind `@`, and its arguments: a file
        by its path, a tool's as the JSON of them all.
        """
        match action:
            case Shell(command=line):
                try:
                    commands = read(line)
                except NotPlainError as error:
                    reason = f"it cannot be judged: {error}"
                    return (Command((), line.strip()),), (Judgement(decision="ask", text="", reason=reason),)
            case WriteFile(path=path) | EditFile(path=path) | ReadFile(path=path):
                commands = (_tool(f"{action.tool} {path}", f"@{action.tool}", path),)
            case ToolCall(name=name, arguments=arguments):
                commands = (_tool(whole(action), "@tool", name, _json(arguments)),)
            case _:
                commands = (_tool(whole(action), f"@{action.tool}"),)
        judgements = tuple(map(self._rules.judge, commands))
        if self.changed and isinstance(action, Shell):
            reason = f"names may mean something else in this shell since: {self.changed}"
            asked = {"decision": "ask", "reason": reason}
            judgements = tuple(one.model_copy(update=asked if one.decision == "allow" else {}) for one in judgements)
        return commands, judgements

    async def _asked(self, question: Question, ask: Ask, said: list[str]) -> Reply:
        async def once(problem: str | None) -> str | None:
            typed = await ask(question, problem)
            said.append(typed.strip() if typed is not None else "(left)")
            return typed

        _, reply = await understood(once)
        if reply.granted:
            self.granted = reply.granted - 1
        elif not reply.words:
            self._run.stop(LEFT)
        return reply


def whole(action: Action) -> str:
    """An action as it will be done, every line of it."""
    match action:
        case Shell(command=command):
            return command
        case WriteFile(path=path, content=content):
            return f"write_file {path}\n{content}"
        case EditFile(path=path, old=old, new=new):
            return f"edit_file {path}\n--- old\n{old}\n+++ new\n{new}"
        case ToolCall(name=name, arguments=arguments):
            return f"{name} {_json(arguments)}"
        case _:
            return action.model_dump_json()


def _json(arguments: Mapping[str, Any]) -> str:
    """The same for the same arguments, in whatever order they come."""
    return json.dumps(arguments, ensure_ascii=False, sort_keys=True)


def _tool(text: str, *words: str) -> Command:
    return Command(tuple(Word(word, word) for word in words), text)


def _refusal(judgements: tuple[Judgement, ...]) -> str:
    """For the bot: which command, why, and what to do instead."""
    lines = []
    for one in judgements:
        if one.decision != "allow":
            words = f"{one.text.strip()[:200]!r} is not allowed" if one.text.strip() else "not allowed"
            lines.append(f"{words}: {one.reason}." + (f" Instead: {one.instead}." if one.instead else ""))
    return " ".join(lines)
