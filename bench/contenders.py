"""Who takes part, and how each is started."""

import os
import subprocess
import sys
from pathlib import Path

from bench.client import ROOT, Contender, source_path

BENCH = ROOT / "bench"
PYTHON = sys.executable
STOCKADE = Path(PYTHON).with_name("stockade")

FLOOR = Contender("floor (httpx2)", [PYTHON, f"{BENCH}/floor.py", "httpx2"], {})
STDLIB = Contender("floor (http.client)", [PYTHON, f"{BENCH}/floor.py", "stdlib"], {})
LOOP = Contender("stockade loop", [PYTHON, f"{BENCH}/ours_loop.py", "{home}/runs.db"], {})
RUN = Contender(
    "stockade run",
    [str(STOCKADE), "run", "Do what you want.", "--json", "--model", "openai/fake", "--answers", "json",
     "--max-turns", "0", "--timeout", "0", "--no-input", "--no-folder"],
    {},
)  # fmt: skip
OURS = (FLOOR, STDLIB, LOOP, RUN)


def pair(base: Path) -> tuple[Contender, Contender]:
    """`stockade run` of this checkout and of `base`, another one: the same interpreter and libraries.

    One from before there was a folder by default has no `--no-folder`.
    """

    def of(root: Path, name: str) -> Contender:
        command, environment = [PYTHON, "-m", "stockade"], {"PYTHONPATH": source_path(root)}
        told = subprocess.check_output([*command, "run", "--help"], env=os.environ | environment, text=True)
        known = [word for word in RUN.argv[1:] if word != "--no-folder" or word in told]
        return Contender(name, [*command, *known], environment)

    return of(ROOT, "stockade run, here"), of(base.resolve(), f"stockade run, {base.name}")
