"""What a command that says nothing costs in a workspace of many files, over the same in an empty one.

    python -m bench.silent --files 150000 --json figures.json
    python -m bench.silent --base ../at-90cacfa          (the same in another checkout, this one's libraries)

The real `stockade run` with a scripted model; a turn lasts from one answer of the model to the next, by its own record,
everything included that runs between. The files are the user's (`given`) or the bot's (`made` by a command of
the run itself). Under `copy` the state lies on an overlayfs, where none can be mounted: as root only.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from bench import table
from bench.client import ROOT, source_path
from bench.command import machine

PER_FOLDER = 100
COMMAND = "true {number}"
MAKE = "for d in $(seq {folders}); do mkdir m$d; (cd m$d; seq -f f%g 100 | xargs touch); done"
ON_OVERLAY = """
mount -t tmpfs none "$0" && mkdir "$0/a" "$0/b" "$0/c" "$0/d" &&
mount -t overlay none -o "lowerdir=$0/a,upperdir=$0/b,workdir=$0/c" "$0/d" && export XDG_STATE_HOME="$0/d" && exec "$@"
"""


@dataclass(frozen=True)
class Row:
    """Of one case: a turn in ms, and the strategy that the run had."""

    case: str
    strategy: str
    files: int
    median_ms: float
    tenth_ms: float


def fill(folder: Path, files: int) -> Path:
    for number in range(files // PER_FOLDER):
        inner = folder / f"d{number // 50}" / f"e{number}"
        inner.mkdir(parents=True)
        for name in range(PER_FOLDER):
            (inner / f"{name}.txt").write_text("x\n")
    folder.mkdir(exist_ok=True)
    return folder


def script(path: Path, before: Sequence[str], turns: int) -> Path:
    def call(tool: str, **arguments: object) -> str:
        function = {"name": tool, "arguments": json.dumps(arguments)}
        return json.dumps({"content": "", "tool_calls": [{"function": function}]})

    commands = [*before, *(COMMAND.format(number=number) for number in range(turns))]
    lines = [*(call("shell", command=command, timeout=600) for command in commands), call("finish", answer="x")]
    path.write_text("\n".join(lines) + "\n")
    return path


def measure(case: str, folder: Path, lines: Path, skip: int, *, copy: bool, source: Path, files: int) -> Row:
    """One run; its first `skip` turns are not counted."""
    with tempfile.TemporaryDirectory(prefix="stockade-silent-") as home:
        argv = [sys.executable, "-m", "stockade", "run", "x", "--folder", str(folder), "--json", "--no-input"]
        argv += ["--model", f"scripted/{lines}", "--max-turns", "0", "--timeout", "0"]
        if copy:
            (Path(home) / "m").mkdir()
            argv = ["unshare", "-m", "sh", "-c", ON_OVERLAY, f"{home}/m", *argv]
        environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": home, "PYTHONPATH": source_path(source)}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{case}: exit status {done.returncode}\n{done.stderr[-1500:]}")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    strategy = next(event["layers"][0]["strategy"] for event in events if event["type"] == "sandbox_started")
    answers = [event["at"] for event in events if event["type"] == "model_answered"][skip:]
    gaps = sorted(1000 * (after - before) for before, after in pairwise(answers))
    return Row(case, strategy, files, statistics.median(gaps), gaps[len(gaps) // 10])


def cases(place: Path, source: Path, files: int, turns: int) -> list[Row]:
    silent = script(place / "silent.jsonl", (), turns)
    making = script(place / "making.jsonl", (MAKE.format(folders=files // PER_FOLDER),), turns)
    empty, big = place / "empty", place / "big"
    rows = []
    for copy in (False, True) if os.geteuid() == 0 else (False,):
        rows += [
            measure("empty", empty, silent, 0, copy=copy, source=source, files=0),
            measure("given", big, silent, 0, copy=copy, source=source, files=files),
            measure("made", empty, making, 1, copy=copy, source=source, files=files),
        ]
    return rows


def drawn(rows: Sequence[Row]) -> str:
    """Each case over the empty folder of its strategy, by the tenth percentile: what a busy machine disturbs least."""
    empty = {row.strategy: row.tenth_ms for row in rows if not row.files}
    body = [
        [f"{row.case}, {row.strategy}", str(row.files), f"{row.median_ms:.1f}", f"{row.tenth_ms:.1f}",
         f"{row.tenth_ms / empty[row.strategy]:.1f}x"]
        for row in rows
    ]  # fmt: skip
    return table.draw(["files", "number", "turn ms, median", "p10", "of empty"], body)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.silent", description="What a silent command costs.")
    parser.add_argument("--files", type=int, default=150_000)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--base", type=Path, metavar="CHECKOUT", help="another version in place of this one")
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stockade-silent-", dir=Path.home()) as there:
        fill(Path(there) / "empty", 0)
        fill(Path(there) / "big", chosen.files)
        rows = cases(Path(there), (chosen.base or ROOT).resolve(), chosen.files, chosen.turns)
    print(drawn(rows))
    print(", ".join(f"{name} {value}" for name, value in machine().items()), f"({time.monotonic() - began:.0f} s)")
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
