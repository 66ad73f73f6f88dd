"""Names that --net does not have: the user is asked while the connection waits, one question at a time and once a name.

The dialect is that of the approver; `n` is for this run, `never` for this bot in this folder. Where nobody can be
asked, what was answered for always holds, and all else is refused at once.
"""

import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal, Protocol

import anyio

from stockade.approval.approver import Held, Scope, understood
from stockade.approval.line import Command, Word
from stockade.approval.remembered import Remembered
from stockade.core.errors import UsageError
from stockade_sandbox.results import NetworkRequest

WAIT_S = 45.0
"""How long a connection waits for its turn, and again for the answer; a command has 60 s by default."""
ONCE_S = 30.0
"""How long a yes holds that is for once, and a question that nobody answered: programs try again."""
METHOD = "ASK"
"""On record."""
_NEVER = "never"

Ask = Callable[[str, str | None], Awaitable[str | None]]
"""Shows the rule, and what was wrong with the last line; the line that was typed, None at the end of input."""


class Run(Held, Protocol):
    words: list[str]
    """For the bot, before its next turn."""


class NetworkAsker:
    """Implements core.ports.NetworkApprover. `ask` None: there is nobody."""

    def __init__(self, run: Run, remembered: Remembered) -> None:
        self.ask: Ask | None = None
        self.record: Callable[[NetworkRequest], Awaitable[None]] | None = None
        self.note: Callable[[str], None] = lambda line: None
        self._run, self._remembered = run, remembered
        self._turn = anyio.Lock()
        self._said = dict[str, tuple[bool, float]]()
        self._granted = 0

    def may(self, rule: str) -> bool:
        known = self._known(rule)
        return self.ask is not None if known is None else known

    async def allows(self, rule: str) -> bool:
        if (known := self._known(rule)) is not None or self.ask is None:
            return bool(known)
        with anyio.move_on_after(WAIT_S) as queue:
            await self._turn.acquire()
        if queue.cancelled_caught:
            return False
        try:
            if self._known(rule) is None and self.ask is not None:
                await self._decide(rule, self.ask)
        finally:
            self._turn.release()
        return bool(self._known(rule))

    def _known(self, rule: str) -> bool | None:
        """None for what the user has not said anything on, or nothing that still holds."""
        allowed, until = self._said.get(rule, (False, -math.inf))
        if anyio.current_time() < until:
            return allowed
        for answer in (True, False):
            if self._remembered.allows(_command(rule, allowed=answer)):
                return answer
        return None

    async def _decide(self, rule: str, ask: Ask) -> None:
        """The answer, on record before it holds."""
        typed: str | None = "(no answer)"
        allowed = False
        scope: Scope = "once"
        if self._granted:
            typed, allowed = "y", True
            self._granted -= 1
        else:
            with self._run.away(), anyio.move_on_after(WAIT_S):
                typed, allowed, scope = await self._asked(rule, ask)
        at = time.time()
        if self.record is not None:
            host, _, port = rule.partition(":")
            reason = f"the user was asked, and said: {'(left)' if typed is None else typed}"
            verdict: Literal["allowed", "refused"] = "allowed" if allowed else "refused"
            await self.record(
                NetworkRequest(at=at, host=host, port=int(port or 0), method=METHOD, verdict=verdict, reason=reason)
            )
        self._said[rule] = (allowed, anyio.current_time() + ONCE_S if scope == "once" else math.inf)
        if scope == "always":
            try:
                self._remembered.add((_command(rule, allowed=allowed),), scope, at)
            except UsageError as error:
                self.note(f"it holds for this run only: {error.message}")

    async def _asked(self, rule: str, ask: Ask) -> tuple[str | None, bool, Scope]:
        typed, reply = await understood(partial(ask, rule))
        if typed is not None and typed.lower() == _NEVER:
            return typed, False, "always"
        if reply.granted:
            self._granted = reply.granted - 1
            return typed, True, reply.scope
        if reply.words:
            self._run.words.append(f"{rule} is not allowed: {reply.words}")
        elif typed is None or typed.lower() in ("exit", "quit"):
            self.ask = None
        return typed, False, "run"


def _command(rule: str, *, allowed: bool) -> Command:
    """As it stands among the approvals."""
    return Command((Word("@network", "@network"),), f"network {rule}" if allowed else f"never network {rule}")
