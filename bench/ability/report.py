"""The tables of a folder of results, as Markdown."""

from collections.abc import Callable, Sequence
from pathlib import Path

from bench.ability.outcome import Outcome, read
from bench.ability.sets import DEFAULT, SETS, members, set_of
from bench.ability.tasks import TASKS, held_out

_HELD = {task.name for task in TASKS if held_out(task)}
_KIND = {task.name: task.kind for tasks in SETS.values() for task in tasks}


def markdown(folder: Path) -> str:
    """A table of the arms, one of the kinds of task, and one of every task of the set.

    ValueError when the folder has results of two sets.
    """
    found = {file.stem: read(file) for file in sorted(folder.glob("*.jsonl"))}
    of = set_of({outcome.task for outcomes in found.values() for outcome in outcomes})
    arms = sorted(found, key=lambda arm: -sum(outcome.solved for outcome in found[arm]))
    return "\n\n".join((_summary(found, arms, of), _kinds(found, arms), _each(found, arms, of))) + "\n"


def _share(outcomes: Sequence[Outcome]) -> str:
    solved = sum(outcome.solved for outcome in outcomes)
    return f"{solved} of {len(outcomes)} ({100 * solved / len(outcomes):.0f} %)" if outcomes else ""


def _summary(found: dict[str, list[Outcome]], arms: Sequence[str], set_name: str) -> str:
    columns: dict[str, Callable[[list[Outcome]], str]] = {
        "solved": _share,
        "of the held-out half": lambda of: _share([outcome for outcome in of if outcome.task in _HELD]),
        "false ends": lambda of: str(sum(outcome.false_end for outcome in of)),
        "malformed answers": lambda of: str(sum(outcome.malformed for outcome in of)),
        "endless": lambda of: str(sum(outcome.ended == "turns" for outcome in of)),
        "gave up": lambda of: str(sum(outcome.ended in ("loop", "malformed", "error", "time") for outcome in of)),
        "turns a task": lambda of: f"{sum(outcome.turns for outcome in of) / len(of):.1f}",
        "prompt tokens (from the cache)": lambda of: _prompt(of),
        "completion tokens": lambda of: f"{sum(outcome.tokens.completion for outcome in of):,}",
        "seconds a task": lambda of: f"{sum(outcome.seconds for outcome in of) / len(of):.0f}",
    }
    if set_name != DEFAULT:
        del columns["of the held-out half"]
    rows = [[arm, *(column(found[arm]) for column in columns.values())] for arm in arms if found[arm]]
    return _table(["arm", *columns], rows)


def _prompt(outcomes: Sequence[Outcome]) -> str:
    prompt = sum(outcome.tokens.prompt for outcome in outcomes)
    cached = sum(outcome.tokens.cached for outcome in outcomes)
    return f"{prompt:,} ({100 * cached / max(1, prompt):.0f} %)"


def _kinds(found: dict[str, list[Outcome]], arms: Sequence[str]) -> str:
    rows = []
    for kind in dict.fromkeys(_KIND.values()):
        cells = []
        for arm in arms:
            of = [outcome for outcome in found[arm] if _KIND.get(outcome.task, "questions") == kind]
            cells.append(f"{sum(outcome.solved for outcome in of)} of {len(of)}" if of else "")
        rows.append([kind, *cells])
    return _table(["kind", *arms], rows)


def _each(found: dict[str, list[Outcome]], arms: Sequence[str], set_name: str) -> str:
    """`yes`, or how it ended without being solved; a star marks a task that was held out."""
    by_arm = {arm: {outcome.task: outcome for outcome in found[arm]} for arm in arms}
    rows = []
    for name in (task.name for task in members(set_name)):
        cells = []
        for arm in arms:
            outcome = by_arm[arm].get(name)
            words = "" if outcome is None else "yes" if outcome.solved else _failed(outcome)
            cells.append(words)
        rows.append([f"{name} *" if name in _HELD else name, *cells])
    return _table(["task", *arms], rows)


def _failed(outcome: Outcome) -> str:
    words = {"done": "false end", "turns": "endless", "loop": "stopped: loop", "malformed": "malformed"}
    return words.get(outcome.ended, outcome.ended)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
