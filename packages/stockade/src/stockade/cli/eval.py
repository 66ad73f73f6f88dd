"""`stockade eval`: evaluation sets that installed packages hold, as a batch each."""

import json
from dataclasses import asdict
from os.path import expanduser
from pathlib import Path
from typing import Any

import click

from stockade.cli import batch, flags
from stockade.cli.ui.console import Column, draw_table, results, write_line
from stockade.cli.ui.failures import say
from stockade.cli.ui.safe import one_line
from stockade.core.errors import UsageError
from stockade.fleet.evals import GROUP, Row, results_file, set_of, table, write_tasks
from stockade.runtime import registry

_COLUMNS = (Column("set"), Column("tasks from", shrinks=True), Column("licence"), Column("what it is", shrinks=True))


@click.command("eval", short_help="Evaluation sets that installed packages hold.")
@click.argument("name", required=False, metavar="[NAME]")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="So many tasks, drawn by --seed.")
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              default="stockade-eval", show_default=True, help="Where tasks, folders and results are.")  # fmt: skip
@click.option("--table", "table_", is_flag=True, help="What all models reached on all sets, as Markdown.")
@flags.offered(batch.DRIVING)
def command(name: str | None, *, limit: int | None, into: Path, table_: bool, **values: Any) -> int:
    """Run the evaluation set NAME; without NAME: list the sets. Called again, it goes on where it stopped.

    Its tasks are read from a package that you install, and are a batch as any other: `stockade batch table` shows them.
    Each is scored once, when the bot is done, by the set's own check in a sandbox.

    \b
    stockade eval humaneval --model openai/gpt-5 --limit 40 --seed 1
    """
    place = Path(expanduser(into))
    given = flags.given(values)
    if table_:
        if name is not None:
            raise UsageError("--table is of all sets", "stockade eval --table")
        return _table(place, as_json=bool(given.get("json")))
    if name is None:
        return _list(as_json=bool(given.get("json")))
    found = set_of(name)
    seed = given.get("seed") or 0
    written = write_tasks(name, seed, limit, place)
    for one, why in written.left_out.items():
        say(f"{one_line(one)} is left out: {one_line(why)}")
    file = written.path
    settings = flags.settings({**given, "no_folder": True}).options
    lines = values["lines"] or results_file(file.parent, settings.model, settings.small_models)
    own = {key: value for key, value in found.settings.items() if key not in given}
    return batch.begin(file, {**values, **own, "lines": lines, "discard": True})


def _list(*, as_json: bool) -> int:
    rows = []
    for name in registry.names(GROUP):
        one = set_of(name)
        rows.append({"name": name, "package": one.package, "licence": one.licence, "about": one.about})
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return 0
    draw_table(
        results(), _COLUMNS, [[one_line(row[key]) for key in ("name", "package", "licence", "about")] for row in rows]
    )
    return 0


def _table(place: Path, *, as_json: bool) -> int:
    """UsageError where nothing was measured yet."""
    rows = list(table(place))
    if not rows:
        raise UsageError(f"there are no results in {place}", "stockade eval NAME --model M")
    if as_json:
        for row in rows:
            print(json.dumps({**asdict(row), "summary": batch.facts(row.summary)}))
        return 0
    write_line(results(), "| set | model | help for small models | tasks | solved | 95 % interval | p50 s | tokens |")
    write_line(results(), "|---|---|---|---|---|---|---|---|")
    for row in rows:
        write_line(results(), _line(row))
    for row in rows:
        if len(row.within) > 1:
            counts = ", ".join(map(str, row.within))
            write_line(results(), f"\n{row.set}, {row.model}: solved within 1, 2, 3 ... answers: {counts}")
    return 0


def _line(row: Row) -> str:
    (solved, total), (low, high) = row.summary.solved_of, row.summary.interval
    share = f"{solved} ({100 * solved / total:.1f} %)" if total else "0"
    cells = [row.set, one_line(row.model), row.help, str(total), share, f"{100 * low:.1f} to {100 * high:.1f} %",
             f"{row.summary.p50_s:.1f}", str(row.summary.tokens)]  # fmt: skip
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
