"""A run in words: where it works, what it used; and what its end means: exit status, result, how to go on."""

import os
import shlex
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stockade.changes import RunFacts
from stockade.cli.lazy import load
from stockade.cli.ui.safe import one_line, some
from stockade.core.budget import Budget
from stockade.core.errors import UsageError
from stockade.core.events import BOTS_OWN, RunFinished, RunStarted
from stockade.core.messages import Usage
from stockade_sandbox.policy import Network, Policy

if TYPE_CHECKING:
    from stockade.loop.run_context import Bot, Narrator

_REFUSED = 3
_NAMED = 3


def driver_of(started: RunStarted | None) -> tuple["Bot | None", "Narrator | None"]:
    """The bot whose code drives the run, where it is not the plain loop, and what tells of it. Where it is not here, or
    can make nothing of the record, there is none: the run can be looked at all the same.
    """
    if started is None or not started.driver:
        return None, None
    try:
        found: Bot = load("runtime.bots:bot_of")(started)
        return found, found.narrator(started)
    except UsageError:
        return None, None


def places(policy: Policy, bot: "Bot | None") -> list[str]:
    """Without the folders that the bot itself has added, where it is one that may."""
    own = bot.policy(replace(policy, folders=())).folders if bot else ()
    folders = [f"{rule.host} ({rule.mode})" for rule in policy.folders if rule not in own] or ["no folder"]
    return [*folders, network(policy.network)]


def network(rule: Network) -> str:
    return {"none": "no network", "open": "open network"}.get(rule.mode) or f"network: {', '.join(rule.hosts)}"


def model_facts(started: RunStarted) -> list[str]:
    """What its model's profile gave the run, and which answers are asked of it, each with who says so."""
    budget, sources = started.budget, started.sources
    turns = some(budget.max_turns, "turn") if budget.max_turns else "any number of turns"
    time = f"{budget.timeout_s / 60:.3g} min" if budget.timeout_s else "any time"
    return [
        f"{started.model_profile}: {sources.get('model_profile', '')}",
        *([", ".join(started.actions)] if started.actions else []),
        f"{turns}, {time}",
        *([f"answers {started.answers}: {answers}"] if (answers := sources.get("answers", "")) != BOTS_OWN else []),
    ]


def closed_folders(policy: Policy) -> list[str]:
    """Folders that the bot is to write to and whoever runs it may not."""
    wanted = [Path(rule.host) for rule in policy.folders if rule.mode != "ro"]
    return [str(path) for path in wanted if path.is_dir() and not os.access(path, os.W_OK | os.X_OK)]


def requests(counted: Counter[str]) -> list[str]:
    if not counted:
        return []
    refused = f", {counted['refused']} refused" if counted["refused"] else ""
    return [some(counted["allowed"], "request") + refused]


def refused_line(refused: Counter[str]) -> str:
    """What was refused most, how often, and the flag that lets it out; nothing where nothing was.

    `refused`: the rules that were missing, as the proxy has them; empty where none would do.
    """
    known = Counter({rule: count for rule, count in refused.items() if rule})
    most = known.most_common(_REFUSED)
    more = f" and {len(known) - len(most)} more" if len(known) > len(most) else ""
    told = ", ".join(f"{one_line(rule)} ({count})" for rule, count in most)
    rules = one_line(shlex.quote(",".join(rule for rule, _ in most)))
    return f"refused: {told}{more}  allow with --net {rules}" if most else ""


def verdict(finished: RunFinished) -> str:
    """And what it rests on that the bot has changed."""
    more = len(finished.changed_tests) - _NAMED
    names = ", ".join(one_line(path) for path in finished.changed_tests[:_NAMED])
    but = f", but the bot changed {names}{f' and {more} more' if more > 0 else ''}" if names else ""
    return {True: f"verified{but}", False: "not verified", None: ""}[finished.verified]


def usage_facts(usage: Usage, model_s: float) -> list[str]:
    if not usage.prompt_tokens and not usage.completion_tokens:
        return []
    cached = f" ({100 * usage.cached_tokens // usage.prompt_tokens}% cached)" if usage.prompt_tokens else ""
    thought = f" ({usage.thinking_tokens} of thinking)" if usage.thinking_tokens else ""
    facts = [f"{usage.prompt_tokens} prompt tokens{cached}", f"{usage.completion_tokens} answer tokens{thought}"]
    if model_s > 0.05:
        facts.append(f"{usage.completion_tokens / model_s:.1f} tokens/s")
    if usage.cost:
        thought = f" ({usage.thinking_cost:.4f} of thinking)" if usage.thinking_cost else ""
        facts.append(f"{usage.cost:.4f} USD{thought}")
    return facts


def used_so_far(usage: Usage) -> str:
    """In a few characters; nothing where nothing was used."""
    if not usage.prompt_tokens and not usage.completion_tokens:
        return ""
    thought = f" ({_short(usage.thinking_tokens)} of thinking)" if usage.thinking_tokens else ""
    tokens = f"{_short(usage.prompt_tokens)} in, {_short(usage.completion_tokens)} out{thought}"
    return f"{tokens}, {usage.cost:.4f} USD" if usage.cost else tokens


def _short(count: int) -> str:
    return f"{count / 1e6:.1f}M" if count >= 10**6 else f"{count / 1e3:.1f}k" if count >= 1000 else str(count)


def detail(finished: RunFinished, limit: int = 2000) -> str:
    """What is told of an ending beside its reason; a budget's words begin with the name of the bound already."""
    return one_line(finished.detail, limit).removeprefix(f"{finished.reason}: ")


_REASONS = {
    "gave_up": 1,
    "check_failed": 1,
    "schema": 1,
    "usage": 2,
    "hook": 2,
    "tools": 2,
    "sandbox": 4,
    "store": 4,
    "bug": 4,
    "model": 5,
    "declined": 5,
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
        "changed_tests": list(finished.changed_tests),
        "answer": finished.answer,
        "turns": finished.turns,
        "usage": finished.usage.model_dump(),
        "changes": [asdict(change) for change in finished.changes],
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
