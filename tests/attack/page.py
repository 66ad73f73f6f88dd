"""Writes docs/security/attacks.md from a real run: `make attack-page`, or with backends named, which takes longer.

Ends with 1 when something got through bubblewrap, or an attempt's control did not fire.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from stockade.core.errors import StockadeError
from stockade.sandboxes.launcher.launch import launcher_bytes
from tests.attack.attempts import AREAS
from tests.attack.attempts.attempt import Attempt
from tests.attack.attempts.terminal import KEYS, SEQUENCES
from tests.attack.runner import Backend, attacked, backend, control
from tests.attack.scene import Scene, scene
from tests.attack.terminal import shown_by_nobody, shown_by_stockade, typed_by
from tests.support.engines import engine_environment

PAGE = Path(__file__).parents[2] / "docs/security/attacks.md"
HELD, THROUGH, BROKE, OWN = "held", "**GOT THROUGH**", "could not be tried", "as bubblewrap"
TERMINAL = "the person's terminal"
INTRODUCTION = """\
Made by `make attack-page` from a real run; do not edit. Each attempt was first made without a sandbox, as root on the
bare host, and got through there (*fired*): one that cannot get through proves nothing by failing. Then it was made
from inside a sandbox on an overlay of the same folder, which had to be alive afterwards, unless ending it by name is
how it holds. What is *left for the host* was judged by using the folder as a person would, after every change the
review had nothing against was applied. Attempts on the network proxy are in `tests/attack/test_egress.py`.\
""".splitlines()


@dataclass(frozen=True)
class Row:
    area: str
    name: str
    proved: bool
    results: tuple[str, ...]


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def _result(attempt: Attempt, stage: Scene, base: Path, tried: Backend) -> str:
    stage.reset()
    try:
        return THROUGH if anyio.run(attacked, attempt, stage, base, tried) else HELD
    except (StockadeError, AssertionError) as error:
        sys.stderr.write(f"{tried.name}: {attempt.name}: {error}\n")
        return BROKE


def _sandboxed(backends: Sequence[Backend], folder: Path) -> Iterator[Row]:
    probe = folder / "probe"
    probe.write_bytes(launcher_bytes())
    probe.chmod(0o755)
    with scene(str(probe)) as stage:
        os.environ.update(stage.loose)
        for area, attempts in AREAS.items():
            for number, attempt in enumerate(attempts):
                stage.reset()
                proved = control(attempt, stage)
                bases = [folder / tried.name / f"{area}-{number}" for tried in backends]
                results = [_result(attempt, stage, *pair) for pair in zip(bases, backends, strict=True)]
                sys.stderr.write(
                    f"{area}: {attempt.name}: {'fired' if proved else 'NOT FIRED'}, {', '.join(results)}\n"
                )
                yield Row(area, attempt.name, proved, tuple(results))


def _on_a_terminal(count: int, folder: Path) -> Iterator[Row]:
    places = [folder / name for name in ("raw", "shown", "typed")]
    for place in places:
        place.mkdir()
    raw, shown = shown_by_nobody(places[0]), shown_by_stockade(places[1])
    others = (OWN,) * (count - 1)
    for name, sequence in SEQUENCES.items():
        yield Row(TERMINAL, f"showing {name}", sequence in raw, (THROUGH if sequence in shown else HELD, *others))
    for name, (program, evidence) in KEYS.items():
        proved = evidence in typed_by(program, places[2], sandboxed=False)
        got_through = evidence in typed_by(program, places[2], sandboxed=True)
        yield Row(TERMINAL, name, proved, (THROUGH if got_through else HELD, *others))


def page(rows: Sequence[Row], backends: Sequence[str]) -> str:
    lines = [
        "# Attacks",
        "",
        *INTRODUCTION,
        "",
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, Linux {platform.release()}, {platform.machine()}, as root.",
        "",
        f"| | attempts | fired without | {' | '.join(f'held by {name}' for name in backends)} |",
        "|---|" + "---:|" * (2 + len(backends)),
    ]
    areas = list(dict.fromkeys(row.area for row in rows))
    for area in [*areas, ""]:
        mine = [row for row in rows if area in (row.area, "")]
        held = [sum(row.results[at] in (HELD, OWN) for row in mine) for at in range(len(backends))]
        counts = [len(mine), sum(row.proved for row in mine), *held]
        lines.append(f"| {area or '**all**'} | {' | '.join(map(str, counts))} |")
    for area in areas:
        lines += ["", f"## {area[0].upper()}{area[1:]}", ""]
        lines += [f"| attempt | control | {' | '.join(backends)} |", "|---|---|" + "---|" * len(backends)]
        for row in rows:
            if row.area == area:
                proved = "fired" if row.proved else "not proved"
                lines.append(f"| {cell(row.name)} | {proved} | {' | '.join(row.results)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--also", nargs="*", default=[], metavar="BACKEND", help="docker, podman, gvisor")
    names = ["bubblewrap", *parser.parse_args().also]
    for name in names:
        if name in ("docker", "podman"):
            os.environ.update(engine_environment(name))
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="stockade-page-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        rows = list(_sandboxed([backend(name) for name in names], Path(folder)))
        os.environ.clear()
        os.environ.update(before)
        rows += _on_a_terminal(len(names), Path(folder))
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(rows, names))
    sys.stdout.write(f"{PAGE}\n")
    return 0 if all(row.proved and row.results[0] == HELD for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
