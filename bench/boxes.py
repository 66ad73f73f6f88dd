"""The command line of bench/sandbox.py: everyone in turn, command by command, so that load meets all alike."""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio
from tests.support.engines import engine_environment

from bench import crowd
from bench.command import machine
from bench.cpu_group import counted
from bench.figures import tenth
from bench.table import draw
from bench.ways import BARE, Ours, Way, field, note
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.overlay import Review
from stockade_sandbox.policy import FolderRule, Policy

COMMANDS = ("echo 1", "/bin/true")
PAUSE_S = 0.005
"""Between two commands, for whatever a shell does after its answer: a model thinks for longer."""
SLOW_S = 0.05
"""Ways slower than this run a tenth of the commands."""


@dataclass(frozen=True)
class Cost:
    """One way and one command: wall ms (tenth, median), CPU ms of all its processes, and ratios to the open bash."""

    way: str
    command: str
    times: int
    p10_ms: float
    median_ms: float
    cpu_ms: float
    over_p10_ms: float
    over_median_ms: float


@dataclass(frozen=True)
class Start:
    """From nothing until it is ready; wall ms: tenth and median; CPU ms of all processes, 0 where it is not known."""

    what: str
    p10_ms: float
    median_ms: float
    cpu_p10_ms: float
    cpu_median_ms: float


async def costs(ways: Sequence[Way], repeats: int, pause_s: float) -> list[Cost]:
    found: list[Cost] = []
    for command in COMMANDS:
        walls: dict[str, list[float]] = {way.name: [] for way in ways}
        cpus = dict.fromkeys(walls, 0.0)
        every = {way.name: 10 if (await way.run(command))[0] > SLOW_S else 1 for way in ways}
        before = {way.name: way.others_s() for way in ways}
        for number in range(repeats):
            for way in ways:
                if number % every[way.name]:
                    continue
                if pause_s:
                    await anyio.sleep(pause_s)
                wall, cpu = await way.run(command)
                walls[way.name].append(wall)
                cpus[way.name] += cpu
        for way in ways:
            cpus[way.name] += way.others_s() - before[way.name]
        found += [_cost(name, command, walls[name], walls[ways[0].name], cpus[name]) for name in walls]
    return found


def _cost(way: str, command: str, walls: Sequence[float], least: Sequence[float], cpu_s: float) -> Cost:
    low, middle = 1000 * tenth(walls), 1000 * statistics.median(walls)
    over = low - 1000 * tenth(least), middle - 1000 * statistics.median(least)
    return Cost(way, command, len(walls), low, middle, 1000 * cpu_s / len(walls), *over)


async def starts(backends: Sequence[str], base: Path, repeats: int) -> list[Start]:
    """Two kinds of bare bubblewrap beside ours, in turn: the whole life of theirs, of ours until it is ready."""
    folder = base / "folder"
    folder.mkdir()
    (folder / "file").write_text("text\n")
    spent: dict[str, list[tuple[float, float]]] = {}
    with counted() as cpu_s:

        def note_spent(what: str, begun: float, before: float) -> None:
            spent.setdefault(what, []).append((time.perf_counter() - begun, cpu_s() - before))

        for number in range(repeats):
            for what, argv in BARE.items():
                begun, before = time.perf_counter(), cpu_s()
                subprocess.run([*argv, "true"], check=True)  # noqa: ASYNC221 - timed alone
                note_spent(what, begun, before)
            for backend in backends:
                ours = Ours(backend, base / f"{backend}-{number}")
                begun, before = time.perf_counter(), cpu_s()
                await ours.open()
                note_spent(ours.name, begun, before)
                await ours.close()
            for mode in ("ro", "overlay"):
                policy = Policy(folders=(FolderRule(host=str(folder), mode=mode),))
                begun, before = time.perf_counter(), cpu_s()
                layers = prepare_layers(policy, base / f"{mode}-{number}")
                async with BubblewrapSandbox(policy, layers, base / f"{mode}-{number}"):
                    note_spent(f"stockade bubblewrap, a folder ({mode})", begun, before)
                for layer in layers:
                    Review().discard(layer)
    return [_start(what, *zip(*pairs, strict=True)) for what, pairs in spent.items()]


def _start(what: str, walls: Sequence[float], cpus: Sequence[float]) -> Start:
    figures = (tenth(walls), statistics.median(walls), tenth(cpus), statistics.median(cpus))
    return Start(what, *(1000 * figure for figure in figures))


def drawn_costs(found: Sequence[Cost], title: str) -> str:
    head = [title, "command", "p10 ms", "median ms", "CPU ms", "over open bash, p10", "median"]
    return draw(head, [
        [one.way, one.command, f"{one.p10_ms:.2f}", f"{one.median_ms:.2f}", f"{one.cpu_ms:.2f}",
         f"{one.over_p10_ms:+.2f}", f"{one.over_median_ms:+.2f}"]
        for one in sorted(found, key=lambda one: COMMANDS.index(one.command))
    ])  # fmt: skip


def drawn_starts(found: Sequence[Start]) -> str:
    least = found[0]
    head = ["start", "CPU p10 ms", "CPU median ms", "times bare, p10", "median", "wall p10 ms", "wall median ms",
            "times bare, p10", "median"]  # fmt: skip
    return draw(head, [
        [one.what, f"{one.cpu_p10_ms:.1f}", f"{one.cpu_median_ms:.1f}", _times(one.cpu_p10_ms, least.cpu_p10_ms),
         _times(one.cpu_median_ms, least.cpu_median_ms), f"{one.p10_ms:.1f}", f"{one.median_ms:.1f}",
         _times(one.p10_ms, least.p10_ms), _times(one.median_ms, least.median_ms)]
        for one in found
    ])  # fmt: skip


def _times(one: float, least: float) -> str:
    return f"{one / least:.1f}x" if least else "-"


def drawn_crowd(one: crowd.Crowd) -> str:
    head = ["at once", "all started s", "answered", "answers s", "processes", "PSS MB", "our own MB", "MB each",
            "less available MB", "all gone s", "left"]  # fmt: skip
    body = [str(one.count), f"{one.start_s:.1f}", str(one.answered), f"{one.answer_s:.2f}", str(one.processes),
            f"{one.sandboxes_mb:.0f}", f"{one.host_mb:.0f}", f"{one.each_mb:.2f}", f"{one.available_mb:.0f}",
            f"{one.end_s:.1f}", str(one.left)]  # fmt: skip
    return draw(head, [body])


async def _commands(backends: Sequence[str], base: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    async with AsyncExitStack() as stack:
        ways = field(backends, base, peers=chosen.peers)
        for way in ways:
            note(f"opening {way.name}")
            await way.open()
            stack.push_async_callback(way.close)
        for title, pause_s in (("one after the other", 0.0), (f"{PAUSE_S * 1000:g} ms apart", PAUSE_S)):
            found = await costs(ways, chosen.repeats, pause_s)
            print(f"{drawn_costs(found, title)}\n", flush=True)
            figures[title] = [asdict(one) for one in found]
    return figures


async def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Prints the tables as they come."""
    backends = chosen.backends.split(",")
    if chosen.own_engines:
        for engine in {"docker", "podman"} & set(backends):
            os.environ.update(engine_environment(engine))
    figures: dict[str, Any] = {"machine": machine()}
    with tempfile.TemporaryDirectory(prefix="stockade-bench-") as root:
        os.chmod(root, 0o755)
        base = Path(root)
        if chosen.repeats:
            figures |= await _commands(backends, base, chosen)
        begun = await starts(backends, base, chosen.starts)
        print(f"{drawn_starts(begun)}\n", flush=True)
        figures["start"] = [asdict(one) for one in begun]
        if chosen.count:
            many = await crowd.measure(chosen.count, base / "crowd")
            print(f"{drawn_crowd(many)}\n")
            figures["crowd"] = asdict(many)
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    return figures


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/sandbox.py", description="What a sandbox costs, beside others.")
    parser.add_argument("--repeats", type=int, default=200, help="commands each way, 0: none (default: %(default)s)")
    parser.add_argument("--starts", type=int, default=20, help="starts each way (default: %(default)s)")
    parser.add_argument("--count", type=int, default=200, help="sandboxes at once, 0: none (default: %(default)s)")
    parser.add_argument("--backends", default="bubblewrap", help="docker, podman and gvisor too, with commas")
    parser.add_argument(
        "--own-engines", action="store_true", help="a dockerd and a Podman storage for this run, as root"
    )
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="other projects' shells")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    return parser.parse_args(arguments)


def main() -> None:
    chosen = options()
    figures = anyio.run(measure, chosen)
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
