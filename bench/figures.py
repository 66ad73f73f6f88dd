"""The arithmetic: from what the server saw of a run to the figures that are reported. Pure functions.

Times in seconds unless a name says otherwise; `_ms` are milliseconds.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench.server import Request

HALF_WINDOW = 5


@dataclass(frozen=True)
class Measured:
    """One client process. `own_s` is its CPU, `children_s` that of all it started."""

    turns: int
    requests: Sequence[Request]
    own_s: float
    children_s: float


def turn_cpu_ms(requests: Sequence[Request], turn: int) -> float:
    """CPU of one turn of the client about turn number `turn`: the mean over at most HALF_WINDOW turns on each side.

    Turn k lies between the arrivals of requests k-1 and k. ValueError where the run did not get so far.
    """
    last = len(requests) - 1
    if turn > last:
        raise ValueError(f"the run has {last} turns, not {turn}")
    high = min(turn + HALF_WINDOW, last)
    low = max(turn - HALF_WINDOW, 0)
    return 1000 * (requests[high].cpu_s - requests[low].cpu_s) / (high - low)


def slope_ms(shorter: Measured, longer: Measured) -> float:
    """CPU of one more turn, from two runs of different length: what start-up costs cancels out."""
    return 1000 * (longer.own_s - shorter.own_s) / (longer.turns - shorter.turns)


def gaps_ms(requests: Sequence[Request]) -> list[float]:
    """From an answer sent to the next request: all that a client does in a turn, the command included."""
    return [1000 * (new.arrived - old.sent) for old, new in pairwise(requests)]


def tenth(values: Sequence[float]) -> float:
    """The 10th percentile: what is left when a busy machine's worst is taken away."""
    return statistics.quantiles(values, n=10, method="inclusive")[0] if len(values) > 1 else values[0]


@dataclass(frozen=True)
class Row:
    """A contender's figures, each the median of its rounds. `at` and `slopes` are CPU ms a turn of the client itself.

    `over_floor` are ratios to the floor of the same round at the same turn; `flat` is the last turn's CPU over that of
    the first turn looked at. `grew` is the share of requests that strictly extend the one before.
    """

    name: str
    start_ms: float
    at: dict[int, float]
    slopes: dict[str, float]
    over_floor: dict[int, float]
    flat: float
    child_ms: float
    whole_s: float
    gap_ms: float
    first_bytes: int
    prompt_bytes: int
    rss_mb: float
    grew: float


Rounds = Sequence[dict[int, Measured]]
"""One mapping a round: turns -> the run of that many turns."""


def row(name: str, rounds: Rounds, floor: Rounds) -> Row:
    """`rounds` and `floor` go together one by one."""
    sizes = sorted(rounds[0])
    longest = [one[sizes[-1]] for one in rounds]
    at = {turn: [turn_cpu_ms(one.requests, turn) for one in longest] for turn in sizes}
    base = {turn: [turn_cpu_ms(one[sizes[-1]].requests, turn) for one in floor] for turn in sizes}
    pairs = list(pairwise(sizes))
    return Row(
        name=name,
        start_ms=statistics.median(1000 * run.requests[0].cpu_s for one in rounds for run in one.values()),
        at={turn: statistics.median(values) for turn, values in at.items()},
        slopes={f"{a}-{b}": statistics.median(slope_ms(one[a], one[b]) for one in rounds) for a, b in pairs},
        over_floor={turn: statistics.median(map(_ratio, at[turn], base[turn])) for turn in sizes},
        flat=statistics.median(map(_ratio, at[sizes[-1]], at[sizes[0]])),
        child_ms=statistics.median(1000 * run.children_s / run.turns for run in longest),
        whole_s=statistics.median(run.own_s for run in longest),
        gap_ms=statistics.median(tenth(gaps_ms(run.requests)) for run in longest),
        first_bytes=longest[0].requests[0].body_bytes,
        prompt_bytes=longest[0].requests[0].prompt_bytes,
        rss_mb=max(request.rss_bytes for run in longest for request in run.requests) / 1e6,
        grew=statistics.mean(request.grew for run in longest for request in run.requests),
    )


def _ratio(value: float, base: float) -> float:
    return value / base
