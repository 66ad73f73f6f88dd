"""The bench itself: what counts as solved, what is asked only once, and that hidden tests only score."""

import json
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from bench.humaneval.arms import ARMS, by_traceback, shortened
from bench.humaneval.command import FIRST, score, solve
from bench.humaneval.problems import Problem
from bench.humaneval.recorded import Answers, Offline, RecordedModel, key_of
from bench.humaneval.report import common, curve, rows, solved, write_report
from stockade.core.messages import ModelAnswer, ModelRequest
from stockade.core.ports import OnText
from stockade.plugins.coder.bot import CODER
from stockade.plugins.coder.prompts import opening
from stockade.plugins.coder.work import Attempt, Verdict
from stockade.runtime.sandboxes import open_sandbox
from stockade.testing import ScriptedModel
from stockade_sandbox.policy import Policy

PROBLEM = Problem(
    task_id="HumanEval/0",
    prompt="from typing import List\n\n\ndef top(xs: List[int]) -> int:\n"
    '    """ Largest.\n    >>> top([1, 2])\n    2\n    """\n',
    entry_point="top",
    test="def check(candidate):\n    assert candidate([1, 2]) == 2\n    assert candidate([3, 1]) == 3\n",
    canonical_solution="    return max(xs)\n",
)
RIGHT = "```python\ndef top(xs: List[int]) -> int:\n    return max(xs)\n```"
LUCKY = "```python\ndef top(xs: List[int]) -> int:\n    return xs[-1]\n```"
WRONG = "```python\ndef top(xs: List[int]) -> int:\n    return xs[0]\n```"


@pytest.mark.anyio
async def test_hidden_tests_only_score(tmp_path: Path) -> None:
    sandbox = open_sandbox(CODER.bot.policy(Policy()), "bubblewrap", tmp_path / "a")
    async with sandbox:
        assert await score(PROBLEM, PROBLEM.prompt + PROBLEM.canonical_solution, sandbox)
        assert not await score(PROBLEM, "def top(xs):\n    return None\n", sandbox)
        assert not await score(PROBLEM, "import sys\nsys.exit(0)\n", sandbox)
        assert not await score(PROBLEM, "", sandbox)


@pytest.mark.anyio
async def test_an_arm_stops_at_the_visible_examples_and_asks_nothing_twice(tmp_path: Path) -> None:
    server = ScriptedModel([WRONG, LUCKY])
    answers = Answers(tmp_path / "answers.jsonl")
    for number, asked in ((0, 2), (1, 0)):
        model = RecordedModel(answers, [server], "ours", PROBLEM.task_id)
        sandbox = open_sandbox(CODER.bot.policy(Policy()), "bubblewrap", tmp_path / str(number))
        coder, seconds = await solve(PROBLEM, shortened(ARMS["ours"], 4), model, sandbox)
        assert [attempt.verdict.passed for attempt in coder.attempts] == [False, True]
        assert model.asked == asked
        assert seconds > 0
    assert server.requests[0] == ModelRequest(messages=opening(PROBLEM.task, wants_example=False), sampling=FIRST)
    assert Answers(tmp_path / "answers.jsonl").known.keys() == {key_of(request) for request in server.requests}
    sandbox = open_sandbox(CODER.bot.policy(Policy()), "bubblewrap", tmp_path / "score")
    async with sandbox:
        assert not await score(PROBLEM, coder.attempts[1].code, sandbox)


@pytest.mark.anyio
async def test_a_line_that_was_cut_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"key": "abc", "answ')
    model = RecordedModel(Answers(path), [], "ours", "HumanEval/0")
    with pytest.raises(Offline):
        await model.ask(ModelRequest(messages=()))


def row(name: str, arm: str, *attempts: tuple[bool, bool], rounds: int = 4) -> str:
    listed = [{"visible": seen, "hidden": good, "rank": [seen, 0, seen, True], "empty": False, "exit": 0, "words": ""}
              for seen, good in attempts]  # fmt: skip
    facts = {"arm": arm, "problem": name, "rounds": rounds, "seconds_beside_model": 0.1}
    return json.dumps({**facts, "attempts": listed}) + "\n"


def test_the_report(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(
        row("HumanEval/0", "ours", (True, True)) + row("HumanEval/0", "traceback", (True, True))
        + row("HumanEval/1", "ours", (False, False), (True, True))
        + row("HumanEval/1", "traceback", (False, False), (False, False), (False, False), (False, False))
        + row("HumanEval/2", "ours", (True, False)) + row("HumanEval/2", "traceback", (True, False))
        + row("HumanEval/3", "ours", (False, False), rounds=1) + row("HumanEval/5", "ours", (True, True))
    )  # fmt: skip
    found = rows(path)
    names = common(found, 3)
    assert names == ["HumanEval/0", "HumanEval/1", "HumanEval/2"]
    assert [round(value) for value in curve(found["ours"], names, 3)] == [33, 67, 67, 67]
    assert [round(value) for value in curve(found["traceback"], names, 3)] == [33, 33, 33, 33]
    assert not solved(found["ours"]["HumanEval/2"], 3)
    write_report(path, tmp_path / "table.md", 3, ["ours", "traceback"])
    assert "| ours | 1 (33.3 %) | 2 (66.7 %) | 2 (66.7 %) | 2 (66.7 %) | 1 | 0 |" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "humaneval.svg").read_text().startswith("<svg")


def test_the_baseline_is_told_what_python_says() -> None:
    words = "1 of 2 checks failed.\ntop([1, 2]) gave 1, but it should give 2."
    failed = Attempt(
        number=1, start=0, code="def top(xs):\n    return xs[0]\n", verdict=Verdict(passed=False, words=words)
    )
    assert by_traceback(failed) == (
        "Your code had the following error:\nTraceback (most recent call last):\n"
        '  File "main.py", line 4, in <module>\n    assert top([1, 2]) == 2\nAssertionError'
    )
    raised = failed.model_copy(update={"stderr": "Traceback ...\nNameError: x\n"})
    assert by_traceback(raised).endswith("Traceback ...\nNameError: x")


class SlowModel(ScriptedModel):
    """Others may ask while it answers."""

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        await anyio.sleep(0.01)
        return await super().ask(request, on_text)


@pytest.mark.anyio
async def test_arms_that_ask_the_same_at_once_get_one_answer(tmp_path: Path) -> None:
    answers = Answers(tmp_path / "answers.jsonl")
    question = ModelRequest(messages=opening("a task", wants_example=False), sampling=FIRST)
    heard: list[str] = []
    async with SlowModel([RIGHT, WRONG]) as server, anyio.create_task_group() as group:

        async def ask(arm: str) -> None:
            await anyio.lowlevel.checkpoint()
            heard.append((await RecordedModel(answers, [server], arm, PROBLEM.task_id).ask(question)).content)

        group.start_soon(ask, "ours")
        group.start_soon(ask, "traceback")
    assert heard == [RIGHT, RIGHT]
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 1
