"""Two arms on the same tasks: `python -m bench.ability.paired A.jsonl B.jsonl`, exact and two-sided (McNemar)."""

import sys
from math import comb
from pathlib import Path

from bench.ability.outcome import Outcome, read


def mcnemar(only_first: int, only_second: int) -> float:
    """The chance of a split at least as uneven, were both arms equally good: the exact binomial test."""
    n, k = only_first + only_second, min(only_first, only_second)
    tail = sum(comb(n, i) for i in range(k + 1)) / (1 << n)
    return min(1.0, 2 * tail)


def compare(first: list[Outcome], second: list[Outcome]) -> str:
    """One paragraph; only tasks that both arms ran count."""
    one, two = ({outcome.task: outcome for outcome in arm} for arm in (first, second))
    names = sorted(one.keys() & two.keys())
    gained = [name for name in names if two[name].solved and not one[name].solved]
    lost = [name for name in names if one[name].solved and not two[name].solved]
    lines = [f"{len(names)} tasks in both"]
    for arm in (one, two):
        runs = [arm[name] for name in names]
        turns = sum(run.turns for run in runs) / max(1, len(runs))
        ended = sum(run.false_end for run in runs)
        lines.append(f"{runs[0].arm}: {sum(run.solved for run in runs)} solved, {ended} false ends, {turns:.1f} turns")
    lines.append(f"only the second: {' '.join(gained) or '-'}; only the first: {' '.join(lost) or '-'}")
    lines.append(f"p = {mcnemar(len(lost), len(gained)):.3f}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(compare(read(Path(sys.argv[1])), read(Path(sys.argv[2]))))
