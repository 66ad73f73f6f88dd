"""What a trajectory is: a task, a folder, the turns of a strong model, and what the folder holds in the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.strong_model import Turn


@dataclass(frozen=True)
class Trajectory:
    """`after`: the files that differ in the end, None for one that is gone. The last turn ends the run.

    `setup`: bash on the host that makes what files alone cannot. `typed`: `--approve ask` at a terminal, where a person
    answers each action with one of these.
    """

    name: str
    task: str
    files: Mapping[str, str]
    turns: Sequence[Turn]
    after: Mapping[str, str | None] = field(default_factory=dict)
    setup: str = ""
    typed: Sequence[str] = ()

    @property
    def answer(self) -> str:
        last = self.turns[-1]
        return last if isinstance(last, str) else str(last[-1].arguments["answer"])
