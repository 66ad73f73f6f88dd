"""What it costs to start: `--help`, imports, and one program in a sandbox, each in a fresh process.

python -m bench.start --beside "srt true=srt true" --beside "before=OTHER/.venv/bin/stockade sandbox exec -- true"
"""

import argparse
import os
import shlex
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.contenders import PYTHON, STOCKADE
from bench.table import draw

REPEATS = 5
COMMANDS: dict[str, Sequence[str]] = {
    "python -c pass": [PYTHON, "-c", "pass"],
    "stockade --help": [str(STOCKADE), "--help"],
    "stockade run --help": [str(STOCKADE), "run", "--help"],
    "stockade runs --help": [str(STOCKADE), "runs", "--help"],
    "stockade runs list": [str(STOCKADE), "runs", "list"],
    "stockade sandbox exec -- true": [str(STOCKADE), "sandbox", "exec", "--", "true"],
    "bwrap true": ["bwrap", "--ro-bind", "/", "/", "--unshare-all", "true"],
    "import stockade": [PYTHON, "-c", "import stockade"],
    "import stockade_sandbox.api": [PYTHON, "-c", "import stockade_sandbox.api"],
    "import httpx2": [PYTHON, "-c", "import httpx2"],
    "import pydantic": [PYTHON, "-c", "import pydantic"],
}


@dataclass(frozen=True)
class Start:
    """CPU (user and system, children included) of a process from its start to its end: the median, and the least."""

    name: str
    cpu_ms: float
    least_ms: float


def measure(commands: Mapping[str, Sequence[str]] = COMMANDS, rounds: int = REPEATS) -> list[Start]:
    """Each once a round, so that what else the machine does meets all of them."""
    found: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, argv in commands.items():
            found[name].append(_cpu_ms(argv))
    return [Start(name, statistics.median(costs), min(costs)) for name, costs in found.items()]


def _cpu_ms(argv: Sequence[str]) -> float:
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise subprocess.CalledProcessError(process.returncode, list(argv))
    return 1000 * (usage.ru_utime + usage.ru_stime)


def drawn(starts: Sequence[Start]) -> str:
    rows = [[one.name, f"{one.cpu_ms:.0f}", f"{one.least_ms:.0f}"] for one in starts]
    return draw(["start", "CPU ms, median", "least"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--beside", action="append", default=[], metavar="NAME=COMMAND")
    chosen = parser.parse_args()
    others = {name: shlex.split(command) for name, _, command in (one.partition("=") for one in chosen.beside)}
    print(drawn(measure({**COMMANDS, **others}, chosen.rounds)))


if __name__ == "__main__":
    main()
