"""Tables in CSV: count, select, add up, sort, group."""

from bench.ability.checks import holds_json, lists, number, table
from bench.ability.task import Task

_SALES = """date,region,amount
2026-01-04,north,120.50
2026-01-09,south,80.00
2026-02-11,north,99.50
2026-02-20,west,45.25
2026-03-02,south,10.75
2026-03-15,east,300.00
"""
_PEOPLE = """name,city,age
Anna,Berlin,34
Tom,Hamburg,28
Zoe,Berlin,41
Max,Munich,19
Lena,Berlin,25
"""
_SCORES = "player,score\nmia,70\nben,105\nada,9\nkai,88\n"
_ROWS = (("mia", "70"), ("ben", "105"), ("ada", "9"), ("kai", "88"))

TASKS = (
    Task(
        "csv-rows", "csv", 1,
        "sales.csv has a header line. Write the number of its data rows, the header not counted, into rows.txt.",
        number("rows.txt", 6),
        "tail -n +2 sales.csv | wc -l > rows.txt",
        {"sales.csv": _SALES},
    ),
    Task(
        "csv-sum", "csv", 2,
        "Add up the column amount of sales.csv and write only the sum into total.txt.",
        number("total.txt", 656.0),
        "awk -F, 'NR>1 {s+=$3} END {print s}' sales.csv > total.txt",
        {"sales.csv": _SALES},
    ),
    Task(
        "csv-filter", "csv", 2,
        "Write the header of people.csv and the rows of the people who live in Berlin into berlin.csv.",
        table("berlin.csv", ("name", "city", "age"), ("Anna", "Berlin", "34"), ("Zoe", "Berlin", "41"),
              ("Lena", "Berlin", "25"), in_order=False),
        "awk -F, 'NR==1 || $2==\"Berlin\"' people.csv > berlin.csv",
        {"people.csv": _PEOPLE},
    ),
    Task(
        "csv-column", "csv", 2,
        "Write the names of all people in people.csv into names.txt, one on each line, without the header.",
        lists("names.txt", "Anna", "Tom", "Zoe", "Max", "Lena"),
        "tail -n +2 people.csv | cut -d, -f1 > names.txt",
        {"people.csv": _PEOPLE},
    ),
    Task(
        "csv-sort", "csv", 3,
        "Sort the rows of scores.csv by score, the highest first, and write them with the header on top into"
        " sorted.csv.",
        table("sorted.csv", ("player", "score"), ("ben", "105"), ("kai", "88"), ("mia", "70"), ("ada", "9")),
        "(head -n 1 scores.csv; tail -n +2 scores.csv | sort -t, -k2,2nr) > sorted.csv",
        {"scores.csv": _SCORES},
    ),
    Task(
        "csv-to-json", "csv", 3,
        "Convert scores.csv into scores.json: a list with one object for each row, such as"
        ' {"player": "mia", "score": "70"}.',
        lambda folder: (
            holds_json("scores.json", [{"player": p, "score": s} for p, s in _ROWS])(folder)
            or holds_json("scores.json", [{"player": p, "score": int(s)} for p, s in _ROWS])(folder)
        ),
        "python3 -c 'import csv, json; print(json.dumps(list(csv.DictReader(open(\"scores.csv\")))))' > scores.json",
        {"scores.csv": _SCORES},
    ),
    Task(
        "csv-mean", "csv", 2,
        "What is the average age of the people in people.csv? Write only the number into average.txt.",
        number("average.txt", 29.4),
        "awk -F, 'NR>1 {s+=$3; n++} END {print s/n}' people.csv > average.txt",
        {"people.csv": _PEOPLE},
    ),
)  # fmt: skip
