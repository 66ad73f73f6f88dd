"""Records a real run to docs/run.svg: `python bench/picture.py [--model PROVIDER/NAME]`.

The run is the main job of the README, on a copy of examples/demo, in a record of its own. What is drawn is what
`stockade run` writes to a terminal, by the same renderer.
"""

import argparse
import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).parent.parent
TASK = "Write the number of lines of data.csv into count.txt"
WIDTH = 100


def recorded(model: str, folder: Path) -> str:
    """Everything a person sees of the run, with its colours; RuntimeError when it did not succeed."""
    command = [sys.executable, "-m", "stockade.cli", "run", TASK, "--folder", "demo", "--model", model, "--apply"]
    environment = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color", "CI": "1", "COLUMNS": str(WIDTH)}
    environment["XDG_STATE_HOME"] = str(folder / "state")
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the run ended with status {done.returncode}:\n{done.stdout}")
    return done.stdout.replace(f"{folder}/", "./")


def draw(session: str, target: Path) -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.assemble(("$ ", "bold green"), f'stockade run "{TASK}" --folder ./demo --apply'))
    console.print(Text.from_ansi(session))
    target.parent.mkdir(exist_ok=True)
    target.write_text(console.export_svg(title="stockade", theme=MONOKAI, unique_id="stockade-run"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="auto")
    parser.add_argument("--target", type=Path, default=ROOT / "docs" / "run.svg")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stockade-picture-") as name:
        shutil.copytree(ROOT / "examples" / "demo", Path(name) / "demo")
        draw(recorded(arguments.model, Path(name)), arguments.target)
    print(f"wrote {arguments.target}")


if __name__ == "__main__":
    main()
