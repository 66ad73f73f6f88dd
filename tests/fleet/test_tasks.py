"""What is wrong with the tasks of a batch is said before any of them starts."""

import json
from pathlib import Path
from typing import Any

import pytest

from stockade.core.errors import UsageError
from stockade.fleet.inspect_log import inspect_log
from stockade.fleet.results import Attempt, default_results
from stockade.fleet.statistics import compare, sign_test, summary, wilson
from stockade.fleet.tasks import Item, Selection, read_tasks
from stockade.runtime.bots import find_bot, with_all
from stockade.runtime.spec import RunSpec

BASE = RunSpec(model="scripted/none.jsonl", seed=7)


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def read(path: Path, **select: Any) -> list[Item]:
    return read_tasks(path, BASE, Selection(**select))


@pytest.mark.parametrize(
    ("row", "words", "hint"),
    [
        ({"id": "b", "task": "t", "chek": "x"}, "line 2: there is no key 'chek'", "did you mean check?"),
        ({"id": "b", "task": "t", "limits": {"turns": 3}}, "no key 'limits.turns'", "did you mean max_turns?"),
        ({"id": "a", "task": "t"}, "line 2: the id 'a' is that of", "give each its own"),
        ({"id": "b"}, "line 2: the key 'task' is missing", None),
        ({"id": "b", "task": "t", "limits": {"max_turns": -1}}, "line 2: limits.max_turns: ", None),
        ({"id": "b", "task": "t", "bot": "readin"}, "line 2: there is no bot 'readin'", "did you mean reading?"),
        ({"id": "b", "task": "t", "bot": "no.toml"}, "no.toml", None),
        ({"id": "b", "task": "t", "folder": "nowhere"}, "line 2: there is no folder ", None),
        ({"id": "b", "task": "t", "protect": "/etc/passwd"}, "line 2: protect: '/etc/passwd' is no path in", None),
    ],
)  # fmt: skip
def test_a_line_that_is_wrong_is_named(tmp_path: Path, row: dict[str, Any], words: str, hint: str | None) -> None:
    path = write(tmp_path / "t.jsonl", {"id": "a", "task": "t"}, row)
    with pytest.raises(UsageError) as raised:
        read(path)
    assert words in raised.value.message
    assert hint is None or raised.value.hint == hint


def test_a_line_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": "a", "task": "t"}\n\n{"id": \n')
    with pytest.raises(UsageError, match="line 3: this is no JSON"):
        read(tmp_path / "t.jsonl")


def test_a_line_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": "a", "task": ' + "[" * 100_000)
    with pytest.raises(UsageError, match="line 1: this is no JSON"):
        read(tmp_path / "t.jsonl")


def test_paths_are_those_of_the_file_and_limits_those_of_the_task(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "x").touch()
    path = write(tmp_path / "t.jsonl", {"id": "a", "task": "t", "folder": "repo:ro", "files": ["x:y"],
                                        "image": "oci:here", "limits": {"max_turns": 3}, "check": "true"})  # fmt: skip
    (item,) = read(path)
    assert item.spec.folder == (f"{tmp_path}/repo:ro",)
    assert (item.spec.copy_in, item.spec.image) == ((f"{tmp_path}/x:y",), f"oci:{tmp_path}/here")
    assert (item.spec.max_turns, item.spec.check, item.spec.model) == (3, ("true",), "scripted/none.jsonl")


def test_what_nobody_said_is_as_the_bot_of_the_task_wants_it(tmp_path: Path) -> None:
    (tmp_path / "bots").mkdir()
    (tmp_path / "bots" / "own.toml").write_text(
        'name = "own"\nprompt = "p"\ntools = ["shell"]\n'
        'max_turns = 2\nmax_cost = 0.5\ncheck = "true"\nhooks = ["loop_detection"]\n'
    )
    limits = {"max_turns": 9}
    rows = ({"id": "a", "task": "t", "bot": "bots/own.toml"},
            {"id": "b", "task": "t", "bot": "bots/own.toml", "check": "false", "limits": limits},
            {"id": "c", "task": "t"})  # fmt: skip
    given = BASE.model_copy(update={"max_cost": 0.1, "hooks": ("-tidy",)})
    path = write(tmp_path / "t.jsonl", *rows)
    found = [(one.spec.max_turns, one.spec.max_cost, one.spec.check) for one in read(path)]
    assert found == [(2, 0.5, ("true",)), (9, 0.5, ("false",)), (None, None, ())]
    own, *_ = read_tasks(path, given, Selection())
    assert (own.spec.max_turns, own.spec.max_cost, own.spec.hooks) == (2, 0.1, ("-tidy",))
    assert with_all(own.spec, find_bot(own.spec.bot)).hooks == ("loop_detection", "-tidy")


def test_which_of_them_in_which_order_how_often(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", *({"id": f"n{n}", "task": "t", "tags": ["even"][n % 2 :]} for n in range(8)))
    assert [one.task.id for one in read(path, filters=("tag=even",), limit=3)] == ["n0", "n2", "n4"]
    assert [one.task.id for one in read(path, filters=("n[67]",))] == ["n6", "n7"]
    shuffled = [one.task.id for one in read(path, shuffle=True)]
    assert shuffled == [one.task.id for one in read(path, shuffle=True)] != [f"n{n}" for n in range(8)]
    twice = read(path, limit=1, epochs=2)
    assert [(one.task.id, one.epoch, one.spec.seed) for one in twice] == [("n0", 1, 7), ("n0", 2, 8)]


def test_the_digest_is_of_the_task_and_of_the_settings(tmp_path: Path) -> None:
    first = read(write(tmp_path / "t.jsonl", {"id": "a", "task": "t"}))[0]
    assert read(tmp_path / "t.jsonl")[0].digest == first.digest
    bounded = BASE.model_copy(update={"max_turns": 3})
    assert read_tasks(tmp_path / "t.jsonl", bounded, Selection())[0].digest != first.digest
    assert read(write(tmp_path / "t.jsonl", {"id": "a", "task": "u"}))[0].digest != first.digest
    digests = set[str]()
    for words in ("one", "two"):
        (tmp_path / "own.toml").write_text(f'name = "own"\nprompt = "{words}"\n')
        digests.add(read(write(tmp_path / "t.jsonl", {"id": "a", "task": "t", "bot": "own.toml"}))[0].digest)
    assert len(digests) == 2


def test_csv_and_a_folder_of_task_folders(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('id,task,check,limits.timeout\na,"one, two",true,30\nb,t,,\n')
    a, b = read(tmp_path / "t.csv")
    assert (a.spec.task, a.spec.check, a.spec.timeout, b.spec.check) == ("one, two", ("true",), 30.0, ())
    (tmp_path / "tasks" / "a" / "folder").mkdir(parents=True)
    (tmp_path / "tasks" / "a" / "task.md").write_text("do it")
    (tmp_path / "tasks" / "a" / "task.json").write_text('{"check": "true"}')
    (one,) = read(tmp_path / "tasks")
    assert (one.task.id, one.spec.task, one.spec.check) == ("a", "do it", ("true",))
    assert one.spec.folder == (f"{tmp_path}/tasks/a/folder",)
    assert default_results(tmp_path / "tasks").name == "tasks.results.jsonl"


@pytest.mark.parametrize("task", ["x" * 200_000, "one\u2028two\x0bthree", "one\ntwo"], ids=["long", "marks", "lines"])
def test_a_csv_of_a_spreadsheet(tmp_path: Path, task: str) -> None:
    """It begins with a mark of its encoding, and a cell may hold anything."""
    (tmp_path / "t.csv").write_bytes(f'id,task\r\na,"{task}"\r\nb,{task.splitlines()[0]}\r\n'.encode("utf-8-sig"))
    assert [one.task.task for one in read(tmp_path / "t.csv")] == [task, task.splitlines()[0]]


def test_a_csv_with_a_column_that_another_is_a_part_of(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,task,limits,limits.timeout\na,t,x,30\n")
    with pytest.raises(UsageError, match="line 2: limits: "):
        read(tmp_path / "t.csv")


def attempt(name: str, outcome: Any, epoch: int = 1, seconds: float = 1.0) -> Attempt:
    run = f"{name}-{epoch}-{outcome}"
    return Attempt(
        id=name, epoch=epoch, hash="h", attempt=1, run=run, outcome=outcome, started=0, seconds=seconds
    )  # fmt: skip


def test_intervals_and_tests_as_the_tables_have_them() -> None:
    assert wilson(8, 10) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)  # statsmodels' proportion_confint
    assert wilson(0, 0) == (0.0, 1.0)
    assert sign_test(1, 9) == pytest.approx(0.021484375)  # scipy's binomtest(1, 10)
    assert sign_test(3, 3) == 1.0


def test_a_summary_counts_what_says_something_about_the_tasks() -> None:
    found = [attempt("a", "model error"), attempt("a", "solved"), attempt("a", "gave up", 2), attempt("b", "budget"),
             attempt("b", "budget", 2, 9.0), attempt("c", "sandbox error")]  # fmt: skip
    told = summary(found)
    assert (told.solved_of, told.retried, told.p95_s) == ((1, 4), 1, 9.0)
    assert told.pass_at == {1: 0.25, 2: 0.5}


def test_two_batches_are_compared_pair_by_pair() -> None:
    first = [attempt("a", "solved"), attempt("b", "solved"), attempt("c", "gave up"), attempt("d", "model error")]
    second = [attempt("a", "solved"), attempt("b", "check failed"), attempt("c", "budget"), attempt("d", "solved")]
    found = compare(first, second)
    assert (found.both, found.only_first, found.only_second, found.neither, found.p) == (1, ("b",), (), 1, 1.0)


def test_the_log_for_inspect_has_a_sample_a_task_and_epoch() -> None:
    log = inspect_log("t", [attempt("a", "model error"), attempt("a", "solved"), attempt("b", "sandbox error")])
    assert (log["status"], log["results"]["scores"][0]["metrics"]["accuracy"]["value"]) == ("error", 1.0)
    a, b = log["samples"]
    assert (a["scores"]["solved"]["value"], "error" in a) == ("C", False)
    assert ("scores" in b, b["error"]["message"]) == (False, "sandbox error: ")
