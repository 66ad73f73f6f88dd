"""Plain text: a newer version, numbers in front, a licence line, a template."""

import re
from pathlib import Path

from bench.ability.checks import every, lines, lists, unchanged
from bench.ability.task import Task

_REQUIREMENTS = """flask==3.0.2
gunicorn==21.2.0
requests==2.31.0
requests-oauthlib==1.3.1
sqlalchemy==2.0.27
"""
_STEPS = (
    "Announce the downtime in the channel",
    "Stop the worker service",
    "Take a database snapshot",
    "Run the migrations",
    "Start the worker service",
    "Check the dashboard",
    "Close the downtime",
)
_LICENCE = "# SPDX-License-Identifier: Apache-2.0"
_MODULES = {
    "src/main.py": "from geo import distance\n\nprint(distance(0, 3))\n",
    "src/geo/__init__.py": "from geo.flat import distance\n",
    "src/geo/flat.py": '"""Distances on a line."""\n\n\ndef distance(a, b):\n    return abs(a - b)\n',
}
_OTHERS = {"src/geo/NOTES.md": "# Geo\n\nFlat for now.\n", "tools/lint.py": "print('lint')\n"}
_TEMPLATE = """Hello {{customer}},

your order {{order}} is on its way and should arrive on {{date}}.
You can follow order {{order}} here: {{link}}

Best wishes
{{agent}}
"""
_VALUES = {
    "customer": "Marta Lindqvist",
    "order": "8841",
    "date": "12 June 2026",
    "link": "https://shop.example.org/track/8841",
    "agent": "Jonas from the support team",
}
_VALUES_FILE = "".join(f"{key}={value}\n" for key, value in _VALUES.items())
_LETTER = re.sub(r"\{\{(\w+)\}\}", lambda found: _VALUES[found[1]], _TEMPLATE)


def _has_licence(folder: Path) -> bool:
    """An empty line below the new one is fine."""
    for name, content in _MODULES.items():
        first, rest = (folder / name).read_text().split("\n", 1)
        if first.rstrip() != _LICENCE or rest.strip() != content.strip():
            return False
    return True


def _has_letter(folder: Path) -> bool:
    return lines(folder / "letter.txt") == [line.strip() for line in _LETTER.strip().splitlines()]


TASKS = (
    Task(
        "text-bump", "text", 1,
        "Please update requests to version 2.32.3 in requirements.txt. All the other packages keep their versions.",
        lists("requirements.txt", *_REQUIREMENTS.replace("requests==2.31.0", "requests==2.32.3").splitlines()),
        "sed -i 's/^requests==.*/requests==2.32.3/' requirements.txt",
        {"requirements.txt": _REQUIREMENTS},
    ),
    Task(
        "text-number", "text", 1,
        "Turn checklist.txt into a numbered list and save it as numbered.txt. Each line gets its number, a dot and a"
        " space in front, the first one should read: 1. Announce the downtime in the channel",
        lists("numbered.txt", *(f"{place}. {step}" for place, step in enumerate(_STEPS, 1))),
        "awk '{print NR \". \" $0}' checklist.txt > numbered.txt",
        {"checklist.txt": "".join(f"{step}\n" for step in _STEPS)},
    ),
    Task(
        "text-header", "text", 2,
        "Legal wants a license line in our sources. Leave all other files alone, but put this line at the very top of"
        f" every .py file in src, including the subfolders: {_LICENCE}",
        every(_has_licence, *(unchanged(name, content) for name, content in _OTHERS.items())),
        f"find src -name '*.py' -exec sed -i '1i {_LICENCE}' {{}} +",
        {**_MODULES, **_OTHERS},
    ),
    Task(
        "text-template", "text", 2,
        "letter.tmpl is a mail template with placeholders like {{customer}}. Fill them in with the values from"
        " values.txt and save the result as letter.txt. The template has to stay as it is.",
        every(_has_letter, unchanged("letter.tmpl", _TEMPLATE)),
        "cp letter.tmpl letter.txt; while IFS='=' read -r key value; do sed -i \"s|{{$key}}|$value|g\" letter.txt;"
        " done < values.txt",
        {"letter.tmpl": _TEMPLATE, "values.txt": _VALUES_FILE},
    ),
)  # fmt: skip
