"""Writes docs/cli, a page a command, from the commands themselves, docs/settings-reference.md from the settings, and
docs/security/syscalls.md from the filter's tables: `make docs`. A test holds the files to what this prints.
"""

import inspect
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import click

from stockade.cli.commands import stockade
from stockade.cli.flags import ON_A_SCREEN
from stockade.core.settings import Field, FrontSettings, RunSettings, fields
from stockade_sandbox.backends import syscalls

TARGET = Path(__file__).with_name("cli")
REFERENCE = Path(__file__).with_name("settings-reference.md")
SYSCALLS = Path(__file__).parent / "security" / "syscalls.md"
_GROUPS = (("Of a run", RunSettings), ("Of the command line", FrontSettings))
_SETTINGS = {**fields(RunSettings), **fields(FrontSettings)}
_OFTEN = {key for keys in ON_A_SCREEN.values() for key in keys}
_KINDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}


MADE = "Made by `make docs` from the commands' definitions; do not edit."


def pages() -> dict[str, str]:
    """The page of each command by its file's name, and one that lists them."""
    top = click.Context(stockade, info_name="stockade")
    made, rows = {}, []
    for name in stockade.list_commands(top):
        command = stockade.get_command(top, name)
        assert command is not None
        made[f"{name}.md"] = "\n".join([*_command(command, name, top, "#"), ""])
        rows.append(f"| [`stockade {name}`]({name}.md) | {command.get_short_help_str(200)} |")
    head = f"# The commands\n\n{MADE} [The interface](../interface.md) says what of it is promised.\n"
    made["README.md"] = "\n".join([head, "| command | what it does |", "|---|---|", *rows, ""])
    return made


def _command(command: click.Command, name: str, parent: click.Context, level: str) -> Iterator[str]:
    """Of a command and of all below it, in order."""
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"{level} {context.command_path}\n"
    if level == "#":
        yield f"{MADE}\n"
    yield f"```\n{usage}\n```\n"
    yield f"{inspect.cleandoc(command.help or '').replace(chr(8), '').strip()}\n"
    takes = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    rest = {one.name: one for one in takes if one.name in _SETTINGS and one.name not in _OFTEN}
    if records := [record for one in takes if one.name not in rest and (record := one.get_help_record(context))]:
        rows = [f"| `{_cell(flags)}` | {_cell(words)} |" for flags, words in records]
        yield "\n".join(["| flag | |", "|---|---|", *rows, ""])
    if rest:
        names = ", ".join(f"`{one.opts[-1]}`" for one in rest.values())
        yield f"And flags of [other settings](../settings-reference.md): {names}.\n"
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from _command(found, child, context, "##")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def reference() -> str:
    """All settings, a table of each group: how they are written, what they take, what holds where nobody sets them."""
    parts = [
        "# All settings\n\nMade by `make docs` from `stockade/core/settings.py`; do not edit. [settings.md]"
        "(settings.md) says what goes before what.\n\nA key stands in `config.toml` and `-o KEY=VALUE` and, in capital"
        " letters behind `STOCKADE_`, in a variable; a flag is the same with `-` for `_`. **b**: a bot's file may set"
        " it too.\n"
    ]
    for title, settings in _GROUPS:
        rows = [_row(field) for field in sorted(fields(settings).values(), key=lambda field: field.key)]
        parts.append("\n".join([f"## {title}\n", "| key | takes | by default | |", "|---|---|---|---|", *rows, ""]))
    parts.append(
        "`hooks`, a list of names or tables, has no flag: [hooks.md](hooks.md). It may stand in the file of a bot.\n"
    )
    return "\n".join(parts)


def system_calls() -> str:
    """The filter: every call that it knows, and why."""
    parts = [
        "# The system calls of a sandbox\n\nMade by `make docs` from `backends/syscalls.py`; do not edit. A call that"
        " is not here answers ENOSYS, on x86-64 and on aarch64; one of another architecture, x32 and `int 0x80` end the"
        " program.\n"
    ]
    conditions = {"For some arguments only: `CONDITIONS` of `backends/seccomp.py` says which.": syscalls.CHECKED}
    missing = {"Their arguments lie in memory, where a filter cannot look; callers fall back.": syscalls.MISSING}
    for title, tables in (
        ("Allowed", syscalls.ALLOWED), ("Allowed for some arguments", conditions),
        ("Refused: EPERM", syscalls.REFUSED), ("Not there: ENOSYS", missing),
    ):  # fmt: skip
        rows = [f"| {why} | {' '.join(f'`{name}`' for name in calls)} |" for why, calls in tables.items()]
        parts.append("\n".join([f"## {title}\n", "| why | calls |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


def _row(field: Field) -> str:
    setting = field.setting
    if typing.get_origin(field.kind) is Literal:
        takes = ", ".join(f"`{one}`" for one in typing.get_args(field.kind))
    else:
        takes = "list of texts" if field.many else _KINDS[field.kind]
    bounds = [f"{words} {bound}" for words, bound in (("from", setting.ge), ("above", setting.gt), ("to", setting.le))
              if bound is not None]  # fmt: skip
    default = "" if field.default in (None, ()) else f"`{str(field.default).lower()}`"
    words = f"{setting.help}{' **b**' if setting.in_bots else ''}"
    return f"| `{field.key}` | {' '.join([takes, *bounds])} | {default} | {words} |"


if __name__ == "__main__":
    made = pages()
    TARGET.mkdir(exist_ok=True)
    for old in TARGET.glob("*.md"):
        old.unlink()
    for name, text in made.items():
        (TARGET / name).write_text(text)
    REFERENCE.write_text(reference())
    SYSCALLS.write_text(system_calls())
    sys.stdout.write(f"{TARGET}\n{REFERENCE}\n{SYSCALLS}\n")
