"""`stockade doctor`: what this machine can enforce, each line tried live."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import anyio
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stockade.cli.ui.console import results, write_prose
from stockade.cli.ui.failures import say
from stockade.cli.ui.safe import one_line
from stockade.core.errors import StoreFailed
from stockade.paths import state_dir
from stockade.run_lock import is_locked
from stockade.runtime import records, registry, sandboxes
from stockade.runtime.removing import sweep_removed
from stockade.runtime.settings import load
from stockade_sandbox.doctor.backend_probe import other_backends
from stockade_sandbox.doctor.probe import probe as run_probe
from stockade_sandbox.leftovers import clean as clean_up
from stockade_sandbox.results import Finding

NOT_SAFE = 4
ESCAPE = "escape: "
_GAP = 2
_TRIED = "tried in each sandbox"


def begin(given: Mapping[str, Any], *, clean: bool) -> int:
    """`stockade doctor`; its exit status."""
    front = load(given).front
    if clean:
        return _clean(json_lines=front.json_lines)
    findings = _probe()
    safe = all(finding.held for finding in findings if finding.required)
    if front.json_lines:
        for finding in findings:
            print(json.dumps(asdict(finding)))
        return 0 if safe else NOT_SAFE
    console = results(plain=front.plain)
    _show(console, findings)
    verdict = (
        ("ok: the default sandbox works here", "green")
        if safe
        else ("NOT SAFE: Stockade will not run here", "bold red")
    )
    write_prose(console, Text(*verdict))
    return 0 if safe else NOT_SAFE


def _mark(finding: Finding | None) -> tuple[str, str]:
    """A word for a cell, and its style."""
    if finding is None:
        return "-", "dim"
    escape = finding.name.startswith(ESCAPE)
    if finding.held:
        return "blocked" if escape else "ok", "green"
    if escape:
        return "OPEN", "bold red"
    return ("FAILED", "bold red") if finding.required else ("no", "magenta")


def _show(console: Console, findings: Sequence[Finding]) -> None:
    """The machine, line by line; what backends hold, as a table; and why not, for what they do not."""
    for finding in findings:
        if finding.backend is None:
            word, style = _mark(finding)
            line = Text.assemble(
                (f"{word:>8}  ", style), one_line(finding.name), ("  " + one_line(finding.tried), "dim")
            )
            write_prose(console, line)
            _why(console, finding)
    cells = {(finding.name, finding.backend): finding for finding in findings if finding.backend}
    if not cells:
        return
    backends = list(dict.fromkeys(backend for _, backend in cells))
    names = list(dict.fromkeys(name for name, _ in cells))
    marks = {name: [Text(*_mark(cells.get((name, backend)))) for backend in backends] for name in names}
    console.print()
    _draw(console, backends, marks)
    console.print()
    for finding in cells.values():
        if finding.cause and not finding.held:
            write_prose(console, Text(f"{finding.backend}: {one_line(finding.name)}: {_mark(finding)[0]}"))
            _why(console, finding)


def _draw(console: Console, backends: Sequence[str], marks: Mapping[str, Sequence[Text]]) -> None:
    """As a table; below each other where there is no room for one."""
    first = max(len(name) for name in (_TRIED, *marks))
    columns = (
        max(len(backend), *(len(row[at].plain) for row in marks.values())) for at, backend in enumerate(backends)
    )
    if first + _GAP + sum(width + _GAP for width in columns) > console.width:
        for name, row in marks.items():
            write_prose(console, Text(one_line(name)))
            for backend, mark in zip(backends, row, strict=True):
                write_prose(console, Text(f"  {backend}: ") + mark)
        return
    table = Table(box=None, padding=(0, _GAP, 0, 0))
    table.add_column(_TRIED)
    for backend in backends:
        table.add_column(backend)
    for name, row in marks.items():
        table.add_row(one_line(name), *row)
    console.print(table)


def _why(console: Console, finding: Finding) -> None:
    for words in (finding.cause, finding.way_out):
        if words and not finding.held:
            write_prose(console, Text(f"          {one_line(words)}"))


async def _recorded() -> tuple[set[str], list[str]]:
    """The runs on record, and a line for each folder of a run that is not any more, which went now.

    StoreFailed where it cannot be told which runs there are: what belongs to them must not be taken for nobody's.
    """
    store = records.open_store()
    try:
        runs = await store.runs()
        gone = await sweep_removed(store)
    finally:
        await store.close()
    if damaged := next((run for run in runs if run.problem is not None), None):
        raise StoreFailed(
            f"nothing is cleaned: run {damaged.run_id}: {damaged.problem}",
            f"remove it, then clean: stockade runs rm --force {damaged.run_id}",
        )
    return {run.run_id for run in runs}, [f"removed {folder}: its run was removed" for folder in gone]


def _clean(*, json_lines: bool) -> int:
    recorded, lines = anyio.run(_recorded)
    lines += _remains(recorded, is_locked)
    if not lines:
        say("there is nothing to clean")
    for line in lines:
        print(json.dumps({"type": "clean", "message": line}) if json_lines else one_line(line))
    return 0


def _probe() -> "Sequence[Finding]":
    """What this machine can hold, tried live."""
    others = (name for name in registry.names(sandboxes.GROUP) if sandboxes.is_tried(name))
    return [*run_probe(), *other_backends({name: partial(sandboxes.backend_of, name) for name in others})]


def _remains(recorded: Collection[str], alive: Callable[[str], bool]) -> list[str]:
    """Removes what killed runs left; a line for each thing. `recorded` are the ids of the runs on record.

    Model servers are left alone: one that a killed run used ends by itself when its time is over, as any other.
    """
    lines = clean_up(state_dir() / "runs", recorded, alive)
    return lines + [f"removed {name}" for name in sandboxes.sweep_backends()]
