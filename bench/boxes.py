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

from bench import crowd
from bench.command import machine
from bench.figures import tenth
from bench.table import draw
from bench.ways import BWRAP, Ours, Way, field, note
from stockade.core.policy import FolderRule, Policy
from stockade.sandboxes.bubblewrap import BubblewrapSandbox, prepare_layers
from stockade.sandboxes.folders import Review

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
    """From nothing until it is ready; wall ms: tenth and median."""

    what: str
    p10_ms: float
    median_ms: float


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
    """Bare `bwrap --unshare-all true` beside ours, in turn."""
    folder = base / "folder"
    folder.mkdir()
    (folder / "file").write_text("text\n")
    walls: dict[str, list[float]] = {}
    for number in range(repeats):
        begun = time.perf_counter()
        subprocess.run([*BWRAP, "true"], check=True)  # noqa: ASYNC221 - timed alone
        walls.setdefault("bwrap --unshare-all true", []).append(time.perf_counter() - begun)
        for backend in backends:
            ours = Ours(backend, base / f"{backend}-{number}")
            begun = time.perf_counter()
            await ours.open()
            walls.setdefault(ours.name, []).append(time.perf_counter() - begun)
            await ours.close()
        walls.setdefault("stockade bubblewrap, overlay", []).append(await _with_folder(folder, base / f"o-{number}"))
    return [Start(name, 1000 * tenth(times), 1000 * statistics.median(times)) for name, times in walls.items()]


async def _with_folder(folder: Path, base: Path) -> float:
    policy = Policy(folders=(FolderRule(host=str(folder)),))
    begun = time.perf_counter()
    layers = prepare_layers(policy, base)
    async with BubblewrapSandbox(policy, layers, base):
        spent = time.perf_counter() - begun
    for layer in layers:
        Review().discard(layer)
    return spent


def drawn_costs(found: Sequence[Cost], title: str) -> str:
    head = [title, "command", "p10 ms", "median ms", "CPU ms", "over open bash, p10", "median"]
    return draw(head, [
        [one.way, one.command, f"{one.p10_ms:.2f}", f"{one.median_ms:.2f}", f"{one.cpu_ms:.2f}",
         f"{one.over_p10_ms:+.2f}", f"{one.over_median_ms:+.2f}"]
        for one in sorted(found, key=lambda one: COMMANDS.index(one.command))
    ])  # fmt: skip


def drawn_starts(found: Sequence[Start]) -> str:
    least = found[0]
    return draw(["start", "p10 ms", "median ms", "times bare, p10", "median"], [
        [one.what, f"{one.p10_ms:.1f}", f"{one.median_ms:.1f}", f"{one.p10_ms / least.p10_ms:.1f}x",
         f"{one.median_ms / least.median_ms:.1f}x"]
        for one in found
    ])  # fmt: skip


def drawn_crowd(one: crowd.Crowd) -> str:
    head = ["at once", "all started s", "answered", "answers s", "processes", "PSS MB", "our own MB", "MB each",
            "less available MB", "all gone s", "left"]  # fmt: skip
    body = [str(one.count), f"{one.start_s:.1f}", str(one.answered), f"{one.answer_s:.2f}", str(one.processes),
            f"{one.sandboxes_mb:.0f}", f"{one.host_mb:.0f}", f"{one.each_mb:.2f}", f"{one.available_mb:.0f}",
            f"{one.end_s:.1f}", str(one.left)]  # fmt: skip
    return draw(head, [body])


async def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Prints the tables as they come."""
    backends = chosen.backends.split(",")
    figures: dict[str, Any] = {"machine": machine()}
    with tempfile.TemporaryDirectory(prefix="stockade-bench-") as root:
        os.chmod(root, 0o755)
        base = Path(root)
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
        begun = await starts(backends, base, max(2, chosen.repeats // 20))
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
    parser.add_argument("--repeats", type=int, default=200, help="commands each way (default: %(default)s)")
    parser.add_argument("--count", type=int, default=200, help="sandboxes at once, 0: none (default: %(default)s)")
    parser.add_argument("--backends", default="bubblewrap", help="docker, podman and gvisor too, with commas")
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
