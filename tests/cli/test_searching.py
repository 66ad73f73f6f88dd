"""Which runs there are: listed by folder, status, words and number; searched."""

import json
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import COUNT, DONE, Stage
from tests.cli.test_terminal import Terminal


def ids(out: str) -> list[str]:
    return [line.split()[0] for line in out.splitlines()[1:]]


@pytest.fixture
def three(stage: Stage) -> list[str]:
    """Oldest first: a count in `demo`, an answer there, one elsewhere that was stopped with an odd task."""
    other = stage.tmp_path / "other ü"
    other.mkdir()
    no = ("--no-input", "--json")
    runs = [
        stage.run(COUNT, DONE, flags=no),
        stage.run(say("finish", answer="Nothing to do, Zürich."), flags=no),
        stage.call(
            "run", "look\n\x1b[2Jfor (it)", "--folder", str(other), "--model",
            stage.script(say("shell", command="grep -rn needle ."), DONE), "-o", "max-turns=1", *no,
        ),
    ]  # fmt: skip
    return [run.result["run"] for run in runs]


def test_a_list_by_folder_status_words_and_number(stage: Stage, three: list[str]) -> None:
    first, second, third = three

    def listed(*flags: str) -> list[str]:
        return ids(stage.call("runs", "list", *flags).out)

    assert listed() == [third, second, first]
    assert listed("--limit", "2") == [third, second]
    assert listed("--folder", str(stage.demo)) == listed("--folder", f"{stage.demo}/.") == [second, first]
    assert listed("--folder", str(stage.tmp_path)) == [third, second, first]
    assert listed("--folder", str(stage.demo / "data.csv")) == []
    assert listed("--status", "done") == [second, first]
    assert listed("--status", "stopped", "--status", "done", "--limit", "2") == [third, second]
    assert listed("--filter", "needle") == listed("--filter", "look it") == [third]
    assert "and 2 older runs" in stage.call("runs", "list", "--limit", "1").err
    assert stage.call("runs", "list", "--status", "odd").status == 2
    lines = stage.call("runs", "list", "--json", "--limit", "2").events
    assert [line["run_id"] for line in lines] == [third, second]
    assert lines[1]["folder"] == str(stage.demo)


def test_a_list_in_a_pipe_has_no_blanks_at_its_ends_and_fits_a_width(stage: Stage, three: list[str]) -> None:
    out = stage.call("runs", "list", "--width", "300").out
    assert all(line == line.rstrip() for line in out.splitlines())
    assert "look [2Jfor (it)" in out
    narrow = stage.call("runs", "list", "--width", "70").out
    assert max(map(len, narrow.splitlines())) <= 70
    assert ids(narrow) == three[::-1]
    shell = Terminal(stage, "runs", "list", COLUMNS="80")
    assert shell.status() == 0
    assert all(len(line) <= 80 for line in shell.seen.decode().splitlines() if "\x1b" not in line)


def test_search_finds_tasks_answers_and_commands(stage: Stage, three: list[str]) -> None:
    first, second, third = three

    def found(*words: str) -> list[str]:
        done = stage.call("runs", "search", "--json", *words)
        assert done.status == (0 if done.out else 1)
        return [json.loads(line)["run_id"] for line in done.out.splitlines()]

    assert found("count") == [second, first]
    assert found("count.txt") == found("data", "CSV") == [first]
    assert found("Zürich") == found("count", "nothing") == [second]
    assert found("needle", "--folder", str(stage.demo)) == []
    assert found("grep -rn needle") == found("needl") == [third]
    assert found("xyzzy") == found("(") == found("-", "*") == []
    shown = stage.call("runs", "search", "needle").out.splitlines()
    assert shown[0].startswith(f"{third}  ")
    assert shown[1] == "  command: grep -rn needle ."
    assert stage.call("runs", "rm", third, "--force").status == 0
    assert found("needle") == []


def test_a_secret_is_hidden_in_what_was_found(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_TOKEN", "wonderful-0123456789")
    stage.run(DONE, flags=("--no-input",), task="use wonderful-0123456789 for it")
    for how in ((), ("--json",)):
        out = stage.call("runs", "search", "use", "it", *how).out
        assert "0123456789" not in out
        assert "[redacted: MY_API_TOKEN]" in out
