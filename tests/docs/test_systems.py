"""docs/measured/systems.md: each behaviour of the five systems has a row, and the tests that it names are there."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "measured" / "systems.md").read_text()
ROWS = re.findall(r"^\| ([A-Z]{2}-S?\d+) \| (.+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
MISSING = "🔴"
NUMBERS = {"PA": 39, "PC": 21, "WA": 14, "AG": 40, "MB": 21, "MB-S": 5}
"""Of each system, and of Microbots' first specification."""


def numbers() -> Iterator[str]:
    for name, count in NUMBERS.items():
        yield from (f"{name}{'' if name.endswith('S') else '-'}{number}" for number in range(1, count + 1))


@cache
def names_in(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE))


def test_every_behaviour_has_one_row_and_they_are_counted() -> None:
    assert sorted(number for number, *_ in ROWS) == sorted(numbers())
    missing = sum(shown == MISSING for *_, shown in ROWS)
    assert f"**{len(ROWS) - missing} of {len(ROWS)} have a test**; {MISSING} {missing} have none" in PAGE


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_what_shows_it_is_there(row: tuple[str, str, str, str]) -> None:
    _, _, here, shown = row
    names = re.findall(r"`([^`]+)`", shown)
    assert bool(names) is (shown != MISSING) is (here != "missing")
    for name in names:
        file, _, test = name.partition("::")
        path = ROOT / file
        assert path.is_dir() or (path.is_file() and not test) or test in names_in(path), name
