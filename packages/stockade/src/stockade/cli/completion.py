"""`stockade completion SHELL`: commands, flags, bots, models and runs after the Tab key. Silent where something fails:
nobody reads a message in the middle of a line.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

import anyio
import click
from click.shell_completion import CompletionItem, get_completion_class

from stockade.cli.lazy import Table
from stockade.core.errors import StockadeError
from stockade.models.local import folder
from stockade.models.providers import PROVIDER_NAMES
from stockade.runtime import records, settings
from stockade.runtime.bots import bot_list

_SHELLS = {
    "bash": 'eval "$(stockade completion bash)"      # in ~/.bashrc',
    "zsh": 'eval "$(stockade completion zsh)"       # in ~/.zshrc, after compinit',
    "fish": "stockade completion fish | source        # in ~/.config/fish/config.fish",
}
_RUNS_SHOWN = 50


@click.command(
    "completion",
    short_help="Shell completion for bash, zsh or fish.",
    help="Completion of commands, flags, bots, models and runs.\n\n\b\n" + "\n".join(_SHELLS.values()),
)
@click.argument("shell", type=click.Choice(tuple(_SHELLS)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, "stockade", "_STOCKADE_COMPLETE").source())
    return 0


def begun(incomplete: str, table: Table) -> list[CompletionItem]:
    """The commands of a group."""
    return _begun(incomplete, ((name, about) for name, (_, about) in table.items()))


def _begun(incomplete: str, names: Iterable[tuple[str, str]]) -> list[CompletionItem]:
    return [CompletionItem(name, help=about) for name, about in names if name.startswith(incomplete)]


def bots(incomplete: str) -> list[CompletionItem]:
    """Bots by name, and then files."""
    found = _begun(incomplete, ((name, "") for name in bot_list()))
    return found or [CompletionItem(incomplete, type="file")]


def models(incomplete: str) -> list[CompletionItem]:
    here = [(one.name, "here" if one.here else "not fetched yet") for one in folder.list_models()]
    return _begun(incomplete, [("auto", "the default"), *here, *((f"{name}/", "") for name in PROVIDER_NAMES)])


def runs(incomplete: str) -> list[CompletionItem]:
    """The newest first, each with its task."""

    async def read() -> list[tuple[str, str]]:
        store = records.read_store(settings.load({}).options.store)
        try:
            found = [one for one in await store.runs() if one.run_id.startswith(incomplete)]
        finally:
            await store.close()
        return [(one.run_id, one.task.partition("\n")[0][:60]) for one in found[:_RUNS_SHOWN]]

    return _begun(incomplete, [("last", "the newest"), *anyio.run(read)])


KINDS: dict[str, Callable[[str], list[CompletionItem]]] = {
    "bot": bots,
    "model": models,
    "smart_model": models,
    "fast_model": models,
    "fallback": models,
    "run": runs,
}


def complete(kind: str, incomplete: str) -> list[CompletionItem]:
    with suppress(StockadeError, OSError):
        return KINDS[kind](incomplete)
    return []
