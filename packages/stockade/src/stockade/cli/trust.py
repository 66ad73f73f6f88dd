"""`stockade trust`: a file of a folder is read as configuration from now on, as it stands."""

import json
from os.path import expanduser
from pathlib import Path

import click

from stockade.cli.ui.console import can_ask
from stockade.cli.ui.failures import say
from stockade.cli.ui.review import YES, ask_person
from stockade.cli.ui.safe import one_line
from stockade.core.errors import UsageError
from stockade.paths import PROJECT_FILE, is_trusted, read_bounded, trust
from stockade.runtime.sources import SERVERS_FILE
from stockade_sandbox.toml import parse_toml

MAX_SHOWN_LINES, MAX_LINE_CHARS = 200, 1000
"""What is trusted on a terminal must have been seen whole."""


@click.command("trust", short_help="Trust a folder's stockade.toml or .mcp.json.")
@click.argument("file")
@click.option("--yes", is_flag=True, help="Without asking.")
def command(file: str, yes: bool) -> int:
    """Show FILE, a stockade.toml or .mcp.json, and let it be read as it stands. A change asks again."""
    path = Path(expanduser(file)).absolute()
    data = _read(path, file)
    if is_trusted(path):
        say(f"{path} is trusted already")
        return 0
    lines = data.decode(errors="replace").splitlines()
    if not yes:
        if len(lines) > MAX_SHOWN_LINES or any(len(line) > MAX_LINE_CHARS for line in lines):
            raise UsageError(f"{file} is too long to be judged here", "read it yourself, then add --yes")
        for line in lines:
            click.echo(f"  {one_line(line, 2 * MAX_LINE_CHARS)}", err=True)
        if not can_ask(no_input=False):
            raise UsageError("not a terminal, cannot ask", "add --yes when you know the file")
        if ask_person(f"Trust {one_line(str(path))} as shown? [y]es / [N]o: ") not in YES:
            say("not trusted")
            return 1
    trust(path, data)
    say(f"{path} is trusted as it stands")
    return 0


def _read(path: Path, shown: str) -> bytes:
    """UsageError for a file that no command would read, or could."""
    try:
        data = read_bounded(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{shown} cannot be read: {getattr(error, 'strerror', error)}", "check the path") from None
    if path.name not in (PROJECT_FILE, SERVERS_FILE):
        raise UsageError(f"{shown} is not read from a folder", f"only {PROJECT_FILE} and {SERVERS_FILE} are")
    kind = "TOML" if path.name == PROJECT_FILE else "JSON"
    try:
        parse_toml(data.decode()) if kind == "TOML" else json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{shown} is not {kind}: {one_line(str(error))}", "mend it first") from None
    return data
