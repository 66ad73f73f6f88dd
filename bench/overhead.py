"""What a turn costs: ours beside mini-swe-agent, smolagents and a 60-line floor, on the same work in the same run.

    python bench/overhead.py --json figures.json
    python bench/overhead.py --no-peers --turns 10,50 --rounds 1

Everything is in the package `bench`; this file only makes it importable when it is called by its path.
"""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    runpy.run_module("bench.command", run_name="__main__", alter_sys=False)
