"""What one arm made of one task, and the file of such lines that a bench goes on from."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Ended = Literal["done", "turns", "loop", "malformed", "time", "error"]
"""`turns`: it never ended by itself, an endless loop. `loop`, `malformed`: the arm itself gave up, and said why."""


@dataclass(frozen=True)
class Tokens:
    """Of all requests of a run; `cached` is the part of `prompt` that the server had already."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0


@dataclass(frozen=True)
class Outcome:
    """`malformed` counts answers that held no action and cost a turn; `turns` are requests to the model."""

    arm: str
    task: str
    solved: bool
    ended: Ended
    turns: int
    malformed: int
    tokens: Tokens
    seconds: float
    answer: str = ""
    detail: str = ""

    @property
    def false_end(self) -> bool:
        """It said done, and it was not."""
        return self.ended == "done" and not self.solved


def append(file: Path, outcome: Outcome) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lines:
        lines.write(json.dumps(asdict(outcome), ensure_ascii=False) + "\n")


def read(file: Path) -> list[Outcome]:
    """Every outcome of a file; none when there is no such file. A last line that was cut is left out."""
    if not file.exists():
        return []
    found = []
    for line in file.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            fields = json.loads(line)
            found.append(Outcome(**{**fields, "tokens": Tokens(**fields["tokens"])}))
    return found
