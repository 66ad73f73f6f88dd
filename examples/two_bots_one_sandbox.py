"""Two bots, one after the other, in one sandbox: the second finds what the first has left.

python examples/two_bots_one_sandbox.py
"""

import os
from pathlib import Path

from stockade import Bot, Sandbox

MODEL = os.environ.get("STOCKADE_MODEL", "auto")

with Sandbox(folder=Path(__file__).parent / "demo") as box:
    for task in ("Sort data.csv into sorted.csv", "What is the first line of sorted.csv?"):
        result = Bot(model=MODEL, sandbox=box).run(task, max_iterations=8)
        print(result.answer if result else f"no answer: {result.error}")
    print([line[6:] for line in box.diff().splitlines() if line.startswith("+++ b/")])
