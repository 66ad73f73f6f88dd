"""What a sandbox costs: start, each command, and hundreds at once; ours beside bare bash and other projects' shells.

    python bench/sandbox.py --json figures.json
    python bench/sandbox.py --no-peers --count 50 --repeats 50
    python bench/sandbox.py --backends bubblewrap,gvisor,docker,podman --own-engines
    python bench/sandbox.py beside --npm FOLDER     docker, runsc, srt, codex and swe-rex side by side (bench/rivals.py)

Everything is in the package `bench`; this file only makes it importable when it is called by its path.
"""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    beside = sys.argv[1:2] == ["beside"]
    del sys.argv[1 : 1 + beside]
    runpy.run_module("bench.rivals" if beside else "bench.boxes", run_name="__main__", alter_sys=False)
