"""Tables and the curve, of the problems that every shown arm has been run on.

pass@1 after k repairs: the hidden tests pass for the program that a person would have been given then, which is the
first that passes the visible examples, else the best so far. Without a visible pass nothing is claimed to be done.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import Any

Row = dict[str, Any]
_COLOURS = {
    "ours": "#1f6feb",
    "traceback": "#d1242f",
    "no-fresh": "#9a6700",
    "no-handler": "#8250df",
    "no-rewrite": "#bf3989",
    "three": "#1a7f37",
}
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 640, 360, 56, 44, 24, 150


def rows(results: Path) -> dict[str, dict[str, Row]]:
    """By arm and problem; of several the one with most repairs."""
    found: dict[str, dict[str, Row]] = {}
    for line in results.read_text().splitlines():
        row = json.loads(line)
        known = found.setdefault(row["arm"], {}).get(row["problem"])
        if known is None or row["rounds"] >= known["rounds"]:
            found[row["arm"]][row["problem"]] = row
    return found


def given_after(row: Row, repairs: int) -> Row | None:
    """The attempt that a person would have had after so many repairs."""
    attempts: Sequence[Row] = row["attempts"][: repairs + 1]
    usable = [one for one in attempts if not one["empty"]]
    return max(usable, key=lambda one: list(one["rank"]), default=None)


def is_complete(row: Row, repairs: int) -> bool:
    """Whether it went on for so many repairs, or ended before with a visible pass."""
    return bool(row["attempts"][-1]["visible"]) or row["rounds"] > repairs


def solved(row: Row, repairs: int) -> bool:
    found = given_after(row, repairs)
    return found is not None and bool(found["hidden"])


def common(found: Mapping[str, Mapping[str, Row]], repairs: int) -> list[str]:
    """The first problems, as far as all arms have done all of them: those that take longest are no easier."""
    sets = [{name for name, row in arm.items() if is_complete(row, repairs)} for arm in found.values()]
    done = set.intersection(*sets) if sets else set()
    return [f"HumanEval/{number}" for number in takewhile(lambda number: f"HumanEval/{number}" in done, count())]


def curve(arm: Mapping[str, Row], names: Sequence[str], repairs: int) -> list[float]:
    """Per cent solved after 0, 1, ... repairs."""
    return [100 * sum(solved(arm[name], after) for name in names) / len(names) for after in range(repairs + 1)]


def draw(curves: Mapping[str, Sequence[float]], problems: int, repairs: int) -> str:
    """The curves as SVG."""
    low = min(40.0, *(min(points) for points in curves.values())) // 10 * 10
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(after: int, value: float) -> tuple[float, float]:
        return _LEFT + wide * after / max(1, repairs), _TOP + high * (100 - value) / (100 - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
    ]
    for value in range(int(low), 101, 10):
        x, y = place(0, value)
        parts.append(f'<line x1="{x}" y1="{y:.1f}" x2="{x + wide}" y2="{y:.1f}" stroke="#d0d7de"/>')
        parts.append(f'<text x="{x - 8}" y="{y + 4:.1f}" text-anchor="end">{value} %</text>')
    for after in range(repairs + 1):
        x, _ = place(after, low)
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{after}</text>')
    middle = _LEFT + wide / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">repairs ({problems} problems)</text>')
    ends: list[float] = []
    for name, points in curves.items():
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(after, value) for after, value in enumerate(points)))
        colour = _COLOURS.get(name, "#57606a")
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, y = place(repairs, points[-1])
        while any(abs(y - other) < 14 for other in ends):
            y += 14
        ends.append(y)
        parts.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{name} {points[-1]:.1f} %</text>')
    return "\n".join([*parts, "</svg>\n"])


def table(found: Mapping[str, Mapping[str, Row]], names: Sequence[str], repairs: int) -> str:
    heads = "".join(f" {after} |" for after in range(repairs + 1))
    lines = [
        f"| arm |{heads} visible pass, hidden fail | empty successes | ended by the time limit |",
        f"|---|{'---|' * (repairs + 4)}",
    ]
    for name, arm in found.items():
        points = curve(arm, names, repairs)
        counts = "".join(f" {round(point * len(names) / 100)} ({point:.1f} %) |" for point in points)
        attempts = [one for problem in names for one in arm[problem]["attempts"]]
        false = sum(one["visible"] and not one["hidden"] for one in attempts)
        empty = sum(one["visible"] and one["empty"] for one in attempts)
        ended = sum(one["exit"] == 124 for one in attempts)
        lines.append(f"| {name} |{counts} {false} | {empty} | {ended} |")
    return "\n".join(lines)


def write_report(results: Path, target: Path, repairs: int, arms: Sequence[str]) -> None:
    """A table at `target`, and the curve beside it as humaneval.svg. SystemExit where there is nothing to show."""
    found = {name: arm for name, arm in rows(results).items() if name in arms} if results.is_file() else {}
    names = common(found, repairs)
    if not names:
        raise SystemExit(f"{results} holds no problem that all of {', '.join(arms)} have done with {repairs} repairs")
    words = f"{len(names)} problems, of HumanEval/{names[0].rpartition('/')[2]} to {names[-1].rpartition('/')[2]}"
    failed = [name for name in names if not solved(next(iter(found.values()))[name], 0)]
    target.write_text(f"{words}; {len(failed)} not solved at once.\n\n{table(found, names, repairs)}\n")
    curves = {name: curve(arm, names, repairs) for name, arm in found.items()}
    target.with_name("humaneval.svg").write_text(draw(curves, len(names), repairs))
