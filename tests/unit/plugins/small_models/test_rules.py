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
    "counts": Case(
        "How many?", (shell("wc -l *.csv | awk '{s+=$1} END {print s}'"), say("finish", answer="none")), ("total",)
    ),
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
    assert found[-1]["status"] == "done"


@pytest.mark.parametrize("case", SILENT.values(), ids=SILENT)
def test_it_is_silent_on_right_work(case: Case, stage: Stage) -> None:
    found = events(stage, case.task, *case.answers)
    assert spoke(found) == []
    assert found[-1]["turns"] == len(case.answers)


def test_what_was_refused_is_done_the_second_time(stage: Stage) -> None:
    first = shell("awk '{print $2}' sales.csv")
    found = events(stage, "Which towns?", first, first, say("finish", answer="Rome"))
    kinds = [event["observation"]["kind"] for event in found if event["type"] == "action_finished"]
    assert kinds == ["refused", "command"]


def test_it_proposes_the_whole_command(stage: Stage) -> None:
    found = events(stage, "Which towns?", shell("awk '{print $2}' sales.csv"), say("finish", answer="Rome"))
    (refused,) = (event["observation"] for event in found if "refused" in str(event.get("observation")))
    assert refused["reason"].endswith("Run this instead: awk -F, '{print $2}' sales.csv")


def test_it_refuses_a_bounded_number_of_times(stage: Stage) -> None:
    wrong = [shell(f"awk '{{print ${number}}}' sales.csv") for number in range(1, 6)]
    found = events(stage, "Which towns?", *wrong, say("finish", answer="Rome"))
    kinds = [event["observation"]["kind"] for event in found if event["type"] == "action_finished"]
    assert kinds == ["refused", "refused", "refused", "command", "command"]


def test_it_is_off_where_nobody_says_how_large_the_model_is(stage: Stage) -> None:
    found = events(stage, "Which towns?", shell("awk '{print $2}' sales.csv"), DONE, flags=())
    assert "small_models" not in found[0]["hooks"]
    assert spoke(found) == []


def test_what_it_runs_is_on_record(stage: Stage) -> None:
    found = events(stage, "Which towns?", shell("awk '{print $2}' sales.csv"), DONE)
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


def test_a_long_task_is_read_in_linear_time() -> None:
    task = Task("write " * 100_000 + "a.txt?")
    assert (task.asks, task.total, task.number) == (False, False, False)
