"""What a run may spend, and what is left of it."""

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
