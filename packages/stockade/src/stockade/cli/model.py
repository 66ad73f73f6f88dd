"""`stockade model`: what models are here, which run, which could be fetched; fetching, serving and removing them."""

import json
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import anyio
import click
from rich.console import Console
from rich.text import Text

from stockade.bots.model_profiles import profile_of
from stockade.cli import flags
from stockade.cli.commands import NamedGroup
from stockade.cli.model_prices import prices
from stockade.cli.model_use import silent_lines, use
from stockade.cli.ui.console import Column, draw_table, moves_cursor, progress, results, write_prose
from stockade.cli.ui.failures import say
from stockade.cli.ui.interrupt import interruptible
from stockade.cli.ui.safe import one_line, some
from stockade.cli.ui.statusline import StatusLine, megabytes
from stockade.core.messages import billions, is_small
from stockade.models import servers
from stockade.models.local import catalogue
from stockade.models.local import folder as listed
from stockade.models.local import server_lease as lease
from stockade.models.local.fetch import pull as fetch
from stockade.models.local.server import EmbeddedServer, until_it_dies
from stockade.models.local.server import served as serving
from stockade.models.servers import ListedModel, ModelServer
from stockade.runtime import models
from stockade.runtime.settings import Front, load

T = TypeVar("T")
DEFAULT_PORT = 8080
DEFAULT_MODEL = f"embedded/{catalogue.DEFAULT}"
_COLUMNS = (
    Column("model"),
    Column("here"),
    Column("parameters"),
    Column("size"),
    Column("window"),
    Column("quantisation", leaves=1),
    Column("licence", leaves=2),
    Column("about", shrinks=True),
)
_SERVED = (Column("model"), Column("state"), Column("parameters"), Column("size"), Column("window"))


@click.group("model", cls=NamedGroup, short_help="Models: list, choose, pull and serve them.")
def command() -> None:
    """Models: what is here, what runs, what can be fetched; serving one to other programs."""


command.add_command(use)
command.add_command(prices)


@command.command("list", short_help="List models on this machine, on its servers, and worth fetching.")
@flags.offered(flags.JSON)
def list_models(**values: Any) -> int:
    """The models on this machine, those that run now, and small ones worth fetching."""
    front = load(flags.given(values)).front
    entries, running, found = listed.list_models(), lease.running(), anyio.run(servers.ask_servers)
    if front.json_lines:
        for entry in entries:
            print(json.dumps({**entry.model_dump(), "running": _facts(entry, running), "pull": None}))
        for server in found:
            _server_lines(server)
        for model in catalogue.RECOMMENDED:
            about = model.model_dump(exclude={"file", "sha256", "sources"})
            print(json.dumps({**about, "here": False, "running": None, "pull": model.name}))
        return 0
    rows = []
    for entry in entries:
        here = "verified" if entry.verified else "yes" if entry.here else "no"
        facts = _facts(entry, running)
        here = "broken" if entry.problem else f"running ({facts['users']})" if facts else here
        cells = (entry.name, here, parameters(entry.parameters), megabytes(entry.size_bytes), str(entry.window or ""),
                 entry.quantisation, entry.licence, entry.problem or entry.about)  # fmt: skip
        rows.append([Text(one_line(cell)) for cell in cells])
    console = results(plain=front.plain)
    draw_table(console, _COLUMNS, rows)
    _show_running(running, front)
    _show_servers(console, found)
    console.print(Text("\nworth fetching where there is the memory (sizes about; not tried by us):", "dim"))
    for model in catalogue.RECOMMENDED:
        words = f"{megabytes(model.size_bytes)}, {model.licence}, {model.about}"
        console.print(Text(f"stockade model pull {model.name}   {words}"), soft_wrap=True)
    return 0


def _server_lines(server: ModelServer) -> None:
    """A server and each of its models, as JSON lines; one that told of none has a line with the reason."""
    about = server.model_dump(include={"provider", "url", "running", "problem"})
    for model in server.models:
        facts = model.model_dump() | {"small": is_small(model.parameters)}
        print(json.dumps({"name": model.spec, "here": True, **facts, "server": about, "running": None, "pull": None}))
    if not server.models:
        print(
            json.dumps({"name": f"{server.provider}/", "here": False, "server": about, "running": None, "pull": None})
        )


def _show_servers(console: Console, found: Sequence[ModelServer]) -> None:
    """What each server has, and which of them did not answer."""
    for server in found:
        if server.models:
            console.print(Text(f"\n{one_line(server.provider)} at {one_line(server.url)}", "bold"), soft_wrap=True)
            draw_table(console, _SERVED, [_served_row(model) for model in server.models])
    for line in silent_lines(found):
        write_prose(console, f"\n{line}", "dim")
    for provider, variable in servers.keys_found().items():
        console.print(
            Text(f"{provider}/NAME: {variable} is set (stockade model use asks for its models)"), soft_wrap=True
        )


def _served_row(model: ListedModel) -> list[Text]:
    state = (
        "gives no answers" if not model.talks else "elsewhere" if model.elsewhere else "loaded" if model.loaded else ""
    )
    size = megabytes(model.size_bytes) if model.size_bytes else ""
    cells = (model.spec, state, parameters(model.parameters), size, str(model.window or ""))
    return [Text(one_line(cell)) for cell in cells]


def _facts(entry: listed.ModelEntry, running: Sequence[lease.Running]) -> dict[str, Any] | None:
    """The server of this model, if one runs."""
    found = next((server for server in running if entry.here and server.path == _real(entry.path)), None)
    return found.model_dump() if found else None


def parameters(count: int | None, source: str = "") -> str:
    """`1.5 B, small`; with who says it. "unknown" where nobody does."""
    if count is None:
        return "unknown"
    return f"{billions(count)}{', small' if is_small(count) else ''}{f' ({source})' if source else ''}"


def _real(path: str) -> str:
    return os.path.realpath(path)


def _show_running(running: Sequence[lease.Running], front: Front) -> None:
    console = results(plain=front.plain)
    for server in running:
        until = some(server.users, "user") if server.left_s is None else f"no users, ends in {server.left_s:.0f} s"
        room = f"{some(server.slots, 'slot')} of {server.window} tokens"
        words = f"{server.alias}: {server.address or server.state}, {room}, {until}"
        write_prose(console, Text.assemble(("running ", "green"), one_line(words)))


@command.command("info")
@click.argument("name")
@flags.offered(flags.JSON)
def info(name: str, **values: Any) -> int:
    """Show what is known of one model: embedded/NAME or gguf/PATH."""
    front = load(flags.given(values)).front
    models.check_provider(name)
    entry = listed.model_info(name)
    if front.json_lines:
        print(json.dumps({**entry.model_dump(), "running": _facts(entry, lease.running())}))
        return 0
    console = results(plain=front.plain)
    facts = entry.model_dump(exclude={"parameters", "parameters_source", "small"})
    facts["parameters"] = parameters(entry.parameters, entry.parameters_source)
    for key, value in facts.items():
        if value not in ("", None):
            shown = megabytes(value) if key == "size_bytes" else one_line(str(value))
            console.print(Text.assemble((f"{key.replace('_bytes', ''):13}", "bold"), shown), soft_wrap=True)
    _show_running([server for server in lease.running() if server.path == _real(entry.path)], front)
    return 0


@command.command("probe", short_help="Test again what a model can do.")
@click.argument("name")
@flags.offered(flags.LOADING, flags.SHOWN)
def probe(name: str, **values: Any) -> int:
    """Try anew what a model can do, forget what was seen before, and say which answers it will be asked for.

    It is asked for one tool call and for one answer under a JSON schema, some 100 tokens together.
    """
    settings = load(flags.given(values) | {"model": name})
    front, shown = settings.front, _Progress(settings.front)
    try:
        full, info, answers = _finished(lambda: models.probe(settings.options, shown))
    finally:
        shown.end()
    profile = profile_of(info).name
    if front.json_lines:
        shown_facts = {"native_tools", "enforces_schema", "context_window", "parameters", "sees", "sources"}
        facts = info.model_dump(include=shown_facts)
        print(json.dumps({"model": full, "answers": answers, "profile": profile, "small": info.small, **facts}))
        return 0
    window = f"{info.context_window} ({info.sources.get('context_window', '')})" if info.context_window else "unknown"
    for key, value in {
        "model": full,
        "answers": answers,
        "tool calls": "come back" if info.native_tools else "none came back",
        "JSON schema": "is kept" if info.enforces_schema else "is not kept",
        "images": {True: "it sees", False: "it does not see", None: "unknown"}[info.sees],
        "window": window,
        "parameters": parameters(info.parameters, info.sources.get("parameters", "")),
        "profile": profile,
    }.items():
        results(plain=front.plain).print(Text.assemble((f"{key:13}", "bold"), one_line(value)), soft_wrap=True)
    return 0


class _Progress:
    """What is being done, on stderr: a bar on a terminal, else a line for each step."""

    def __init__(self, front: Front) -> None:
        console = progress(plain=front.plain)
        self._live = moves_cursor(console, plain=front.plain)
        self._line = StatusLine(console, live=self._live)
        self._console = console
        self._quiet = front.quiet
        self._words = ""

    def __call__(self, words: str, done: int, total: int) -> None:
        if self._quiet:
            return
        if words != self._words:
            self._words = words
            self._line.end()
            self._console.print(Text(one_line(words)), soft_wrap=True)
        if total and self._live:
            self._line.bar(words, done, total)

    def end(self) -> None:
        self._line.end()


@command.command("pull", short_help="Fetch a model: a name of the list, hf:OWNER/REPO, a file.")
@click.argument("reference")
@click.option("--sha256", default="", metavar="HEX", help="Refuse a file with another hash.")
@flags.offered(flags.SHOWN)
def pull(reference: str, sha256: str, **values: Any) -> int:
    """Fetch a model: a NAME of the list, hf:OWNER/REPO[/FILE], an https: address, or a GGUF file or llamafile.

    A cut download is continued. The hash is compared where one is known: of those of the list, and on the hub.
    """
    front = load(flags.given(values)).front
    shown = _Progress(front)
    try:
        name, path = _finished(lambda: fetch(reference, shown, sha256=sha256))
    finally:
        shown.end()
    print(json.dumps({"model": name, "path": str(path)}) if front.json_lines else one_line(name))
    return 0


def _finished(work: Callable[[], Awaitable[T]]) -> T:
    """What `work` returns; KeyboardInterrupt when somebody wanted it to end."""
    found = interruptible(work)
    if found is None:
        raise KeyboardInterrupt
    return found


@command.command("rm", short_help="Remove a model's file.")
@click.argument("name")
def rm(name: str) -> int:
    """Remove a model's file from the model folder: embedded/NAME or gguf/PATH."""
    print(one_line(f"removed {listed.remove(name)}"))
    return 0


@command.command("serve")
@click.argument("name", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; another one opens it to others.")
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="0 is a free one.")
@click.option(
    "--api-key", envvar="LLAMA_API_KEY", metavar="KEY", help="The key that programs must give; made up if not."
)
@flags.offered(flags.LOADING, flags.SHOWN)
def serve(name: str | None, host: str, port: int, api_key: str | None, **values: Any) -> int:
    """Serve a model to other programs, OpenAI-compatible, until Ctrl-C. Runs of yours share the server.

    NAME is embedded/NAME or gguf/PATH; llamafile//PATH; or llama-server//PATH.gguf for the llama-server on PATH.
    """
    settings = load(flags.given(values))
    options = settings.options
    spec = name or (options.model if options.model != "auto" else DEFAULT_MODEL)
    models.check_provider(spec)
    loading = models.model_settings(options).model_copy(update={"keep_warm_s": 0.0, "alone": False})
    shown = _Progress(settings.front)
    served = False

    async def work() -> None:
        nonlocal served
        async with serving(spec, loading, host=host, port=port, api_key=api_key, on_progress=shown) as server:
            if host not in ("127.0.0.1", "localhost", "::1"):
                say(f"{host} is open to other machines, and what is sent to it is not encrypted")
            while served := True:
                _say_where(server, settings.front)
                await until_it_dies(server)
                await server.restart()

    interruptible(work)
    if not served:
        raise KeyboardInterrupt
    return 0


def _say_where(server: EmbeddedServer, front: Front) -> None:
    if front.json_lines:
        facts = {"base_url": server.base_url, "api_key": server.api_key, "pid": server.pid, **server.facts}
        print(json.dumps(facts), flush=True)
    else:
        print(f"export OPENAI_BASE_URL={server.base_url}\nexport OPENAI_API_KEY={server.api_key}", flush=True)
        if not front.quiet:
            facts = server.facts
            say(
                f"{facts['alias']} is served, {facts['slots']} at once with {server.window} tokens each; Ctrl-C ends it"
            )
