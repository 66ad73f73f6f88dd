"""A table of kills for docs/measured/kills.md: `python -m tests.faults.kills_page LOG`, LOG from STOCKADE_KILLS_LOG."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator

from tests.support.worlds import BENEATH, STRATEGIES


def table(lines: Iterable[str]) -> Iterator[str]:
    """A row for each command and step; in a cell how often which tree came out of it."""
    notes = [json.loads(line) for line in lines]
    counts = Counter((n["command"], n["step"], n["strategy"], n["beneath"], n["legal"]) for n in notes)
    cells = [(strategy, beneath) for strategy in STRATEGIES for beneath in BENEATH]
    yield f"| command | step | kills | {' | '.join(f'{strategy}, {beneath}' for strategy, beneath in cells)} |"
    yield f"|---|---|---|{'---|' * len(cells)}"
    for command, step in dict.fromkeys((n["command"], n["step"]) for n in sorted(notes, key=lambda n: n["command"])):
        found = [[counts[command, step, *cell, legal] for legal in ("old", "new", "illegal")] for cell in cells]
        shown = [f"{old} old, {new} new{f', **{bad} illegal**' if bad else ''}" if old + new + bad else ""
                 for old, new, bad in found]  # fmt: skip
        yield f"| {command} | {step} | {sum(map(sum, found))} | {' | '.join(shown)} |"
    legal = Counter(n["legal"] for n in notes)
    yield ""
    yield f"{len(notes)} kills: {legal['old']} old, {legal['new']} new, **{legal['illegal']} illegal**."


if __name__ == "__main__":
    with open(sys.argv[1]) as log:
        print("\n".join(table(log)))
