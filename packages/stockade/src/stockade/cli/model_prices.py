"""`stockade model prices`: what models cost and of which day the figures are; a newer table."""

import json
import time
from fnmatch import fnmatchcase
from os.path import expanduser
from pathlib import Path
from typing import Any

import anyio
import click
from rich.text import Text

from stockade.cli import flags
from stockade.cli.ui.console import Column, draw_table, results
from stockade.cli.ui.safe import one_line, some
from stockade.core.errors import ModelFailed, UsageError
from stockade.models.http import Client
from stockade.models.pricing import (
    FORMS,
    MAX_UPDATE_BYTES,
    OURS,
    Price,
    PriceTable,
    parse_prices,
    tables,
    updated_table,
    write_prices,
)
from stockade.models.providers import is_own
from stockade.paths import read_regular
from stockade.runtime.settings import Front, load

FETCH_S = 60.0
_LOOK = "look at the address, or give a file"
_COLUMNS = (Column("model", shrinks=True), Column("input"), Column("cached"), Column("output"), Column("window"),
            Column("of", leaves=1))  # fmt: skip


@click.command("prices", short_help="What models cost, of which day the figures are; a newer table.")
@click.argument("name", required=False)
@click.option("--update", metavar="FILE|URL", help="Take prices and windows from there from now on.")
@flags.offered(flags.JSON, flags.LOOK)
def prices(name: str | None, update: str | None, **values: Any) -> int:
    """What models cost, in USD per million tokens, and of which day the figures are.

    NAME is PROVIDER/NAME, or a part of it with `*`. Without it: which tables there are. What --update is given is in
    the form of stockade/models/prices.toml, or the table that litellm publishes.
    """
    front = load(flags.given(values)).front
    if update:
        table = parse_prices(_fetched(update), one_line(update, 200), time.strftime("%Y-%m-%d"))
        path = write_prices(table)
        if not front.json_lines:
            print(one_line(f"{some(len(table.prices), 'price')} of {table.date} written to {path}"))
            return 0
    known = tables()
    if name:
        _show(name, known, front)
    else:
        for path, table in known.items():
            _say(path, table, front)
    return 0


def _fetched(update: str) -> bytes:
    """The bytes of a file or an address. UsageError when they cannot be had."""
    if "://" not in update:
        try:
            data = read_regular(Path(expanduser(update)), MAX_UPDATE_BYTES)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UsageError(f"{update} cannot be read: {why}", FORMS) from error
        return data
    if not update.startswith("https://") and not (update.startswith("http://") and is_own(update)):
        raise UsageError(
            f"{update} is not fetched: what it says could be anybody's", "give an https: address or a file"
        )
    try:
        return anyio.run(_at, update)
    except (ModelFailed, TimeoutError) as error:
        why = error.message if isinstance(error, ModelFailed) else f"it took more than {FETCH_S:g} s"
        raise UsageError(f"{update} cannot be fetched: {why}", _LOOK) from error


async def _at(url: str) -> bytes:
    with anyio.fail_after(FETCH_S):
        async with Client(url, {"User-Agent": "stockade"}) as client, client.asked("GET", url) as response:
            data = await response.whole(MAX_UPDATE_BYTES)
    if response.status != 200:
        raise UsageError(f"{url} cannot be fetched: it answers {response.status}", _LOOK)
    return data


def _say(path: Path, table: PriceTable, front: Front) -> None:
    whose = {OURS: "comes with Stockade", updated_table(): f"by --update, in {path}"}.get(path, f"your own, in {path}")
    if front.json_lines:
        facts = {"date": table.date, "source": table.source, "models": len(table.prices)}
        print(json.dumps({"path": str(path), **facts}))
        return
    of = f" of {table.date}" if table.date else ""
    source = f" from {table.source}" if table.source else ""
    print(one_line(f"{some(len(table.prices), 'price')}{of}{source}: {whose}", 400))


def _show(name: str, known: dict[Path, PriceTable], front: Front) -> None:
    """The rows that hold, of models that are named, and of all whose names are alike."""
    found: dict[str, Price] = {}
    for table in known.values():
        alike = [model for model in table.prices if fnmatchcase(model, name if "*" in name else f"*{name}*")]
        for model in [*alike, *([name] if table.of(name) else ())]:
            if model not in found and (price := table.of(model)) is not None:
                found[model] = price
    if not found:
        raise UsageError(f"nobody says what {one_line(name, 100)} costs", "stockade model prices --update FILE|URL")
    if front.json_lines:
        for model, price in found.items():
            print(json.dumps({"model": model, **price.model_dump()}))
        return
    rows = []
    for model, price in sorted(found.items()):
        cached = price.input if price.cached is None else price.cached
        usd = (f"{one:g}" for one in (price.input, cached, price.output))
        rows.append([model, *usd, str(price.window or ""), price.date])
    draw_table(results(plain=front.plain), _COLUMNS, [[Text(one_line(cell)) for cell in row] for row in rows])
