"""A bot that ends again and again while something is plainly not done begins anew, without what it has tried.

Shown twice what is missing, a small model does the same twice more and ends. What is before its eyes it copies; from
the task alone, and a little warmer, it takes another way in some of the cases (docs/ability.md).
"""

from stockade.core.events import RunStarted
from stockade.core.ports import Reviewer, Sandbox
from stockade.loop.advice import review
from stockade.loop.state import RunState

MAX_ATTEMPTS = 2
"""Beside the first one."""
LEAST_TURNS = 3
MAX_FACTS_CHARS = 400


async def begin(
    started: RunStarted, state: RunState, reviewer: Reviewer | None, sandbox: Sandbox, now: float
) -> tuple[int, str] | None:
    """The first turn to forget, and what stands in the place of all since; None when the end may be accepted."""
    begun = sum(event.anew for event in state.forgotten)
    if begun >= MAX_ATTEMPTS or not review.reviews(state) or not state.since_anew:
        return None
    bound = started.budget.max_turns
    if bound and bound - state.spent(now).turns < LEAST_TURNS:
        return None
    if not (left := await review.still_undone(started, state, reviewer, sandbox)):
        return None
    facts = "\n".join(left)[:MAX_FACTS_CHARS]
    text = f"You have tried this before, and it is not done:\n{facts}\nBegin again, and do it in another way."
    return max(1, state.done[0].turn), text
