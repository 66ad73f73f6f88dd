"""What it costs to start: `--help` and imports, each in a fresh process."""

import os
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from bench.contenders import PYTHON, STOCKADE
from bench.table import draw

REPEATS = 5
COMMANDS: dict[str, Sequence[str]] = {
    "python -c pass": [PYTHON, "-c", "pass"],
    "stockade --help": [str(STOCKADE), "--help"],
    "stockade run --help": [str(STOCKADE), "run", "--help"],
    "import stockade": [PYTHON, "-c", "import stockade"],
    "import httpx2": [PYTHON, "-c", "import httpx2"],
    "import pydantic": [PYTHON, "-c", "import pydantic"],
}


@dataclass(frozen=True)
class Start:
    """CPU (user and system, children included) of a process from its start to its end; median of REPEATS."""

    name: str
    cpu_ms: float


def measure() -> list[Start]:
    return [Start(name, statistics.median(_cpu_ms(argv) for _ in range(REPEATS))) for name, argv in COMMANDS.items()]


def _cpu_ms(argv: Sequence[str]) -> float:
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise subprocess.CalledProcessError(process.returncode, list(argv))
    return 1000 * (usage.ru_utime + usage.ru_stime)


def drawn(starts: Sequence[Start]) -> str:
    return draw(["start", "CPU ms"], [[one.name, f"{one.cpu_ms:.0f}"] for one in starts])
