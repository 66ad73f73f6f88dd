"""What the sandbox adds to a command: commands in its persistent shell beside the same ones without it."""

import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.figures import tenth
from bench.processes import living_cpu_s
from bench.table import draw
from stockade.core.policy import FolderRule, Policy
from stockade.sandboxes.bubblewrap import BubblewrapSandbox, prepare_layers
from stockade.sandboxes.folders import Review

REPEATS = 300
STARTS = 5
COMMANDS = ("echo 1", "/bin/true")


@dataclass(frozen=True)
class Cost:
    """Wall ms of one command: the tenth and the median of REPEATS, in each of the ways."""

    command: str
    sandboxed: tuple[float, float]
    fresh_bash: tuple[float, float]
    open_bash: tuple[float, float]


@dataclass(frozen=True)
class Sandboxed:
    """Start until ready, medians of STARTS; CPU is of this process and all it started, with and without a folder."""

    commands: tuple[Cost, ...]
    host_cpu_ms: float
    start_cpu_ms: float
    start_wall_ms: float
    start_folder_cpu_ms: float
    start_folder_wall_ms: float


def _cpu_s() -> float:
    usages = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _spread(times: Sequence[float]) -> tuple[float, float]:
    return 1000 * tenth(times), 1000 * statistics.median(times)


class OpenBash:
    """A plain bash that lives on, driven by a pipe: the least a persistent shell can cost."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, command: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}; echo; echo end\n".encode())
        self._process.stdin.flush()
        while self._process.stdout.readline() != b"end\n":
            pass

    def close(self) -> None:
        self._process.communicate()


async def _commands(sandbox: BubblewrapSandbox) -> tuple[tuple[Cost, ...], float]:
    """The three ways in turn, command by command, so that load meets all alike; and our own CPU ms a command."""
    costs, plain, own_s = [], OpenBash(), 0.0
    for command in COMMANDS:
        times: tuple[list[float], list[float], list[float]] = [], [], []
        for _ in range(REPEATS):
            begun, cpu = time.perf_counter(), time.process_time()
            await sandbox.run(command)
            own_s += time.process_time() - cpu
            first = time.perf_counter()
            subprocess.run(["bash", "-c", command], capture_output=True, check=True)  # noqa: ASYNC221 - timed alone
            second = time.perf_counter()
            plain.run(command)
            third = time.perf_counter()
            for kept, spent in zip(times, (first - begun, second - first, third - second), strict=True):
                kept.append(spent)
        costs.append(Cost(command, *map(_spread, times)))
    plain.close()
    return tuple(costs), 1000 * own_s / (REPEATS * len(COMMANDS))


async def _start(policy: Policy, base: Path) -> tuple[float, float]:
    """CPU ms and wall ms of one sandbox from nothing until it is ready."""
    cpu, begun = _cpu_s(), time.perf_counter()
    layers = prepare_layers(policy, base)
    async with BubblewrapSandbox(policy, layers, base):
        ready = time.perf_counter()
        spent = _cpu_s() - cpu + living_cpu_s(os.getpid())
    for layer in layers:
        Review().discard(layer)
    return 1000 * spent, 1000 * (ready - begun)


async def measure() -> Sandboxed:
    with tempfile.TemporaryDirectory(prefix="stockade-bench-") as root:
        os.chmod(root, 0o755)
        base, folder = Path(root) / "run", Path(root) / "folder"
        folder.mkdir()
        (folder / "file").write_text("text\n")
        bare, mounted = Policy(), Policy(folders=(FolderRule(host=str(folder)),))
        async with BubblewrapSandbox(bare, (), base) as sandbox:
            commands, host_cpu_ms = await _commands(sandbox)
        starts = [await _start(bare, base / f"bare-{number}") for number in range(STARTS)]
        with_folder = [await _start(mounted, base / f"folder-{number}") for number in range(STARTS)]
    medians = [statistics.median(column) for pairs in (starts, with_folder) for column in zip(*pairs, strict=True)]
    return Sandboxed(commands, host_cpu_ms, *medians)


def _pair(spread: tuple[float, float]) -> str:
    return f"{spread[0]:.2f} ({spread[1]:.2f})"


def drawn(measured: Sandboxed) -> str:
    head = ["ms, p10 (median)", "sandbox", "bash -c", "open bash", "over open bash"]
    body = [
        [cost.command, _pair(cost.sandboxed), _pair(cost.fresh_bash), _pair(cost.open_bash),
         f"{cost.sandboxed[0] - cost.open_bash[0]:+.2f} ({cost.sandboxed[1] - cost.open_bash[1]:+.2f})"]
        for cost in measured.commands
    ]  # fmt: skip
    starts = draw(
        ["sandbox start", "CPU ms", "wall ms"],
        [["no folder", f"{measured.start_cpu_ms:.0f}", f"{measured.start_wall_ms:.0f}"],
         ["overlay on a folder", f"{measured.start_folder_cpu_ms:.0f}", f"{measured.start_folder_wall_ms:.0f}"]],
    )  # fmt: skip
    return f"{draw(head, body)}\nour own CPU: {measured.host_cpu_ms:.2f} ms a command\n\n{starts}"
