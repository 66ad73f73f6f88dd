"""What a task plainly wants of its files, held against what they hold."""

import pytest

from stockade.loop.advice import wanted

SUCH = "Count the lines of each level and write them into levels.txt, one line for each level, such as: INFO 12"


@pytest.mark.parametrize(
    ("task", "path", "text", "said"),
    [
        ("Write only the number into n.txt and out.txt.", "out.txt", "6 lines", "only a number in out.txt"),
        ("Write names.txt in upper case into upper.txt", "upper.txt", "Anna", "upper.txt is not in upper case"),
        ("Turn names.txt to lower case", "names.txt", "Anna", "tr [:upper:] [:lower:] < names.txt > names.txt.new"),
        (
            SUCH,
            "levels.txt",
            "      1 2026-03-01 08:00",
            "lines such as INFO 12, and those of levels.txt are such as 1 ",
        ),
        ("Write only the name into out.txt.", "out.txt", "   3 Ada", "sed -i 's/^ *[0-9]*[[:blank:]]*//' out.txt"),
        (SUCH, "levels.txt", "      3 INFO\n      4 WARN", "awk '{print $2, $1}' levels.txt > levels.txt.new && mv"),
        ("all names into names.txt, one on each line", "names.txt", "Anna,Berlin\nTom,Hamburg", "hold several things"),
    ],
)
def test_what_is_unlike_what_the_task_wants_is_said(task: str, path: str, text: str, said: str) -> None:
    assert said in "\n".join(wanted.unlike(task, {path: text}))


@pytest.mark.parametrize(
    ("task", "path", "text"),
    [
        ("Write only the number into out.txt.", "out.txt", "6"),
        ("Write only the number into out.txt.", "other.txt", "six"),
        ("Write names.txt in upper case into upper.txt", "upper.txt", "ANNA 12"),
        ("Write names.txt in upper case into upper.txt", "names.txt", "ANNA"),
        (SUCH, "levels.txt", "INFO 3\nWARN 4"),
        (SUCH, "levels.txt", "INFO: 3\nWARN: 4"),
        ("Write only the name into out.txt.", "out.txt", "Ada 3"),
        ("Write only the date into out.txt.", "out.txt", "3 May"),
        ("Write just the first line to out.txt.", "out.txt", "3 May"),
        ("Write out.py, which prints only the number.", "out.py", "print(6)"),
        ("Write a file out.txt such as you like", "out.txt", "x"),
        ("a list such as {'a': 1} into out.txt", "out.txt", "x"),
        ("all names into names.txt, one on each line", "names.txt", "Berg, Anna\nZoe"),
        ("all rows into rows.csv, one on each line", "rows.csv", "a,b"),
    ],
)
def test_of_what_may_be_right_nothing_is_said(task: str, path: str, text: str) -> None:
    assert wanted.unlike(task, {path: text}) == []
