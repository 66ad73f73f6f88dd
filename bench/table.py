"""A table drawn in plain text."""

import statistics
from collections.abc import Sequence
from itertools import pairwise

from bench.figures import Rounds, Row, slope_ms


def draw(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table with a rule under its head; the first column to the left, the others to the right. Valid Markdown."""
    widths = [max(len(line[column]) for line in (head, *body)) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *rest = cells
        words = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        return f"| {' | '.join(words)} |"

    rule = "|".join(("-" * (widths[0] + 2), *(f"{'-' * (width + 1)}:" for width in widths[1:])))
    return "\n".join([line(head), f"|{rule}|", *(line(cells) for cells in body)])


def overhead(rows: Sequence[Row]) -> str:
    """Two tables: what a turn costs, and what there is besides turns."""
    turns = sorted(rows[0].at)
    cpu_head = ["CPU ms a turn", *(f"turn {turn}" for turn in turns), *(f"N {pair}" for pair in rows[0].slopes),
                *(f"/floor {turn}" for turn in turns), f"{turns[-1]} / {turns[0]}", "children"]  # fmt: skip
    cpu = [
        [row.name, *(f"{value:.2f}" for value in row.at.values()), *(f"{value:.2f}" for value in row.slopes.values()),
         *(f"{value:.1f}x" for value in row.over_floor.values()), f"{row.flat:.2f}", f"{row.child_ms:.1f}"]
        for row in rows
    ]  # fmt: skip
    rest_head = ["besides", "start CPU ms", f"whole run of {turns[-1]}, CPU s", "peak RSS MB",
                 "first request B", "prompt in it B", "gap p10 ms", "only grows"]  # fmt: skip
    rest = [
        [row.name, f"{row.start_ms:.0f}", f"{row.whole_s:.2f}", f"{row.rss_mb:.0f}",
         str(row.first_bytes), str(row.prompt_bytes), f"{row.gap_ms:.1f}", f"{row.grew:.0%}"]
        for row in rows
    ]  # fmt: skip
    return f"{draw(cpu_head, cpu)}\n\n{draw(rest_head, rest)}"


def beside(both: Sequence[Rounds]) -> str:
    """Ours over another version's: the CPU of the client, and the least of it, which other work disturbed least."""
    sizes = sorted(both[0][0])
    lines = []
    for few, many in pairwise(sizes):
        here, base = ([slope_ms(one[few], one[many]) for one in rounds] for rounds in both)
        cells = [f"{find(ms):.2f}" for find in (statistics.median, min) for ms in (here, base)]
        ratios = statistics.median(a / b for a, b in zip(here, base, strict=True)), min(here) / min(base)
        lines.append([f"a turn, {few} to {many}", *cells, *(f"{ratio:.2f}" for ratio in ratios)])
    head = ["CPU ms", "here, median", "base", "here, least", "base", "ratio: median of the rounds", "of the least"]
    return draw(head, lines)
