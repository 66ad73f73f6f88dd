"""What the attempts of a batch say together."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from stockade.fleet.results import FINAL, Attempt, Outcome, latest

_Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Summary:
    """`solved_of`: solved, and of how many that say something about the task; `interval`: Wilson's, at 95 %.

    `pass_at`: of k tries, the chance that one solves, over tasks with as many epochs at least. `retried`: attempts
    that were not the last of their task and epoch. Tokens and cost are those of all attempts.
    """

    outcomes: Counter[Outcome]
    solved_of: tuple[int, int]
    interval: tuple[float, float]
    pass_at: dict[int, float]
    retried: int
    tokens: int
    cost: float
    p50_s: float
    p95_s: float
    turns: int


def summary(attempts: Sequence[Attempt]) -> Summary:
    last = latest(list(attempts))
    outcomes = Counter(one.outcome for one in last)
    counted = [one for one in last if one.outcome in FINAL]
    solved, seconds = outcomes["solved"], sorted(one.seconds for one in last)
    runs = {one.run: one for one in attempts}.values()
    return Summary(
        outcomes=outcomes,
        solved_of=(solved, len(counted)),
        interval=wilson(solved, len(counted)),
        pass_at=_pass_at(counted),
        retried=len(attempts) - len(last),
        tokens=sum(one.tokens for one in runs),
        cost=sum(one.cost for one in runs),
        p50_s=quantile(seconds, 0.5),
        p95_s=quantile(seconds, 0.95),
        turns=sum(one.turns for one in runs),
    )


def wilson(good: int, total: int) -> tuple[float, float]:
    """Wilson's score interval at 95 % (Wilson 1927); all there is where nothing was tried."""
    if not total:
        return 0.0, 1.0
    share, z2 = good / total, _Z95**2
    middle = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = _Z95 / (1 + z2 / total) * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def _pass_at(counted: Sequence[Attempt]) -> dict[int, float]:
    """The unbiased estimate of Chen et al. 2021 (HumanEval), for k of 1, 2, 5, 10 ... that every task has."""
    tries = defaultdict[str, list[bool]](list)
    for one in counted:
        tries[one.id].append(one.outcome == "solved")
    least = min(map(len, tries.values()), default=0)
    ks = [k for k in (1, 2, 5, 10, 20, 50, 100) if k <= least] if least > 1 else []
    return {k: sum(_pass(len(one), sum(one), k) for one in tries.values()) / len(tries) for k in ks}


def _pass(total: int, good: int, k: int) -> float:
    return 1.0 - math.comb(total - good, k) / math.comb(total, k)


def quantile(ordered: Sequence[float], share: float) -> float:
    """The nearest rank."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Of two batches on the tasks and epochs that both have. `p`: that a difference as large comes by chance alone, by
    the exact sign test on those that only one of them solved (McNemar's, exact).
    """

    both: int
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    neither: int
    p: float


def compare(first: Sequence[Attempt], second: Sequence[Attempt]) -> Comparison:
    one, other = ({(a.id, a.epoch): a for a in latest(list(found)) if a.outcome in FINAL} for found in (first, second))
    pairs = {key: (one[key].outcome == "solved", other[key].outcome == "solved") for key in one if key in other}
    named = {key: key[0] if key[1] == 1 else f"{key[0]} (epoch {key[1]})" for key in pairs}
    only_first = tuple(named[key] for key, pair in pairs.items() if pair == (True, False))
    only_second = tuple(named[key] for key, pair in pairs.items() if pair == (False, True))
    both = sum(pair == (True, True) for pair in pairs.values())
    neither = len(pairs) - both - len(only_first) - len(only_second)
    return Comparison(both, only_first, only_second, neither, sign_test(len(only_first), len(only_second)))


def sign_test(one: int, other: int) -> float:
    """Two-sided and exact: the chance of a split at least as uneven when both sides are equally likely."""
    total = one + other
    tail: int = sum(math.comb(total, k) for k in range(min(one, other) + 1))
    chance: float = 2 * tail / 2**total
    return min(1.0, chance)
