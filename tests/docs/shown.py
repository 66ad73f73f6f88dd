"""What a page of the docs shows: its code, its tables, its commands."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from stockade.cli.commands import stockade

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_FENCED = re.compile(r"^(`{3,})([^\n`]*)\n(.*?)^\1`*[ ]*$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_CALLED = re.compile(r"^(?:.*[$:] +)?(?:[A-Z_]+=\S+ +)*stockade (?=[a-z-])")
_IN_A_GROUP = re.compile(r"(?:runs|sandbox|model|tool) [a-z]")
_ENDS = ("--", "&&", "||", ">", ">>", "<", "2>", "2>&1", "&", "...", "#")
_SHELL = ("", "sh", "bash", "console", "text")


def blocks(page: str, *languages: str) -> list[str]:
    """The fenced code of these languages."""
    return [found[3] for found in _FENCED.finditer(page) if found[2].strip() in languages]


def without_blocks(page: str) -> str:
    return _FENCED.sub("", page)


def inline(page: str) -> list[str]:
    """The code in running text, each on one line."""
    return [" ".join(found[2].split()) for found in _INLINE.finditer(without_blocks(page))]


def calls(page: str) -> Iterator[str]:
    """Every `stockade COMMAND ...` without what stands before it, and in running text every `runs COMMAND ...` too."""
    lines = [line for block in blocks(page, *_SHELL) for line in block.replace("\\\n", " ").splitlines()]
    for text in [line for line in lines if " · " not in line] + inline(page):
        if found := _CALLED.match(text):
            yield text[found.end() :]
        elif _IN_A_GROUP.match(text):
            yield text


def problem(call: str) -> str | None:
    """What there is not, of the words behind `stockade`. Behind a ` | ` is another command, or another program."""
    group: click.Group = stockade
    for number, words in enumerate(_parts(call)):
        if number and _found(group, words[0]) is None:
            if _found(stockade, words[0]) is None:
                return None
            group = stockade
        group, wrong = _follow(group, words)
        if wrong:
            return wrong
    return None


def _follow(group: click.Group, words: list[str]) -> tuple[click.Group, str | None]:
    """The group of the command that these words call, and the first of them that there is not."""
    command: click.Command = group
    own = False  # behind a flag of a group that works alone there is no command of it
    for word in words:
        if word.startswith("-"):
            if command.context_settings.get("ignore_unknown_options"):
                continue
            names = [name.partition("=")[0] for name in word.split("|") if name.startswith("-")]
            wrong = [name for name in names if name not in flags_of(command)]
            if wrong:
                return group, f"{wrong[0]} is no flag of {command.name}"
            own = isinstance(command, click.Group) and command.invoke_without_command
        elif isinstance(command, click.Group) and not own:
            group, found = command, [(name, _found(command, name)) for name in word.split("|")]
            wrong = [name for name, one in found if one is None]
            if wrong:
                return group, f"{wrong[0]} is no command of {group.name}"
            command = found[0][1] or command
    return group, None


def _parts(call: str) -> list[list[str]]:
    """The words of a command line up to its end, in parts between ` | `."""
    try:
        words = shlex.split(call, comments=True)
    except ValueError:
        words = call.partition(" #")[0].split()
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "|" and parts[-1]:
            parts.append([])
        elif word in _ENDS or word.endswith((";", ":")) or not (plain := word.strip("[](),.;…")):
            break
        else:
            parts[-1].append(plain)
    return [part for part in parts if part]


def _found(group: click.Group, name: str) -> click.Command | None:
    return group.get_command(click.Context(group), name)


def flags_of(command: click.Command) -> set[str]:
    context = click.Context(command, info_name=command.name, help_option_names=["-h", "--help"])
    return {name for one in command.get_params(context) for name in (*one.opts, *one.secondary_opts)}


def all_flags(command: click.Command = stockade) -> set[str]:
    """Of a command and of all below it."""
    flags = flags_of(command)
    if isinstance(command, click.Group):
        below = [_found(command, name) for name in command.list_commands(click.Context(command))]
        flags = flags.union(*(all_flags(one) for one in below if one is not None))
    return flags


def tables(page: str) -> Iterator[list[str]]:
    """Lines that follow one another and begin with a bar."""
    table: list[str] = []
    for line in [*without_blocks(page).splitlines(), ""]:
        if line.lstrip().startswith("|"):
            table.append(line.strip())
        elif table:
            yield table
            table = []


def columns(row: str) -> int:
    """As GitHub counts them: a bar in code is one too, unless it is escaped."""
    return len(re.split(r"(?<!\\)\|", row.removeprefix("|").removesuffix("|")))


def anchors(page: str) -> set[str]:
    """The names of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ +(.*?) *$", without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
