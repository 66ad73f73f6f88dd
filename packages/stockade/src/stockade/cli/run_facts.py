"""Facts of a run in words: where it works, what it asked of the network, what it used."""

import os
from collections import Counter
from pathlib import Path

from stockade.cli.safe import one_line, some
from stockade.core.events import RunFinished, RunStarted
from stockade.core.messages import Usage
from stockade.core.policy import Policy


def places(policy: Policy) -> list[str]:
    folders = [f"{rule.host} ({rule.mode})" for rule in policy.folders] or ["no folder"]
    network = {"none": "no network", "open": "open network"}.get(policy.network.mode)
    return [*folders, network or f"network: {', '.join(policy.network.hosts)}"]


def model_facts(started: RunStarted) -> list[str]:
    """What its model's profile gave the run, and which answers are asked of it, each with who says so."""
    budget, sources = started.budget, started.sources
    turns = some(budget.max_turns, "turn") if budget.max_turns else "any number of turns"
    time = f"{budget.timeout_s / 60:.3g} min" if budget.timeout_s else "any time"
    return [
        f"{started.model_profile}: {sources.get('model_profile', '')}",
        ", ".join(started.actions or ()),
        f"{turns}, {time}",
        f"answers {started.answers}: {sources.get('answers', '')}",
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


def usage_facts(usage: Usage, model_s: float) -> list[str]:
    if not usage.prompt_tokens and not usage.completion_tokens:
        return []
    cached = f" ({100 * usage.cached_tokens // usage.prompt_tokens}% cached)" if usage.prompt_tokens else ""
    facts = [f"{usage.prompt_tokens} prompt tokens{cached}", f"{usage.completion_tokens} answer tokens"]
    if model_s > 0.05:
        facts.append(f"{usage.completion_tokens / model_s:.1f} tokens/s")
    if usage.cost:
        facts.append(f"{usage.cost:.4f} USD")
    return facts


def detail(finished: RunFinished, limit: int = 2000) -> str:
    """What is told of an ending beside its reason; a budget's words begin with the name of the bound already."""
    return one_line(finished.detail, limit).removeprefix(f"{finished.reason}: ")
