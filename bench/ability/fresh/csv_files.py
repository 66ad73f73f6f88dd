"""Tables in CSV: a sample, distinct values, the highest, other separators, sums of groups."""

import csv
from pathlib import Path

from bench.ability.checks import every, lists, says, table, text, unchanged
from bench.ability.task import Task

_METERS = "time,watt,state\n" + "".join(f"{10 + number}:00,{200 + 7 * number},ok\n" for number in range(12))
_CUSTOMERS = """id,company,country
101,Nordlys,Norway
102,Casa Verde,Spain
103,Fjord AS,Norway
104,Obrador,Spain
105,Tulip Works,Netherlands
106,Lighthouse,Norway
"""
_STOCK = """article,pieces,price
lamp,14,39.90
desk,3,249.00
chair,22,89.50
shelf,7,119.00
mug,140,7.20
"""
_EXPORT = "code;label;weight\nA1;steel bolt;0.25\nB7;copper wire;1.5\nC3;oak board;4\n"
_HOURS = """day,team,hours
mon,backend,6
mon,design,3
tue,backend,8
tue,support,5
wed,design,4
wed,backend,2
"""


def _has_totals(folder: Path) -> bool:
    """In any order; 16.0 is as good as 16."""
    header, *rows = (row for row in csv.reader(text(folder / "totals.csv").splitlines()) if row)
    found = sorted((team.strip(), float(hours)) for team, hours in rows)
    named = [cell.strip() for cell in header] == ["team", "hours"]
    return named and found == [("backend", 16), ("design", 7), ("support", 5)]


TASKS = (
    Task(
        "csv-sample", "csv", 1,
        "I only want a small sample of meters.csv to play with: the header and the first three rows after it, saved"
        " as sample.csv.",
        every(
            table("sample.csv", ("time", "watt", "state"), ("10:00", "200", "ok"), ("11:00", "207", "ok"),
                  ("12:00", "214", "ok")),
            unchanged("meters.csv", _METERS),
        ),
        "head -n 4 meters.csv > sample.csv",
        {"meters.csv": _METERS},
    ),
    Task(
        "csv-distinct", "csv", 2,
        "Which countries do our customers come from? See customers.csv. Give me a file countries.txt with each country"
        " once, in alphabetical order, one per line.",
        lists("countries.txt", "Netherlands", "Norway", "Spain"),
        "tail -n +2 customers.csv | cut -d, -f3 | sort -u > countries.txt",
        {"customers.csv": _CUSTOMERS},
    ),
    Task(
        "csv-dearest", "csv", 2,
        "Look into stock.csv for the article with the highest price and save the name of that article in dearest.txt.",
        says("dearest.txt", "desk"),
        "tail -n +2 stock.csv | sort -t, -k3,3nr | head -n 1 | cut -d, -f1 > dearest.txt",
        {"stock.csv": _STOCK},
    ),
    Task(
        "csv-semicolons", "csv", 2,
        "export.csv is separated by semicolons, but the shop wants commas. Make a file import.csv with commas from it"
        " and do not touch export.csv.",
        every(
            table("import.csv", ("code", "label", "weight"), ("A1", "steel bolt", "0.25"), ("B7", "copper wire", "1.5"),
                  ("C3", "oak board", "4")),
            unchanged("export.csv", _EXPORT),
        ),
        "tr ';' ',' < export.csv > import.csv",
        {"export.csv": _EXPORT},
    ),
    Task(
        "csv-teams", "csv", 3,
        "hours.csv says who worked how long. I need the total hours of every team in a new table totals.csv with the"
        " header team,hours and one row per team.",
        _has_totals,
        "(echo team,hours; awk -F, 'NR>1 {s[$2]+=$3} END {for (t in s) print t \",\" s[t]}' hours.csv) > totals.csv",
        {"hours.csv": _HOURS},
    ),
)  # fmt: skip
