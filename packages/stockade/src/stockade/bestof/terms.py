"""On which terms candidates work: what a run must be to have some, what leads them, and how their sampling differs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stockade.bots.spec import BotSpec
from stockade.changes import RunFacts, facts
from stockade.core.errors import UsageError
from stockade.core.events import CandidateChosen, RunEvent, RunStarted, SubRunStarted
from stockade.core.ports import RunStore
from stockade.core.settings import RunSettings
from stockade.loop.run_context import Bot, Dependencies
from stockade.loop.subagents import borrowed
from stockade_sandbox.policy import Policy

MOST = 32
"""As the setting has it (core/settings.py)."""
WARM = 0.8
"""The temperature of candidates after the first, where a local model would be greedy: they would all be the same."""


def check_best_of(spec: RunSettings, bot: BotSpec, policy: Policy, *, live: bool, far: bool) -> None:
    """UsageError where a run cannot have candidates. `live`: its sandbox is up already; `far`: on another machine."""
    if (spec.best_of or 1) == 1:
        return
    what, way = f"--best-of {spec.best_of}: ", "leave --best-of out"
    if bot.autonomous or bot.authorised:
        raise UsageError(f"{what}the bot {bot.name} has no answer of which one could be the best", way)
    if spec.approve == "ask":
        raise UsageError(f"{what}nobody can be asked about the actions of several at once", "--approve rules, or never")
    if live or far:
        where = "is up already" if live else "is on another machine"
        raise UsageError(f"{what}each candidate has a sandbox of its own, and that of this run {where}", way)
    if written := [rule.host for rule in policy.folders if rule.mode == "rw"]:
        raise UsageError(
            f"{what}every candidate would write to {written[0]} itself (rw)", f"--folder {written[0]}:overlay"
        )


def undecided_count(history: Sequence[RunEvent]) -> int:
    """How many candidates the run on record asks for, where none was taken yet; else 0."""
    first = history[0] if history else None
    if not isinstance(first, RunStarted) or any(isinstance(event, CandidateChosen) for event in history):
        return 0
    count = first.options.get("best_of")
    return count if isinstance(count, int) and count > 1 else 0


async def known_events(store: RunStore, run_id: str) -> tuple[RunEvent, ...]:
    """Nothing where there is no such run."""
    return tuple(await store.events(run_id)) if await store.length(run_id) else ()


async def facts_of_candidates(store: RunStore, events: Sequence[RunEvent]) -> list[RunFacts]:
    """Of those of a run of which none was taken yet: their changes are still to be decided on."""
    named = [event.run_id for event in events if isinstance(event, SubRunStarted) and event.number is not None]
    wanted = dict.fromkeys(named) if undecided_count(events) else ()
    return [facts(await known_events(store, run_id)) for run_id in wanted]


def led_by(parts: Dependencies, bot: Bot) -> Dependencies:
    """Of a run that only leads others: its sandbox is never entered, so its layers stay as they are."""
    return replace(
        parts, sandbox=borrowed(parts.sandbox, on_network=None, host_pid=None), bot=bot, tools=(), toolboxes=(),
        hooks=(), sub_agents=None, snapshots=None, judge=None, network=None,
    )  # fmt: skip


def sampled_otherwise(spec: RunSettings, boss: RunStarted, number: int) -> Mapping[str, object]:
    """What differs from the first candidate's, which is asked as the run alone would be. What the user said stands."""
    other = dict[str, object]()
    if number > 1 and spec.seed is not None:
        other["seed"] = spec.seed + number - 1
    if number > 1 and spec.temperature is None and boss.sampling.temperature == 0.0:
        other["temperature"] = WARM
    return other
