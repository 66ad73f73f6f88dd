"""What a run may spend, what is left of it, and how it is shared with the bots that work for it."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pydantic import Field

from stockade.core.data import Data
from stockade.core.messages import Usage


class Budget(Data):
    """The bounds of a run. 0 means unlimited."""

    max_turns: int = Field(default=20, ge=0)
    timeout_s: float = Field(default=600.0, ge=0)
    max_tokens: int = Field(default=0, ge=0)
    max_cost: float = Field(default=0.0, ge=0)


class Spent(Data):
    """What a run has used so far; tokens are those of prompts and answers together."""

    turns: int = 0
    elapsed_s: float = 0.0
    usage: Usage = Usage()

    @property
    def tokens(self) -> int:
        return self.usage.prompt_tokens + self.usage.completion_tokens


def unpriced(name: str) -> str:
    """What is said where a bound on cost meets a model whose price nobody knows."""
    return f"--max-cost cannot be kept: nobody says what {name} costs"


def exhausted(budget: Budget, spent: Spent) -> str | None:
    """The first bound that is reached, in words for the record (`turns: 20 of 20`), or None."""
    if budget.max_turns and spent.turns >= budget.max_turns:
        return f"turns: {spent.turns} of {budget.max_turns}"
    if budget.timeout_s and spent.elapsed_s >= budget.timeout_s:
        return f"time: {spent.elapsed_s:.0f} s of {budget.timeout_s:g} s"
    if budget.max_tokens and spent.tokens >= budget.max_tokens:
        return f"tokens: {spent.tokens} of {budget.max_tokens}"
    if budget.max_cost and spent.usage.cost >= budget.max_cost:
        return f"cost: {spent.usage.cost:.4f} of {budget.max_cost:g} USD"
    return None


def seconds_left(budget: Budget, spent: Spent) -> float | None:
    """Wall-clock seconds until the run must end; None when it has no such bound."""
    return max(0.0, budget.timeout_s - spent.elapsed_s) if budget.timeout_s else None


@dataclass(slots=True)
class Account:
    """What a bot may spend together with its sub-bots, each with an account of its own on this one.

    `own` is what the bot itself has used, a fold over its events. A sub-bot is bounded by its own budget and by what
    is left of every one above it; its time is its parent's time anyway.
    """

    budget: Budget
    own: Callable[[float], Spent]
    parent: "Account | None" = None
    shares: list["Account"] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.parent is not None:
            self.parent.shares.append(self)

    def spent(self, now: float) -> Spent:
        """By the bot and all below it, at `now` (UNIX seconds)."""
        own = self.own(now)
        below = [share.spent(now) for share in self.shares]
        return Spent(
            turns=own.turns + sum(one.turns for one in below),
            elapsed_s=own.elapsed_s,
            usage=sum((one.usage for one in below), own.usage),
        )

    def exhausted(self, now: float) -> str | None:
        """The first bound that is reached here or above, in words for the record, or None."""
        if (bound := exhausted(self.budget, self.spent(now))) is not None:
            return bound
        above = self.parent.exhausted(now) if self.parent is not None else None
        return f"{above}, with all bots" if above is not None else None

    def seconds_left(self, now: float) -> float | None:
        """Until this bot must end; None when there is no such bound here or above."""
        above = self.parent.seconds_left(now) if self.parent is not None else None
        bounds = [left for left in (seconds_left(self.budget, self.spent(now)), above) if left is not None]
        return min(bounds, default=None)

    def warning(self, now: float, told: int) -> str | None:
        """A word for the bot that it nears its end, or None. `told`: how many such words it got; there are two."""
        warnings = list(_warnings(self.budget, self.spent(now)))
        if self.parent is not None:
            warnings += _warnings(self.parent.budget, self.parent.spent(now))
        level = max((level for level, _ in warnings), default=0)
        if level <= told:
            return None
        message = f"What is left: {', '.join(dict.fromkeys(message for at, message in warnings if at == level))}."
        return f"{message} Finish now: say what is done and what is not." if level == LAST else f"{message} {_IN_TIME}"


_IN_TIME = "Come to an end in time."
LOW, LAST = 1, 2
_LOW_SHARE, _LAST_SHARE = 0.2, 0.05
_FEW_TURNS = 4
"""Whoever has fewer from the start knows it is short; a word about it would only take room."""


def _warnings(budget: Budget, spent: Spent) -> Iterator[tuple[int, str]]:
    """How near each bound is, and that in words."""
    left = budget.max_turns - spent.turns
    if budget.max_turns >= _FEW_TURNS and left <= max(2, math.ceil(budget.max_turns * _LOW_SHARE)):
        yield LAST if left <= 1 else LOW, f"{max(0, left)} of {budget.max_turns} turns"
    for bound, used, unit in (
        (budget.timeout_s, spent.elapsed_s, "seconds"),
        (budget.max_tokens, spent.tokens, "tokens"),
        (budget.max_cost, spent.usage.cost, "USD"),
    ):
        share = 1 - used / bound if bound else 1.0
        if share <= _LOW_SHARE:
            rest = f"{max(0.0, bound - used):.4f}" if unit == "USD" else f"{max(0.0, bound - used):.0f}"
            yield LAST if share <= _LAST_SHARE else LOW, f"{rest} of {bound:g} {unit}"
