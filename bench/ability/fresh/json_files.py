"""JSON: keys, layout, remove, select, into a table."""

import json
from pathlib import Path

from bench.ability.checks import every, holds_json, lists, table, text, unchanged
from bench.ability.task import Task

_PROFILE = {"theme": "light", "language": "de", "recent": ["a.txt", "b.txt"], "window": {"width": 900, "height": 600}}
_ANSWER = {"status": "ok", "items": [{"id": 4, "tags": ["new", "red"]}, {"id": 9, "tags": []}], "next": None}
_ACCOUNTS = [
    {"login": "ines", "password": "s3cret", "quota": 50},
    {"login": "paul", "password": "hunter2", "quota": 20},
    {"login": "uma", "password": "letmein", "quota": 75},
]
_PRODUCTS = [
    {"title": "notebook", "price": 4.5},
    {"title": "backpack", "price": 59},
    {"title": "pen", "price": 1.2},
    {"title": "lamp", "price": 24.9},
    {"title": "ruler", "price": 2},
]
_SENSORS = [
    {"id": "s1", "room": "kitchen", "celsius": 21},
    {"id": "s2", "room": "attic", "celsius": 17},
    {"id": "s3", "room": "cellar", "celsius": 12},
]


def _file(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _is_laid_out(folder: Path) -> bool:
    found = text(folder / "answer.json").splitlines()
    return len(found) >= 8 and any(line.startswith((" ", "\t")) for line in found)


TASKS = (
    Task(
        "json-keys", "json", 1,
        "What are the top-level keys of profile.json? List them in keys.txt, each on a line of its own.",
        lists("keys.txt", *_PROFILE, in_order=False),
        "jq -r 'keys[]' profile.json > keys.txt",
        {"profile.json": _file(_PROFILE)},
    ),
    Task(
        "json-pretty", "json", 2,
        "answer.json is one long line that nobody can read. Reformat the file itself so that it is nicely indented;"
        " the data must stay the same.",
        every(_is_laid_out, holds_json("answer.json", _ANSWER)),
        "python3 -m json.tool answer.json pretty.tmp && mv pretty.tmp answer.json",
        {"answer.json": json.dumps(_ANSWER, separators=(",", ":"))},
    ),
    Task(
        "json-remove", "json", 2,
        "I want to share accounts.json, so the passwords must go: delete the password key from every account in that"
        " file, and keep the rest.",
        holds_json("accounts.json", [{"login": one["login"], "quota": one["quota"]} for one in _ACCOUNTS]),
        "jq 'map(del(.password))' accounts.json > new.tmp && mv new.tmp accounts.json",
        {"accounts.json": _file(_ACCOUNTS)},
    ),
    Task(
        "json-cheap", "json", 2,
        "From products.json take the products with a price under 10 and save them, again as a JSON list, in cheap.json"
        " please.",
        every(
            holds_json("cheap.json", [one for one in _PRODUCTS if one["title"] in ("notebook", "pen", "ruler")]),
            unchanged("products.json", _file(_PRODUCTS)),
        ),
        "jq 'map(select(.price < 10))' products.json > cheap.json",
        {"products.json": _file(_PRODUCTS)},
    ),
    Task(
        "json-table", "json", 3,
        "My colleague needs sensors.json as a spreadsheet. Turn it into sensors.csv with the header id,room,celsius"
        " and one row per sensor.",
        table("sensors.csv", ("id", "room", "celsius"), ("s1", "kitchen", "21"), ("s2", "attic", "17"),
              ("s3", "cellar", "12")),
        "(echo id,room,celsius; jq -r '.[] | [.id, .room, .celsius] | @csv' sensors.json) > sensors.csv",
        {"sensors.json": _file(_SENSORS)},
    ),
)  # fmt: skip
