"""Writes docs/security/attacks.md from a real run on every backend: `make attack-page`.

Ends with 1 when something got through that known.py does not list, or an attempt's control did not fire.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from stockade.core.errors import StockadeError
from stockade_sandbox.launcher.launch import launcher_bytes
from tests.attack.attempts import AREAS
from tests.attack.attempts.attempt import Attempt
from tests.attack.attempts.terminal import KEYS, SEQUENCES
from tests.attack.known import KNOWN
from tests.attack.runner import ENDED, HELD, THROUGH, Backend, attacked, backend, control, expected
from tests.attack.scene import Scene, scene
from tests.attack.terminal import shown_by_nobody, shown_by_stockade, typed_by
from tests.attack.together import SHARING, attacked_together
from tests.support.engines import engine_environment

PAGE = Path(__file__).parents[2] / "docs/security/attacks.md"
BROKE, OWN = "**could not be tried**", "as bubblewrap"
KNOWN_LIMIT = "got through: known"
ALL = ["bubblewrap", "docker", "podman", "gvisor"]
TERMINAL = "the person's terminal"
INTRODUCTION = """\
Made by `make attack-page` from a real run; do not edit. Each attempt was first made without a sandbox, as root on the
bare host, and got through there (*fired*): one that cannot get through proves nothing by failing. Then it was made
from inside sandboxes on an overlay of the same folder. Those that only look or call share one sandbox a backend, which
had to be alive after each; those on resources and on what is left for the host have one each (*held, by its end*: the
sandbox was ended, by name, and with it the attack). What is *left for the host* was judged by using the folder as a
person would, after every change the review had nothing against was applied. The tests make every attempt on bubblewrap
in a sandbox of its own besides. Attempts on the network proxy are in `tests/attack/test_egress.py`.\
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
        return anyio.run(attacked, attempt, stage, base, tried)
    except (StockadeError, AssertionError) as error:
        sys.stderr.write(f"{tried.name}: {attempt.name}: {error}\n")
        return BROKE


def _shared(tried: Backend, stage: Scene, base: Path) -> dict[str, str]:
    """Of the attempts that may share a sandbox."""
    stage.reset()
    return anyio.run(attacked_together, SHARING, stage, base, tried)


def shown(attempt: Attempt, backend: str, outcome: str) -> str:
    """The cell for an outcome: a surprise is bold."""
    if outcome in expected(attempt, backend):
        return KNOWN_LIMIT if outcome == THROUGH else outcome
    return outcome if outcome.startswith("**") else BROKE


def _rows(tried: Backend, folder: Path) -> Iterator[Row]:
    """Of one backend. The controls are made beside the default one."""
    probe = folder / "probe"
    probe.write_bytes(launcher_bytes())
    probe.chmod(0o755)
    with scene(str(probe)) as stage:
        os.environ.update(stage.loose)
        together = _shared(tried, stage, folder / "shared")
        for area, attempts in AREAS.items():
            for number, attempt in enumerate(attempts):
                stage.reset()
                proved = tried.name != ALL[0] or control(attempt, stage)
                outcome = together.get(attempt.name) or _result(attempt, stage, folder / f"{area}-{number}", tried)
                result = shown(attempt, tried.name, outcome)
                sys.stderr.write(f"{tried.name}: {attempt.name}: {'' if proved else 'NOT FIRED, '}{result}\n")
                yield Row(area, attempt.name, proved, (result,))


def _alone(name: str) -> None:
    """The rows of one backend as JSON on stdout; in a process of its own, as the scene is in the environment."""
    if name in ("docker", "podman"):
        os.environ.update(engine_environment(name))
    with tempfile.TemporaryDirectory(prefix="stockade-page-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        json.dump(
            [(row.area, row.name, row.proved, row.results) for row in _rows(backend(name), Path(folder))], sys.stdout
        )


def _all(names: Sequence[str]) -> list[Row]:
    """The backends side by side, each in a process and a scene of its own."""
    command = [sys.executable, "-m", "tests.attack.page", "--rows"]
    processes = [subprocess.Popen([*command, name], stdout=subprocess.PIPE) for name in names]
    tables = [json.loads(process.communicate()[0]) for process in processes]
    return [Row(rows[0][0], rows[0][1], rows[0][2], tuple(row[3][0] for row in rows))
            for rows in zip(*tables, strict=True)]  # fmt: skip


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
        held = [sum(row.results[at] in (HELD, ENDED, OWN) for row in mine) for at in range(len(backends))]
        counts = [len(mine), sum(row.proved for row in mine), *held]
        lines.append(f"| {area or '**all**'} | {' | '.join(map(str, counts))} |")
    for area in areas:
        lines += ["", f"## {area[0].upper()}{area[1:]}", ""]
        lines += [f"| attempt | control | {' | '.join(backends)} |", "|---|---|" + "---|" * len(backends)]
        for row in rows:
            if row.area == area:
                proved = "fired" if row.proved else "not proved"
                lines.append(f"| {cell(row.name)} | {proved} | {' | '.join(row.results)} |")
    return "\n".join([*lines, *_known(backends)]) + "\n"


def _known(backends: Sequence[str]) -> list[str]:
    """The table of tests/attack/known.py."""
    words = {"through": "gets through", "ends": "ends the sandbox", "unmade": "cannot be made"}
    rows = [f"| {one.backend} | {cell(one.attempt)} | {words[one.how]} | {cell(one.reason)} |"
            for one in KNOWN if one.backend in backends]  # fmt: skip
    return ["", "## Known differences", "", "| backend | attempt | what happens | why |", "|---|---|---|---|", *rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("backends", nargs="*", default=ALL[1:], metavar="BACKEND", help=f"beside {ALL[0]}: {ALL[1:]}")
    parser.add_argument("--rows", metavar="BACKEND", help="only one's rows, as JSON")
    given = parser.parse_args()
    if given.rows:
        _alone(given.rows)
        return 0
    names = [ALL[0], *given.backends]
    rows = _all(names)
    with tempfile.TemporaryDirectory(prefix="stockade-page-", ignore_cleanup_errors=True) as folder:
        rows += _on_a_terminal(len(names), Path(folder))
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(rows, names))
    sys.stdout.write(f"{PAGE}\n")
    surprises = [row for row in rows if not row.proved or {THROUGH, BROKE} & set(row.results)]
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
