"""What a run's end means: the exit status, the last line of --json, and how to go on."""

from typing import Any

from stockade.cli.review import RunFacts
from stockade.core.budget import Budget
from stockade.core.events import RunFinished

_REASONS = {
    "gave_up": 1,
    "check_failed": 1,
    "usage": 2,
    "hook": 2,
    "tools": 2,
    "sandbox": 4,
    "store": 4,
    "bug": 4,
    "model": 5,
}
_STOPPED = 3


def status_of(finished: RunFinished) -> int:
    """The exit status of a run that came to its end."""
    if finished.status == "done":
        return 1 if finished.verified is False else 0
    if (finished.status, finished.reason) == ("stopped", "hook"):  # a hook's own end; a broken one is a failure
        return _STOPPED
    return _REASONS.get(finished.reason, _STOPPED)


def result_of(facts: RunFacts) -> dict[str, Any]:
    """The last line of --json."""
    assert facts.started is not None
    assert facts.finished is not None
    finished = facts.finished
    return {
        "type": "result",
        "run": facts.started.run_id,
        "status": finished.status,
        "reason": finished.reason,
        "detail": finished.detail,
        "verified": finished.verified,
        "answer": finished.answer,
        "turns": finished.turns,
        "usage": finished.usage.model_dump(),
        "changes": [change.model_dump() for change in finished.changes],
    }


def way_on(facts: RunFacts) -> str | None:
    """The command that goes on with a run that was stopped, with more of what had run out; None for any other end."""
    assert facts.started is not None
    if facts.finished is None or facts.finished.status != "stopped":
        return None
    return f"to go on: stockade runs resume {facts.started.run_id}{_more(facts.started.budget, facts.finished)}"


def _more(budget: Budget, finished: RunFinished) -> str:
    """The flag for as much again as the run had, where the bound it came to has one."""
    usage = finished.usage
    flag, bound, used = {
        "turns": ("--max-turns", budget.max_turns, finished.turns),
        "time": ("--timeout", budget.timeout_s, 0),
        "tokens": ("--max-tokens", budget.max_tokens, usage.prompt_tokens + usage.completion_tokens),
        "cost": ("--max-cost", budget.max_cost, usage.cost),
    }.get(finished.reason, ("", 0, 0))
    more = bound + max(bound, used)
    return f" {flag} {int(more) if more == int(more) else round(more, 4)}" if bound else ""
