"""A candidate's end state is made again from its record, and what is chosen of several is what was answered."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.ability.chooser import Candidate, Server, by_check, by_pick, by_yes, candidate, told_apart
from bench.ability.task import Task

TASK = Task("two", "files", 1, "Make a and b.", lambda folder: (folder / "b").exists(), "touch a b", {"here": "x\n"})


class Scripted(Server):
    def __init__(self, *answers: dict[str, Any]) -> None:
        super().__init__("")
        self._answers: Iterator[dict[str, Any]] = iter(answers)

    def ask(self, words: str, **options: Any) -> dict[str, Any]:
        self.asked += 1
        return next(self._answers)


def _record(place: Path, *commands: str) -> Path:
    events: list[dict[str, Any]] = [{"type": "run_started", "turn": 0}]
    for step, command in enumerate(commands):
        action = {"tool": "shell", "command": command}
        events.append({"type": "action_started", "turn": 1, "step": step, "action": {"action": action}})
    for step, _ in enumerate(commands):
        events.append({"type": "action_finished", "turn": 1, "step": step, "observation": {"kind": "command"}})
    place.write_text("\n".join(map(json.dumps, [*events, {"type": "result", "answer": "made"}])))
    return place


@pytest.fixture
def found(tmp_path: Path) -> list[Candidate]:
    """The first is wrong, the second right; the commands of one turn, one after the other in one shell."""
    into = tmp_path / "into"
    into.mkdir()
    records = {"one": ("mkdir d; cd d", "touch ../a"), "two": ("name=b", 'echo new > "$name"')}
    return [candidate(TASK, _record(tmp_path / name, *ran), name, into) for name, ran in records.items()]


def test_a_record_is_run_again(found: list[Candidate]) -> None:
    assert [(one.arm, one.solved, one.answer) for one in found] == [("one", False, "made"), ("two", True, "made")]
    assert found[1].diff.splitlines()[1:] == ["+++ after/b", "@@ -0,0 +1 @@", "+new"]
    assert (found[1].folder / "here").read_text() == "x\n"


def _yes(likely: float) -> dict[str, Any]:
    tokens = [{"token": "Yes", "logprob": math.log(likely)}, {"token": " no", "logprob": math.log(1 - likely)}]
    return {"logprobs": {"content": [{"top_logprobs": tokens}]}}


def test_the_likelier_yes_is_taken(found: list[Candidate]) -> None:
    server = Scripted(_yes(0.3), _yes(0.4))
    assert by_yes(TASK, found, server) == 1
    assert [solved for _, solved in server.scores] == [False, True]
    assert told_apart(server.scores) == 1


def test_how_often_the_right_one_is_the_likelier() -> None:
    assert told_apart([(0.9, False), (0.5, True), (0.5, False), (0.2, False)]) == 0.5


def _best(letter: str) -> dict[str, Any]:
    return {"message": {"content": json.dumps({"best": letter})}}


@pytest.mark.parametrize(("letters", "best"), [("BA", 1), ("AB", 0), ("AA", 0), ("BB", 0)])
def test_a_pick_counts_where_the_order_does_not_matter(found: list[Candidate], letters: str, best: int) -> None:
    """Else the first is taken."""
    assert by_pick(TASK, found, Scripted(*map(_best, letters))) == best


@pytest.mark.parametrize(("script", "best"), [("test -e b", 1), ("test -e a", 0), ("exit 1", 0)])
def test_the_first_that_passes_the_check(found: list[Candidate], script: str, best: int) -> None:
    text = f"So:\n```bash\n{script}\n```\n"
    assert by_check(TASK, found, Scripted({"message": {"content": text}})) == best
