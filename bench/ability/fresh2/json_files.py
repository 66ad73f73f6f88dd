"""JSON: a part, lines into a list, the invalid one, a sum of products, from another format."""

import json
from pathlib import Path

from bench.ability.checks import every, holds_json, lines, number, unchanged
from bench.ability.task import Task

_DATABASE = {"host": "db2.internal", "port": 5433, "replicas": ["db3.internal", "db4.internal"], "ssl": True}
_CONFIG = {"name": "billing", "database": _DATABASE, "queue": {"host": "mq1.internal", "prefetch": 8}}
_EVENTS = [
    {"type": "login", "user": 17, "ok": True},
    {"type": "upload", "user": 17, "bytes": 48211, "tags": ["raw", "scan"]},
    {"type": "login", "user": 4, "ok": False},
    {"type": "logout", "user": 17},
]
_CONFIGS = {
    "configs/api.json": '{\n  "port": 8000,\n  "workers": 4\n}\n',
    "configs/cron.json": '{\n  "jobs": ["nightly", "weekly"]\n}\n',
    "configs/mail.json": '{\n  "from": "noreply@example.org"\n  "retries": 3\n}\n',
    "configs/search.json": '{\n  "index": "products",\n  "fuzzy": true\n}\n',
}
_ORDER = {
    "order": "A-2207",
    "items": [
        {"sku": "cable-2m", "quantity": 12, "price": 3.25},
        {"sku": "switch-8p", "quantity": 2, "price": 41.9},
        {"sku": "rack-bolt", "quantity": 60, "price": 0.15},
    ],
}
_ENV = """# billing service
APP_NAME=billing
APP_PORT=8443

# storage
DATABASE_URL=postgres://app@db2/billing?sslmode=require
UPLOAD_DIR=/srv/billing/uploads
DEBUG=false
"""
_ENV_VALUES = {
    "APP_NAME": "billing",
    "APP_PORT": "8443",
    "DATABASE_URL": "postgres://app@db2/billing?sslmode=require",
    "UPLOAD_DIR": "/srv/billing/uploads",
    "DEBUG": "false",
}


def _file(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _names_the_broken(folder: Path) -> bool:
    found = [line.removeprefix("./").removeprefix("configs/") for line in lines(folder / "broken.txt") if line]
    return found == ["mail.json"]


TASKS = (
    Task(
        "json-part", "json", 1,
        "I only need the database part of config.json. Save what is under the key database as database.json.",
        every(holds_json("database.json", _DATABASE), unchanged("config.json", _file(_CONFIG))),
        "python3 -c 'import json; print(json.dumps(json.load(open(\"config.json\"))[\"database\"]))' > database.json",
        {"config.json": _file(_CONFIG)},
    ),
    Task(
        "json-lines", "json", 2,
        "events.jsonl has one JSON object per line, but the importer expects a single JSON array. Create events.json"
        " with all of the objects in one array, in the same order.",
        holds_json("events.json", _EVENTS),
        "(echo '['; sed '$!s/$/,/' events.jsonl; echo ']') > events.json",
        {"events.jsonl": "".join(json.dumps(event) + "\n" for event in _EVENTS)},
    ),
    Task(
        "json-invalid", "json", 2,
        "The service refuses to start because one of the files in configs is not valid JSON. Write the name of that"
        " file to broken.txt. Don't fix it, the owner will do that.",
        every(_names_the_broken, *(unchanged(name, content) for name, content in _CONFIGS.items())),
        "for f in configs/*; do python3 -m json.tool $f > /dev/null || basename $f; done > broken.txt",
        _CONFIGS,
    ),
    Task(
        "json-total", "json", 2,
        "What does the order in order.json cost in total? Each item has a price per piece and a quantity. Write just"
        " the amount to total.txt.",
        number("total.txt", 131.8),
        "python3 -c 'import json; items = json.load(open(\"order.json\"))[\"items\"];"
        ' print(round(sum(item["price"] * item["quantity"] for item in items), 2))\' > total.txt',
        {"order.json": _file(_ORDER)},
    ),
    Task(
        "json-env", "json", 3,
        "We are moving from env files to JSON. Turn app.env into app.json: a single object with the variables as keys"
        " and all values as strings. Comments and empty lines can go.",
        every(holds_json("app.json", _ENV_VALUES), unchanged("app.env", _ENV)),
        "python3 -c 'import json; rows = [row.strip() for row in open(\"app.env\")];"
        ' print(json.dumps(dict(row.split("=", 1) for row in rows if row and row[0] != "#")))\' > app.json',
        {"app.env": _ENV},
    ),
)  # fmt: skip
