"""`stockade model use`: which model is the default from now on, picked from what runs here, lies here or has a key."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from os.path import expanduser, isfile
from pathlib import Path
from typing import Any

import anyio
import click
from rich.console import Console
from rich.text import Text

from stockade.cli import flags
from stockade.cli.ui.console import can_ask, progress, write_line
from stockade.cli.ui.failures import say
from stockade.cli.ui.review import ask_person
from stockade.cli.ui.safe import one_line
from stockade.cli.ui.statusline import megabytes
from stockade.core.errors import StockadeError, UsageError
from stockade.core.messages import billions, is_small
from stockade.models import servers
from stockade.models.local import catalogue
from stockade.models.local import folder as local_files
from stockade.models.providers import AUTO, ModelName, parse_name
from stockade.models.servers import ListedModel, ModelServer
from stockade.runtime import models, registry
from stockade.runtime.settings import Front, load
from stockade.runtime.user_config import write_setting

ROLES = {"model": "model", "smart": "smart_model", "fast": "fast_model", "fallback": "fallback"}
"""What a model may be used as, and the setting that says so."""
NONE = "none"
_SHOWN = 30
_QUESTION = "Which one? A number, words of its name, or PROVIDER/NAME (Enter: no change): "


@dataclass(frozen=True, slots=True)
class Choice:
    """`spec`: PROVIDER/NAME; of a provider that is asked for its models when it is chosen, PROVIDER/."""

    group: str
    spec: str
    about: str = ""


@click.command("use", short_help="The default model: a picker, or NAME. Writes your configuration.")
@click.argument("name", required=False)
@click.option("--as", "role", type=click.Choice(tuple(ROLES)), default="model", show_default=True,
              help="What it is used as; `none` as NAME takes it out.")  # fmt: skip
@flags.offered(flags.JSON, flags.LOOK)
def use(name: str | None, role: str, **values: Any) -> int:
    """Which model a run takes when none is named, from now on: written into your configuration.

    Without NAME, on a terminal: a list to pick from, of servers that run here, files that are here and keys in the
    environment. NAME is PROVIDER/NAME, `auto`, or a name as a server of yours has it.
    """
    settings = load(flags.given(values))
    front, key = settings.front, ROLES[role]
    chosen = _resolved(name) if name else _picked(front, str(getattr(settings.options, key)))
    if chosen is None:
        say("nothing was changed")
        return 0
    if chosen == AUTO and role != "model":
        raise UsageError(f"auto is no {role} model", f"name one, or `none` for no {role} model")
    value: str | tuple[str, ...] | None = None if chosen == NONE else chosen
    if role == "fallback" and value is not None:
        value = (*(one for one in settings.options.fallback if one != chosen), chosen)
    path = write_setting(key, value)
    words = ", ".join(value) if isinstance(value, tuple) else chosen
    print(json.dumps({"setting": key, "value": value, "file": str(path)}) if front.json_lines
          else one_line(f"{key} = {words}, in {path}"))  # fmt: skip
    if value is not None and (stronger := getattr(load({}).options, key)) != value:
        say(f"here it is {stronger} all the same: a STOCKADE_ or LLAMA_ variable, or ./stockade.toml, goes first")
    return 0


def _resolved(name: str) -> str:
    """The full name of what was typed. UsageError, with the nearest, where a server that runs does not have it."""
    if name in (AUTO, NONE):
        return name
    provider = name.partition("/")[0]
    if provider in registry.names(models.GROUP):
        return _checked(parse_name(name, registry.names(models.GROUP)))
    if isfile(expanduser(name)):
        return f"gguf/{Path(expanduser(name)).absolute()}"
    if found := anyio.run(servers.find_id, name):
        return found
    models.check_provider(name)
    parse_name(name, registry.names(models.GROUP))
    raise AssertionError("its provider is unknown")


def _checked(name: ModelName) -> str:
    """As it is to be written: read from any folder. A server that does not run now is said, and no error."""
    if name.provider == "embedded":
        catalogue.catalogued(name.name)
    elif name.provider in ("gguf", "scripted") or name.is_path:
        path = name.path
        if isfile(path):
            return f"{name.provider}/{path}"
        if not name.is_path:
            raise UsageError(f"there is no file {path}", f"write {name.provider}/PATH")
    if name.provider in servers.LOCAL:
        server = anyio.run(servers.ask_server, name.provider)
        check_listed(name, server)
        if not server.models:
            say(f"written as it is: {servers.shown(server)}")
    return str(name)


def check_listed(name: ModelName, server: ModelServer) -> None:
    """UsageError when the server tells of models, and not of this one; a llama-server with one takes any name."""
    ids = [model.id for model in server.models]
    latest = f"{name.name}:latest"
    if not ids or {name.name, latest} & {*ids, *(model.spec.partition("/")[2] for model in server.models)}:
        return
    near = servers.nearest(name.name, ids)
    others = f"it has {', '.join(ids[:5])}{', ...' if len(ids) > 5 else ''}"
    raise UsageError(
        f"{name.provider} at {server.url} has no model '{name.name}'",
        f"did you mean {name.provider}/{near}?" if near else others,
    )


def _picked(front: Front, now: str) -> str | None:
    """What the user chose; None for none. UsageError where nobody is there to choose."""
    console = progress(plain=front.plain)
    found = anyio.run(servers.ask_servers)
    choices = _choices(found)
    if not can_ask(no_input=False):
        _draw(console, choices, now, numbers=False)
        _silent_ones(console, found)
        raise UsageError(
            "which model? Nobody is here to ask", "stockade model use PROVIDER/NAME, one of these or another"
        )
    return _ask(console, choices, now, found)


def _choices(found: Sequence[ModelServer]) -> list[Choice]:
    running = [
        Choice(f"running at {server.url}", model.spec, about_listed(model))
        for server in found
        for model in servers.usable(server)
    ]
    files = [
        Choice("files here", entry.name, _joined(_size(entry.parameters), megabytes(entry.size_bytes)))
        for entry in local_files.list_models()
        if entry.here and not entry.problem
    ]
    keys = [
        Choice("keys in the environment", f"{provider}/", f"{variable}: asks for its models")
        for provider, variable in servers.keys_found().items()
    ]
    default = f"embedded/{catalogue.DEFAULT}"
    ours = [] if default in [one.spec for one in files] else [
        Choice("fetched on first use", default, f"{megabytes(catalogue.catalogued(catalogue.DEFAULT).size_bytes)}")
    ]  # fmt: skip
    return [*running, *files, *keys, *ours, Choice("chosen anew in each run", AUTO, "what runs, else what is here")]


def about_listed(model: ListedModel) -> str:
    """`loaded, window 8192, 8.2 B, 5.2 GB`."""
    window = f"window {model.window}" if model.window else ""
    size = megabytes(model.size_bytes) if model.size_bytes else ""
    return _joined("loaded" if model.loaded else "", window, _size(model.parameters), size)


def _size(parameters: int | None) -> str:
    return "" if parameters is None else f"{billions(parameters)}{', small' if is_small(parameters) else ''}"


def _joined(*words: str) -> str:
    return ", ".join(filter(None, words))


def _draw(console: Console, choices: Sequence[Choice], now: str, *, numbers: bool = True) -> None:
    """Under the heads of their groups; the one that is set now is marked."""
    shown = choices[:_SHOWN]
    width = min(max((len(_name(choice)) for choice in shown), default=0), 46)
    group = ""
    for number, choice in enumerate(shown, 1):
        if choice.group != group:
            group = choice.group
            write_line(console, Text(one_line(group), "bold"))
        mark = " (now)" if choice.spec == now else ""
        line = Text(f"{f'{number:3}' if numbers else '':<3}  {_name(choice):<{width}}  {one_line(choice.about)}{mark}")
        if console.is_terminal and len(_name(choice)) + 5 < console.width:
            line.truncate(console.width, overflow="ellipsis")
        write_line(console, line)
    if len(choices) > _SHOWN:
        write_line(console, f"      and {len(choices) - _SHOWN} more: type words of the name", "dim")


def _name(choice: Choice) -> str:
    return one_line(choice.spec) + ("NAME" if choice.spec.endswith("/") else "")


def _silent_ones(console: Console, found: Sequence[ModelServer]) -> None:
    """Which servers told nothing, and why; a line for all that are not there."""
    for line in silent_lines(found):
        write_line(console, line, "dim")


def silent_lines(found: Sequence[ModelServer]) -> list[str]:
    """Of those that are where they usually are, and nobody is, one line."""
    absent = [f"{one.provider} ({one.url.partition('://')[2]})" for one in found if not (one.running or one.named)]
    lines = [servers.shown(one) for one in found if one.problem and (one.running or one.named)]
    return [*lines, *([f"no server answers at: {', '.join(absent)}"] if absent else [])]


def _ask(console: Console, choices: Sequence[Choice], now: str, found: Sequence[ModelServer]) -> str | None:
    """Asked until one is chosen, or none is wanted; what words are in several makes the list shorter."""
    shown = choices
    _draw(console, shown, now)
    _silent_ones(console, found)
    while line := ask_person(_QUESTION):
        matching = _matching(shown, line) or _matching(choices, line)
        if not matching:
            try:
                return _resolved(line)
            except StockadeError as error:
                say(error.message, error.hint)
                continue
        if len(matching) > 1:
            shown = matching
        elif not matching[0].spec.endswith("/"):
            return matching[0].spec
        else:
            shown = _of_provider(matching[0].spec, choices)
            choices = shown
        _draw(console, shown, now)
    return None


def _matching(choices: Sequence[Choice], line: str) -> list[Choice]:
    """By number, by the whole name, or by words of it."""
    if line.isdecimal():
        return [choices[int(line) - 1]] if 0 < int(line) <= min(len(choices), _SHOWN) else []
    if whole := [choice for choice in choices if choice.spec == line]:
        return whole
    words = line.lower().split()
    return [choice for choice in choices if all(word in choice.spec.lower() for word in words)]


def _of_provider(spec: str, choices: Sequence[Choice]) -> Sequence[Choice]:
    """The models of a provider elsewhere, asked for now; those there were, where it tells of none."""
    provider = spec.rstrip("/")
    server = anyio.run(servers.ask_server, provider)
    models_of = [Choice(f"of {server.url}", model.spec, about_listed(model)) for model in servers.usable(server)]
    if not models_of:
        say(servers.shown(server), f"type {spec}NAME")
    return models_of or choices
