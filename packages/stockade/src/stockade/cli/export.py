"""`stockade runs export`: a run for other programs and for people."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import anyio
import click

from stockade.cli import flags, review
from stockade.cli.asciicast import cast
from stockade.cli.markdown import report
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent, to_json
from stockade.core.secrets import View
from stockade.exports.atif import trajectory
from stockade.runtime import records, sandboxes

FORMATS = ("atif", "jsonl", "markdown", "asciicast")


@click.command("export", short_help="A run as ATIF, JSONL, Markdown or asciicast.")
@click.argument("run", default="last")
@click.option("--format", "form", type=click.Choice(FORMATS), default="markdown", help="Which one.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A file that is not there yet; else stdout.")
@flags.offered(flags.STORE)
def export(run: str, form: str, output: Path | None, **values: Any) -> int:
    """Write RUN in another form: markdown (a report with the diff), atif (one JSON document, ATIF v1.7),
    jsonl (its events), asciicast (version 2, for asciinema play).
    """
    settings = flags.load(flags.given(values))
    store = records.read_store(settings.options.store)
    try:
        events = anyio.run(store.events, anyio.run(store.find, run))
    finally:
        anyio.run(store.close)
    view = review.view(events, settings.options.redact)
    lines = _lines([view.redactor.event(event) for event in events], form, view)
    if output is None:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        return 0
    try:
        fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(f"{line}\n" for line in lines)
    except FileExistsError:
        raise UsageError(f"{output} is there already", "choose another name, or remove it") from None
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from None
    return 0


def _lines(events: Sequence[RunEvent], form: str, view: View) -> Iterable[str]:
    match form:
        case "atif":
            return [json.dumps(trajectory(events), indent=2)]
        case "jsonl":
            return [to_json(event, ascii_only=True) for event in events]
        case "asciicast":
            return cast(events)
        case _:
            return [report(events, _diff(events, view)).rstrip("\n")]


def _diff(events: Sequence[RunEvent], view: View) -> str | None:
    """Without secrets, or why it is left out. None when nothing is left that could be compared."""
    reviewer, found = sandboxes.reviewer(), review.facts(events)
    try:
        review.check_kept(found)
        if not (pending := review.pending(reviewer, found.layers)):
            return None
        view.check_files()
    except UsageError as error:
        return f"left out: {error.message}"
    return "".join(reviewer.unified_diff(one.layer, change) for one in pending for change in one.changes)
