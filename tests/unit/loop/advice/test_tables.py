"""Commands on a table with a header, judged with a look at it; each proposal is run by a real shell."""

from pathlib import Path

import anyio
import pytest

from stockade.core.actions import WriteFile
from stockade.loop.advice import before, tables
from stockade.loop.advice.said import INSTEAD
from tests.unit.loop.helpers import DeafSandbox, HereSandbox

pytestmark = pytest.mark.anyio
SCORES = "player,score\nmia,70\nben,105\nada,9\n"
PEOPLE = "name,city,age\nAnna,Berlin,34\nTom,Hamburg,28\nZoe,Berlin,41\n"
SORTED = "player,score\nben,105\nmia,70\nada,9\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scores.csv").write_text(SCORES)
    (tmp_path / "people.csv").write_text(PEOPLE)
    (tmp_path / "plain.csv").write_text("b,2\na,10\n")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "task", "printed"),
    [
        ("sort -k2nr scores.csv", "by score", SORTED),
        ("sort -t, -k2 -nr scores.csv", "by score", SORTED),
        ("sort -t ',' -k2,2nr scores.csv > out.csv && cat out.csv", "", None),
        ("sort -k2n plain.csv", "", "b,2\na,10\n"),
        ("tail -n +2 scores.csv | sort -k2 -n", "", "ada,9\nmia,70\nben,105\n"),
        (
            "awk -F, '{n[$2] += $3} END {for (c in n) print c, n[c]}' people.csv | sort",
            "",
            "Berlin 75\nHamburg 28\n",
        ),
        ("awk -F, '{print $2}' people.csv | sort -u", "each city once", "Berlin\nHamburg\n"),
        ("cut -d, -f2 people.csv | sort | uniq", "each city once", "Berlin\nHamburg\n"),
        ("awk -F, 'NR>1' people.csv", "Write the names of all people", "Anna\nTom\nZoe\n"),
        ("awk -F',' 'NR>1 {print}' people.csv", "the city of each", "Berlin\nHamburg\nBerlin\n"),
        ("tail -n +2 people.csv", "Write the names, one on each line", "Anna\nTom\nZoe\n"),
        ("wc -l scores.csv | awk '{print $1}'", "the number of rows", "3\n"),
        ("wc -l < scores.csv", "how many, the header not counted", "3\n"),
        ("cat scores.csv | wc -l > n.txt; cat n.txt", "rows", None),
        ("awk -F, '{sum += $2} END {print sum/NR}' scores.csv", "", "61.3333\n"),
        ("awk -F, '$2 == max {max=$2; who=$1} END {print who}' scores.csv", "the player with most points", "ben\n"),
        ("awk -F, '$2 == low {print $1}' scores.csv", "Who has the lowest score", "ada\n"),
        ("awk -F, '$2 > max {max=$2; who=$1} END {print who}' scores.csv", "the player with most points", None),
        ("awk -F, '{print $1 \",\" $3}' people.csv > new.csv", "names and ages", None),
        ("awk -F, -v OFS=, '{print $1, $3}' people.csv > new.csv", "names and ages", None),
        ("awk -F, '{print $1, $3}' people.csv > new.txt", "names and ages", None),
        ("awk -F, -v max=70 '$2 == max {print $1}' scores.csv", "the highest", None),
        ("awk -F, '$2 == max {print $1}' scores.csv", "the highest and the lowest", None),
        ("awk -F ',' '{s+=$2} END {printf \"%.1f\", s / NR}' scores.csv", "", "61.3"),
    ],
)
async def test_a_command_that_overlooks_what_the_table_is(
    folder: Path, command: str, task: str, printed: str | None
) -> None:
    said = await tables.doubt(command, task, HereSandbox(folder))
    if printed is None:
        assert said is None
        return
    assert said is not None
    instead = said.partition(INSTEAD)[2]
    done = await anyio.run_process(["bash", "-c", instead], cwd=folder)
    assert done.stdout.decode() == printed
    assert await tables.doubt(instead, task, HereSandbox(folder)) is None


@pytest.mark.parametrize(
    ("command", "task"),
    [
        ("sort scores.txt", ""),
        ("awk -F, '{print $2}' people.csv", "each city"),
        ("cut -d, -f1 plain.csv | sort -u", "each"),
        ("wc -l scores.csv", "How many lines has the file?"),
        ("wc -l plain.csv", "How many rows?"),
        ("tail -n +2 scores.csv | wc -l", "How many rows?"),
        ("sort -t, -k2,2nr plain.csv", ""),
        ("sort -u plain.csv", ""),
        ("awk -F, 'NR>1' people.csv", "the rows without the header"),
        ("awk -F, 'NR>1 {print $1}' people.csv", "the names"),
        ("tail -n +2 people.csv", "the names of the people, with all else"),
        ("tail -n +2 people.csv | wc -l", "one on each line: names"),
        ("awk -F, 'NR>1 {s+=$2} END {print s/(NR-1)}' scores.csv", ""),
        ("awk -F, '{s+=$2} END {print s/NR}' plain.csv", ""),
        ("awk -F, '{print $2, $1}' scores.csv | sort -k1 -n", ""),
        ("sort -k2nr none.csv > x.txt; rm x.txt", ""),
    ],
)
async def test_other_commands_are_done(folder: Path, command: str, task: str) -> None:
    assert await tables.doubt(command, task, HereSandbox(folder)) is None


async def test_a_sandbox_that_cannot_say_is_no_reason() -> None:
    assert await tables.doubt("sort -t, -k2nr scores.csv", "", DeafSandbox()) is None


@pytest.mark.parametrize(
    ("path", "content", "task", "way"),
    [
        (
            "b.csv",
            PEOPLE,
            "Write the rows of people.csv with Berlin into b.csv",
            "awk -F, 'NR==1 || $2 ~ /^Berlin$/' people.csv > b.csv",
        ),
        (
            "up.txt",
            PEOPLE,
            "Write people.csv in upper case into up.txt",
            "tr [:lower:] [:upper:] < people.csv > up.txt",
        ),
        ("b.csv", PEOPLE, "Turn people.csv round into b.csv", "COMMAND > b.csv"),
    ],
)
async def test_a_copy_word_by_word_is_asked_about(folder: Path, path: str, content: str, task: str, way: str) -> None:
    said = await before.doubt(WriteFile(path=path, content=content), task, (), (PEOPLE,), HereSandbox(folder))
    assert way in (said or "")


@pytest.mark.parametrize(
    ("path", "content", "task"),
    [
        ("b.csv", PEOPLE, "Copy people.csv to b.csv"),
        ("b.csv", "name,city\n", "the names of people.csv into b.csv"),
        ("people.csv", PEOPLE, "mend people.csv"),
    ],
)
async def test_a_copy_that_is_wanted_is_made(folder: Path, path: str, content: str, task: str) -> None:
    assert await before.doubt(WriteFile(path=path, content=content), task, (), (PEOPLE,), HereSandbox(folder)) is None


@pytest.mark.parametrize(
    ("command", "task", "made"),
    [
        (
            "awk -F, '{n[$2] += $3} END {for (c in n) print c, n[c]}' people.csv > new.csv",
            "a table new.csv with the header city,years",
            "city,years\nBerlin,75\nHamburg,28\n",
        ),
        ("awk -F, 'NR>1 {print $1, $3}' people.csv > new.csv", "Names and ages", "Anna,34\nTom,28\nZoe,41\n"),
        ("awk -F, '{print $1, $3}' people.csv > new.csv", "", "name,age\nAnna,34\nTom,28\nZoe,41\n"),
    ],
)
async def test_a_table_is_made_with_commas(folder: Path, command: str, task: str, made: str) -> None:
    instead = (await tables.doubt(command, task, HereSandbox(folder)) or "").partition(INSTEAD)[2]
    await anyio.run_process(["bash", "-c", instead], cwd=folder)
    lines = (folder / "new.csv").read_text().splitlines()
    assert [lines[0], *sorted(lines[1:])] == made.splitlines()
    assert await tables.doubt(instead, task, HereSandbox(folder)) is None
