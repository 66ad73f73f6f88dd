"""docs/compare.md: each cell has its evidence, each trial its version, each claim of ours a test that exists."""

import re

import pytest

from tests.docs.shown import ROOT

PAGE = (ROOT / "docs" / "compare.md").read_text()
TERMINALS, _, SANDBOXES = PAGE.partition("\n## As a sandbox for other people's agents\n")
BODY, _, LAST = TERMINALS.partition("\n## Evidence\n")
EVIDENCE = dict(re.findall(r"^- (\w+): (.+)$", LAST, re.MULTILINE))
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in BODY.splitlines() if line.startswith("| ")]
HEAD, ROWS = ROWS[0], ROWS[1:]
PEERS = {"x": "codex", "c": "Claude Code", "a": "aider", "g": "goose", "p": "", "s": "Stockade"}
NOTHING = ("-", "not tried")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_cell_has_evidence_of_its_own_column(row: list[str]) -> None:
    assert len(row) == len(HEAD) == 6
    for column, cell in zip(HEAD[1:], row[1:], strict=True):
        marks = re.findall(r"\[(\w+)\]", cell)
        assert (marks != []) is (cell not in NOTHING), cell
        for mark in marks:
            assert PEERS[mark[0]] in ("", column), cell
    assert row[1] not in NOTHING


@pytest.mark.parametrize("line", re.findall(r"^- \*\*.*(?:\n  .*)*", BODY, re.MULTILINE), ids=lambda line: line[:30])
def test_where_they_are_better_has_evidence_too(line: str) -> None:
    assert set(re.findall(r"\[(\w\d+)\]", line)) & EVIDENCE.keys()


def test_all_evidence_is_there_and_used() -> None:
    assert set(re.findall(r"\[(\w\d+)\]", BODY)) == EVIDENCE.keys()


@pytest.mark.parametrize("mark", EVIDENCE)
def test_evidence_says_what_was_tried_or_where_it_stands(mark: str) -> None:
    words, versions = EVIDENCE[mark], re.findall(r"(codex|Claude Code|aider|goose) ([\d.]+\d)", BODY.partition("|")[0])
    if mark[0] == "s":
        found = re.fullmatch(r"tried here: `([\w/]+\.py)::(test_\w+)`", words)
        assert found, words
        assert f"def {found[2]}(" in (ROOT / found[1]).read_text()
    elif words.startswith("tried "):
        assert words.startswith(tuple(f"tried {name} {version}: " for name, version in versions)), words
        assert "`" in words
    else:
        assert re.match(r"cited (https://\S+( and https://\S+)?$|from our survey)", words), words


@pytest.mark.parametrize("row", re.findall(r"^\| (?!wished)(.+) \|$", SANDBOXES, re.MULTILINE))
def test_each_wish_has_a_thread_and_the_test_that_tries_ours(row: str) -> None:
    wish, _, evidence = row.split(" | ")
    assert re.search(r"[\w-]+/[\w-]+#\d+", wish)
    found = re.fullmatch(r"`([\w/]+\.py)::(test_\w+)`", evidence)
    assert found, evidence
    assert f"def {found[2]}(" in (ROOT / found[1]).read_text()
