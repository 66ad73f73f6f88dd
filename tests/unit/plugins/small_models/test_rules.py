"""What the help for small models says, and where it is silent: whole runs in the real sandbox, forced on."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from stockade.plugins.small_models.commands import pipelines
from stockade.plugins.small_models.task import Task
from stockade.testing import say
from tests.cli.conftest import Stage, stage

__all__ = ["stage"]
DONE = say("finish", answer="It is all in place.")
HOLLOW = say("finish", answer="The command has succeeded; it printed nothing.")
SALES = "day,town,amount\n2026-01-01,Rome,3\n2026-01-02,Bonn,9\n2026-01-03,Rome,4\n"


def shell(command: str) -> str:
    return say("shell", command=command)


def events(stage: Stage, task: str, *answers: str, flags: tuple[str, ...] = ("-o", "small_models=true")) -> Any:
    """Of a run with the hook forced on; the last answer is given as often as it is asked for."""
    (stage.demo / "sales.csv").write_text(SALES)
    ended = stage.run(*answers, *[answers[-1]] * 5, flags=("--json", "--discard", *flags), task=task)
    return [json.loads(line) for line in ended.out.splitlines()]


def spoke(found: Any) -> list[str]:
    """The rules that spoke, in order."""
    rules = []
    for event in found:
        seen = event.get("observation") or {}
        if event["type"] == "message_injected" or seen.get("kind") == "refused":
            rules.append((event if event["type"] == "message_injected" else seen)["rule"])
    return rules


@dataclass(frozen=True)
class Case:
    task: str
    answers: tuple[str, ...]
    rules: tuple[str, ...] = ()


SPEAKS = {
    "failed": Case("Say which day it is", (shell("no_such_program"), say("finish", answer="Monday")), ("failed",)),
    "gave-up": Case(
        "Count the rows", (shell("no_such_program"), say("finish", answer="I cannot", gave_up=True)), ("failed",)
    ),
    "missing": Case("Write the towns to towns.txt", (shell("echo x > town.txt"), DONE), ("missing",)),
    "new-folder": Case("Unpack it into a new folder dump.", (shell("touch dump.tar"), DONE), ("missing",)),
    "empty": Case("Write the towns to towns.txt", (shell("true > towns.txt"), DONE), ("empty",)),
    "hollow": Case("How many rows are in sales.csv?", (shell("wc -l < sales.csv"), HOLLOW), ("value",)),
    "bare": Case(
        "How many rows are in sales.csv? Answer with just the number.",
        (shell("wc -l < sales.csv"), say("finish", answer="There are 4 rows in it.")), ("value",),
    ),
    "guessed": Case("How many rows are in sales.csv?", (HOLLOW,), ("value",)),
    "in-vain": Case(
        "How many are there?", (shell("cat no_such_file | wc -l"), say("finish", answer="There are none.")), ("failed",)
    ),
    "unfounded": Case("How many rows?", (shell("cat sales.csv"), say("finish", answer="7")), ("unfounded",)),
    "zero": Case("How many rows have Oslo?", (shell("grep -c Oslo sales.csv"), say("finish", answer="0")), ("zero",)),
    "counts": Case(
        "How many?", (shell("wc -l *.csv | awk '{s+=$1} END {print s}'"), say("finish", answer="none")), ("total",)
    ),
    "printed-again": Case("Which day?", (shell("date"), shell("date"), say("finish", answer="Monday")), ("again",)),
    "gone": Case("Compress sales.csv", (shell("gzip sales.csv"), DONE), ("gone",)),
    "again": Case("Which day?", (shell("date > x"), shell("date > x"), shell("rm x; date"), DONE), ("again",)),
    "separator": Case("Which towns?", (shell("awk '{print $2}' sales.csv"), say("finish", answer="Rome")),
                      ("separator",)),
    "written-separator": Case(
        "Which?", (shell("awk -F, '{print $1, $2}' sales.csv > x.csv"), say("finish", answer="Rome")), ("separator",)
    ),
}  # fmt: skip
SILENT = {
    "written": Case("Write the number of rows to rows.txt", (shell("wc -l < sales.csv > rows.txt"), DONE)),
    "literal": Case("Write hello to hello.txt", (shell("cat > hello.txt <<'EOF'\na > b\nEOF"), DONE)),
    "run": Case(
        "Write hello.py that says hello", (shell("echo 'print(1)' > hello.py"), shell("python3 hello.py"), DONE)
    ),
    "search-in-vain": Case("Is Oslo in sales.csv?", (shell("grep Oslo sales.csv"), say("finish", answer="No."))),
    "a-difference": Case("Is it sorted?", (shell("diff sales.csv <(sort sales.csv)"), say("finish", answer="No."))),
    "status-alone": Case("Does a.sh fail?", (shell("false"), say("finish", answer="Yes."))),
    "moved": Case("Rename sales.csv to old.csv", (shell("mv sales.csv old.csv"), DONE)),
    "emptied": Case("Empty sales.csv", (shell(": > sales.csv"), DONE)),
    "awk-comma": Case(
        "What is the sum?", (shell("awk -F, 'NR>1 {s+=$3} END {print s}' sales.csv"), say("finish", answer="16"))
    ),
    "own-temporary": Case(
        "Sort sales.csv by town", (shell("sort -t, -k2 < /dev/null > x; rm x; echo 'a,b' > sales.csv"), DONE)
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SPEAKS.values(), ids=SPEAKS)
def test_it_says_what_is_wrong_once(case: Case, stage: Stage) -> None:
    found = events(stage, case.task, *case.answers)
    assert spoke(found) == list(case.rules)
    assert found[-1]["status"] == ("stopped" if "gave_up" in case.answers[-1] else "done")


@pytest.mark.parametrize("case", SILENT.values(), ids=SILENT)
def test_it_is_silent_on_right_work(case: Case, stage: Stage) -> None:
    found = events(stage, case.task, *case.answers)
    assert spoke(found) == []
    assert found[-1]["turns"] == len(case.answers)


def test_after_a_repetition_the_next_answer_is_drawn_warmer(stage: Stage) -> None:
    found = events(stage, "Which day?", shell("date > x"), shell("date > x"), shell("rm x; date"), DONE)
    drawn = [
        event["sampling"] and event["sampling"]["temperature"] for event in found if event["type"] == "model_answered"
    ]
    assert [bool(one) for one in drawn] == [False, False, True, False]


def test_what_was_refused_is_done_the_second_time(stage: Stage) -> None:
    first = shell("awk '{print $2}' sales.csv")
    found = events(stage, "Which towns?", first, first, say("finish", answer="Rome"))
    kinds = [event["observation"]["kind"] for event in found if event["type"] == "action_finished"]
    assert kinds == ["refused", "command"]


def test_it_proposes_the_whole_command(stage: Stage) -> None:
    found = events(stage, "Which towns?", shell("awk '{print $2}' sales.csv"), say("finish", answer="Rome"))
    (refused,) = (event["observation"] for event in found if "refused" in str(event.get("observation")))
    assert refused["reason"].endswith("Run this instead: awk -F, '{print $2}' sales.csv")


def test_it_sends_back_a_bounded_number_of_times(stage: Stage) -> None:
    wrong = shell("true > b.txt; ls no_such_file")
    found = events(stage, "Write a.json, b.txt and e.txt", wrong, DONE)
    assert spoke(found) == ["failed", "missing"]
    assert found[-1]["status"] == "done"


def test_it_leaves_the_last_turn_to_the_bot(stage: Stage) -> None:
    flags = ("-o", "small_models=true", "--max-turns", "2")
    found = events(stage, "Write x.txt", shell("ls"), DONE, flags=flags)
    assert "missing" not in spoke(found)
    assert found[-1]["status"] == "done"


def test_it_is_off_where_nobody_says_how_large_the_model_is(stage: Stage) -> None:
    found = events(stage, "Write the towns to towns.txt", shell("ls"), DONE, flags=())
    assert "small_models" not in found[0]["hooks"]
    assert spoke(found) == []


def test_what_it_runs_is_on_record(stage: Stage) -> None:
    found = events(stage, "Write the towns to towns.txt", shell("echo x > town.txt"), DONE)
    assert {event["hook"] for event in found if event["type"] == "hook_ran"} == {"small_models"}


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("a > x", ["x"]),
        ("a 2> x", []),
        ("a 2>&1 | b > y", ["y"]),
        ("a > /dev/null; b > z", ["z"]),
        ("echo 'a > b'", []),
        ("cat > x <<'E'\na > b\nE\nsort x > y", ["x", "y"]),
        ("a 'open", []),
        ("a > " + "x" * 5000, []),
    ],
)
def test_what_a_command_writes(command: str, files: list[str]) -> None:
    assert [path for line in pipelines(command) for one in line for path in one.writes] == files


@pytest.mark.parametrize(
    ("task", "files"),
    [
        ("Write a.txt and src/b.py, not *.log or http://x.org/c.txt", ["a.txt", "src/b.py"]),
        ("Put it into a new folder named out/x.", ["out/x"]),
        ("Which is it, e.g. 2.5 or example.com?", []),
    ],
)
def test_the_files_that_a_task_names(task: str, files: list[str]) -> None:
    assert Task(task).files == files


def test_a_long_task_is_read_in_linear_time() -> None:
    task = Task("write " * 100_000 + "a.txt?")
    assert (task.asks, task.bare, task.empties) == (False, False, False)
