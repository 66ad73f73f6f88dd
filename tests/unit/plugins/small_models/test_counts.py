"""Command lines that count something else: what is proposed is run in a real shell, and prints what it should."""

import subprocess
from pathlib import Path

import pytest

from stockade.plugins.small_models.counts import miscount
from stockade.plugins.small_models.task import Task

FILES = {"a.txt": "one x x\nTwo\n", "b.txt": "x\n", "c.c": "1\n", "sub/d.h": "1\n2\n", "sub/e.txt": "X\n"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def printed(command: str, folder: Path) -> str:
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False
    ).stdout.strip()


WRONG = {
    "ended": ("Which?", "find . -name b.txt -exec cat {} \\\\", "x"),
    "total": ("Lines?", "find . -name '*.txt' -exec wc -l {} + | awk '{s+=$1} END {print s}'", "4"),
    "total-cd": ("Lines?", "cd sub && wc -l * | awk '{s+=$1} END {print s}'", "3"),
    "total-xargs": ("Lines?", "find . -name '*.txt' | xargs wc -l | awk '{s+=$1} END {print s}'", "4"),
    "each": ("What is the total of lines?", "wc -l *.txt", "3"),
    "each-grep": ("What is the total?", "grep -c x *.txt", "2"),
    "lines": ("How often is x there?", "grep -c x a.txt", "2"),
    "lines-piped": ("How many times is x there?", "cat *.txt | grep x | wc -l", "3"),
}
RIGHT = {
    "own-separator": ("How much?", "grep -c x *.txt | awk -F: '{s += $2} END {print s}'"),
    "one-file": ("How much?", "grep -c x a.txt | awk '{s += $1} END {print s}'"),
    "each-by-itself": ("Lines?", "find . -name '*.txt' -exec wc -l {} \\; | awk '{s+=$1} END {print s}'"),
    "lines-wanted": ("How many lines have an occurrence of x? Count lines that hold it.", "grep -c x a.txt"),
    "brackets": ("Which?", "find . \\( -name '*.c' -o -name '*.h' \\) -exec cat {} +"),
    "no-act": ("Which?", "find . -name '*.c' -o -name '*.h'"),
    "ended-well": ("Which?", "find . -name '*.c' -exec grep -l x {} +"),
    "written": ("How many files are there?", "find . | wc -l > n.txt"),
    "two": ("How many files are there?", "echo a; find . | wc -l"),
    "table": ("Write the number of lines of each file into n.txt", "wc -l *.txt > n.txt"),
    "all-three": ("Write the number of lines and words of a.txt into n.txt", "wc a.txt > n.txt"),
    "names-wanted": ("Write what wc -l says of a.txt into n.txt", "wc -l a.txt > n.txt"),
    "read": ("Write the number of lines of a.txt into n.txt", "wc -l < a.txt > n.txt"),
    "quoted": ("How many?", "grep -c 'a|b' a.txt"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_proposed_prints_what_was_meant(name: str, folder: Path) -> None:
    task, command, wanted = WRONG[name]
    found = miscount(Task(task), command)
    assert found is not None
    assert found[0] == name.partition("-")[0]
    assert printed(found[2], folder) == wanted
    assert printed(command, folder) != wanted
    assert miscount(Task(task), found[2]) is None


@pytest.mark.parametrize("name", RIGHT)
def test_it_is_silent_where_a_command_does_what_it_should(name: str) -> None:
    assert miscount(Task(RIGHT[name][0]), RIGHT[name][1]) is None


def test_a_number_for_a_file_comes_without_the_name(folder: Path) -> None:
    found = miscount(Task("Write the number of lines of a.txt into n.txt"), "cd . && wc -l a.txt > n.txt")
    assert found is not None
    rule, _, way = found
    assert rule == "beside"
    assert not printed(way, folder)
    assert (folder / "n.txt").read_text().strip() == "2"
