"""The frozen sets are the ones that were committed before anything ran, and arms are compared in pairs."""

import hashlib
import json
from pathlib import Path

from bench.ability import sets
from bench.ability.outcome import Outcome, Tokens
from bench.ability.paired import compare, mcnemar
from bench.ability.task import Task


def digest(task: Task) -> str:
    parts = [task.name, task.words, dict(task.files), task.prepare, task.solution]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def test_choosing_tasks_are_the_frozen_ones() -> None:
    frozen = json.loads((Path(sets.__file__).with_name("choosing.json")).read_text())["tasks"]
    assert {task.name: digest(task) for task in sets.members(sets.CHOOSING)} == frozen
    assert len(frozen) == 24


def test_no_question_is_in_two_frozen_sets() -> None:
    names = ("judging", "judging2", "choosing2", "judging3")
    of = [set(json.loads(Path(sets.__file__).with_name(f"{name}.json").read_text())["tasks"]) for name in names]
    assert [len(one) for one in of] == [24, 26, 14, 10]
    assert len(set().union(*of)) == 74


def test_mcnemar_is_the_exact_two_sided_binomial_test() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(0, 6) == 2 / 2**6
    assert mcnemar(1, 4) == 2 * (1 + 5) / 2**5


def outcome(arm: str, task: str, *, solved: bool) -> Outcome:
    return Outcome(arm, task, solved, "done", 3, 0, Tokens(), 1.0)


def test_only_tasks_of_both_arms_are_compared() -> None:
    first = [outcome("a", "x", solved=True), outcome("a", "y", solved=False), outcome("a", "z", solved=True)]
    second = [outcome("b", "x", solved=False), outcome("b", "y", solved=True)]
    text = compare(first, second)
    assert "2 tasks in both" in text
    assert "a: 1 solved, 1 false ends" in text
    assert "only the second: y; only the first: x" in text
