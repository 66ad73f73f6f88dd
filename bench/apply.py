"""What applying costs, beside `cp -a` of the same files and `sync`: `python -m bench.apply [--files N] [--rounds N]`.

A real run writes every file of a folder anew; then `stockade apply` and, in turn with it, the plain copy of what was
written. Both are the whole command, in the folder for temporary files. `--beside N`: the folder holds N more files that
nobody changes; `--undo`: undo is timed too.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.contenders import STOCKADE

_FOLDERS = 200
_WORK = "for d in d*; do for f in $d/*; do echo changed >> $f; done; done"


def _fill(folder: Path, name: str, files: int) -> None:
    for number in range(files):
        place = folder / f"{name}{number % _FOLDERS}"
        place.mkdir(exist_ok=True)
        (place / f"f{number}").write_text(f"line {number}\n" * 50)


def _timed(argv: Sequence[str], env: dict[str, str], cwd: Path) -> float:
    begun = time.monotonic()
    subprocess.run(argv, env=env, cwd=cwd, check=True, capture_output=True)
    return time.monotonic() - begun


def measure(files: int, beside: int, *, undo: bool) -> dict[str, float]:
    """Seconds of each command; the copy is made of the files as they are applied."""
    top = Path(tempfile.mkdtemp(prefix="stockade-bench-"))
    try:
        folder, env = top / "folder", {**os.environ, "XDG_STATE_HOME": str(top / "state")}
        folder.mkdir()
        _fill(folder, "d", files)
        _fill(folder, "same", beside)
        script = top / "script.jsonl"
        answers = [{"tool": "shell", "command": _WORK, "timeout": 900}, {"tool": "finish", "answer": "done"}]
        lines = [json.dumps({"content": json.dumps({"thought": "", "action": action})}) for action in answers]
        script.write_text("".join(f"{line}\n" for line in lines))
        argv = [str(STOCKADE), "run", "x", "--folder", ".", "--model", f"scripted/{script}", "--no-input"]
        subprocess.run(argv, env=env, cwd=folder, check=True, capture_output=True)
        os.sync()
        found = {"apply": _timed([str(STOCKADE), "apply", "last"], env, folder)}
        assert (folder / "d0" / "f0").read_text().endswith("changed\n")
        os.sync()
        found["cp -a; sync"] = _timed(["sh", "-c", "mkdir ../copy && cp -a d* ../copy && sync"], env, folder)
        if undo:
            found["undo"] = _timed([str(STOCKADE), "undo", "last"], env, folder)
            assert (folder / "d0" / "f0").read_text() == "line 0\n" * 50
        return found
    finally:
        shutil.rmtree(top)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--beside", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--undo", action="store_true")
    given = parser.parse_args()
    ratios = []
    for _ in range(given.rounds):
        found = measure(given.files, given.beside, undo=given.undo)
        ratios.append(found["apply"] / found["cp -a; sync"])
        print(", ".join(f"{name} {seconds:.1f} s" for name, seconds in found.items()), f"ratio {ratios[-1]:.1f}")
    what = f"{given.files} files changed, {given.beside} beside them"
    print(f"{what}: {statistics.median(ratios):.1f} times cp -a and sync (median)")


if __name__ == "__main__":
    main()
