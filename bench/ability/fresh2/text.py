"""Plain text: space at line ends, tabs, two lists side by side, a section, a setting."""

from pathlib import Path

from bench.ability.checks import every, lines, lists, says, unchanged
from bench.ability.task import Task

_DEPLOY = """service: billing
replicas: 3
env:
  - name: REGION
    value: eu-west
  - name: LEVEL
    value: info
ports: [8443]
"""
_PARSER = """def parse(line):
\tif not line:
\t\treturn None
\tkey, value = line.split("=")
\treturn key, value
"""
_HOSTS = ("db1", "db2", "web1", "cache")
_ADDRESSES = ("10.2.0.11", "10.2.0.12", "10.2.0.40", "10.2.0.77")
_README = """# imgtool

Makes thumbnails.

## Requirements

Python 3.11 or newer.

## Installation

Get the wheel from the release page, then:

    pip install imgtool-1.2-py3-none-any.whl

Run imgtool --version to see whether it works.

## Usage

    imgtool thumbs photos/

## License

MIT
"""
_SETTINGS = """[web]
port = 8080
timeout = 10

[database]
host = db1
timeout = 10
pool = 5

[cache]
timeout = 10
"""


def _with_loose_ends(words: str) -> str:
    """Spaces and tabs behind every second line."""
    ends = ("  ", "", "\t", "", " \t ")
    return "".join(f"{line}{ends[place % len(ends)]}\n" for place, line in enumerate(words.splitlines()))


def _is_clean(folder: Path) -> bool:
    found = (folder / "deploy.yaml").read_text()
    return found.rstrip("\n") == _DEPLOY.rstrip("\n")


def _has_pairs(folder: Path) -> bool:
    found = [line.split() for line in lines(folder / "inventory.txt") if line]
    return found == [list(pair) for pair in zip(_HOSTS, _ADDRESSES, strict=True)]


def _has_new_timeout(folder: Path) -> bool:
    found = ["".join(line.split()) for line in lines(folder / "settings.ini") if line]
    wanted = [line.replace(" ", "") for line in _SETTINGS.splitlines() if line]
    wanted[wanted.index("host=db1") + 1] = "timeout=30"
    return found == wanted


TASKS = (
    Task(
        "text-trailing", "text", 1,
        "The linter complains about trailing whitespace in deploy.yaml. Remove the spaces and tabs at the ends of the"
        " lines, the indentation has to stay.",
        _is_clean,
        "sed -i 's/[ \\t]*$//' deploy.yaml",
        {"deploy.yaml": _with_loose_ends(_DEPLOY)},
    ),
    Task(
        "text-tabs", "text", 1,
        "parser.py is indented with tabs. We use 4 spaces per level, please convert it.",
        says("parser.py", _PARSER.replace("\t", "    ")),
        "expand -t 4 parser.py > new.tmp && mv new.tmp parser.py",
        {"parser.py": _PARSER},
    ),
    Task(
        "text-paste", "text", 1,
        "hosts.txt has our host names and ips.txt their addresses, in the same order. Make inventory.txt out of them,"
        " with the host name, a space and its address on each line.",
        _has_pairs,
        "paste -d ' ' hosts.txt ips.txt > inventory.txt",
        {"hosts.txt": "".join(f"{one}\n" for one in _HOSTS), "ips.txt": "".join(f"{one}\n" for one in _ADDRESSES)},
    ),
    Task(
        "text-section", "text", 2,
        "Copy the Installation section of README.md into a new file INSTALL.md, from its heading up to where the next"
        " section starts. README.md itself doesn't change.",
        every(
            lists("INSTALL.md", "## Installation", "Get the wheel from the release page, then:",
                  "pip install imgtool-1.2-py3-none-any.whl", "Run imgtool --version to see whether it works."),
            unchanged("README.md", _README),
        ),
        "awk '/^## / {on = /Installation/} on' README.md > INSTALL.md",
        {"README.md": _README},
    ),
    Task(
        "text-setting", "text", 2,
        "Database queries time out too early. In settings.ini set the timeout of the [database] section to 30. The"
        " timeouts of the other sections are fine as they are.",
        _has_new_timeout,
        "sed -i '/^\\[database\\]/,/^\\[c/ s/^timeout = .*/timeout = 30/' settings.ini",
        {"settings.ini": _SETTINGS},
    ),
)  # fmt: skip
