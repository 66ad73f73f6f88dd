"""What a big folder costs: a sandbox over it until it is ready, its first command, and the difference that a bot makes.

    python -m bench.folders --base DIR --files 200000 --rounds 5

The folder has `--files` small files and one of 5 GB that holds nothing (a sparse one). What this process reads of it
all is told too, by /proc/self/io. Run it as root and as an ordinary user: the latter has to look for files of others.
"""

import argparse
import os
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from bench.table import draw
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.overlay import Review
from stockade_sandbox.policy import GIB, FolderRule, Limits, Policy

EACH = 500
LARGE = 5 * 10**9
CHANGES = "echo 1 > d3/f3; rm d4/f4; echo 2 > d5/new; mv d6/f6 d6/g6"
TOUCHES = "touch large"
LIMITS = Limits(file_bytes=8 * GIB, disk_bytes=16 * GIB)


@dataclass
class Spent:
    """By step, what each round took in ms and read in bytes."""

    ms: dict[str, list[float]] = field(default_factory=dict)
    read: dict[str, list[int]] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        before, begun = _read_bytes(), time.perf_counter()
        yield
        self.ms.setdefault(name, []).append(1000 * (time.perf_counter() - begun))
        self.read.setdefault(name, []).append(_read_bytes() - before)


def _read_bytes() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def fill(folder: Path, files: int) -> None:
    for number in range(files // EACH):
        (folder / f"d{number}").mkdir(parents=True)
        for name in range(EACH):
            (folder / f"d{number}/f{name}").write_bytes(b"x\n")
    with (folder / "large").open("wb") as file:
        file.truncate(LARGE)


async def measure(folder: Path, base: Path, rounds: int) -> Spent:
    spent, policy = Spent(), Policy(folders=(FolderRule(host=str(folder)),), limits=LIMITS)
    for number in range(rounds + 1):  # the first finds out about the machine
        spent = spent if number > 1 else Spent()
        with spent.step("start"):
            layers = prepare_layers(policy, base / str(number))
            box = BubblewrapSandbox(policy, layers, base / str(number))
            await box.__aenter__()
        with spent.step("first command"):
            await box.run("true")
        assert (await box.run(CHANGES)).exit_code == 0
        with spent.step("difference of 5 changes"):
            changes = Review().changes(layers[0])
        assert len(changes) == 5, changes
        with spent.step("touch the large file, inside"):
            assert (await box.run(TOUCHES)).exit_code == 0
        with spent.step("difference, the large file touched"):
            Review().changes(layers[0])
        await box.__aexit__(None, None, None)
        Review().discard(layers[0])
    return spent


def drawn(spent: Spent, files: int) -> str:
    head = [f"{files} files", "median ms", "most ms", "read by us, KB"]
    return draw(head, [
        [name, f"{statistics.median(ms):.1f}", f"{max(ms):.1f}", f"{max(spent.read[name]) / 1000:.0f}"]
        for name, ms in spent.ms.items()
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True, help="the folder and its layers are made there")
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    base = chosen.base / f"folders-{os.getpid()}"
    try:
        fill(base / "folder", chosen.files)
        print(drawn(anyio.run(measure, base / "folder", base / "run", chosen.rounds), chosen.files), flush=True)
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
