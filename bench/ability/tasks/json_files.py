"""JSON: read a value, change one, list, count, merge, repair."""

import json

from bench.ability.checks import every, holds_json, lists, number, says
from bench.ability.task import Task

_PACKAGE = {"name": "shop", "version": "2.14.3", "dependencies": {"left-pad": "1.0.0"}}
_CONFIG = {"host": "localhost", "port": 3000, "tls": {"on": True, "port": 443}}
_USERS = [
    {"name": "anna", "active": True, "age": 34},
    {"name": "tom", "active": False, "age": 28},
    {"name": "zoe", "active": True, "age": 41},
    {"name": "max", "active": True, "age": 19},
]
_BROKEN = '{\n  "theme": "dark",\n  "size": 12,\n  "fonts": ["mono", "serif"],\n}\n'


def _file(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


TASKS = (
    Task(
        "json-read", "json", 1,
        "Write the version of the package in package.json into version.txt.",
        says("version.txt", "2.14.3"),
        "jq -r .version package.json > version.txt",
        {"package.json": _file(_PACKAGE)},
    ),
    Task(
        "json-set", "json", 2,
        "Change the port in config.json from 3000 to 8080 and leave everything else as it is.",
        holds_json("config.json", {**_CONFIG, "port": 8080}),
        "sed -i s/3000/8080/ config.json",
        {"config.json": _file(_CONFIG)},
    ),
    Task(
        "json-names", "json", 2,
        "Write the names of all users in users.json into names.txt, one on each line.",
        lists("names.txt", "anna", "tom", "zoe", "max"),
        "jq -r '.[].name' users.json > names.txt",
        {"users.json": _file(_USERS)},
    ),
    Task(
        "json-count", "json", 2,
        "How many of the users in users.json are active? Write only the number into active.txt.",
        number("active.txt", 3),
        "jq 'map(select(.active)) | length' users.json > active.txt",
        {"users.json": _file(_USERS)},
    ),
    Task(
        "json-add", "json", 2,
        'Add the key "debug" with the value true to the object in config.json.',
        holds_json("config.json", {**_CONFIG, "debug": True}),
        "jq '.debug = true' config.json > /tmp/c.$$ && cat /tmp/c.$$ > config.json && rm /tmp/c.$$",
        {"config.json": _file(_CONFIG)},
    ),
    Task(
        "json-repair", "json", 3,
        "settings.json is not valid JSON: there is a comma too many. Repair the file and keep all its values.",
        holds_json("settings.json", {"theme": "dark", "size": 12, "fonts": ["mono", "serif"]}),
        "sed -i 's/\"serif\"],/\"serif\"]/' settings.json",
        {"settings.json": _BROKEN},
    ),
    Task(
        "json-merge", "json", 3,
        "Merge the objects in base.json and extra.json into merged.json. Where both have a key, the value of"
        " extra.json counts.",
        every(
            holds_json("merged.json", {"name": "app", "level": 2, "log": True, "path": "/srv"}),
            holds_json("base.json", {"name": "app", "level": 1, "log": True}),
        ),
        "jq -s '.[0] * .[1]' base.json extra.json > merged.json",
        {
            "base.json": _file({"name": "app", "level": 1, "log": True}),
            "extra.json": _file({"level": 2, "path": "/srv"}),
        },
    ),
)  # fmt: skip
