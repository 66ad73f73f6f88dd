"""`stockade runs export`: a run for other programs and for people.

In Markdown, whatever a model or a command produced stands in code fences longer than any fence in it, so that nothing
of it is taken for markup. A file and a pipe get every byte; only on a terminal it is made fit for one.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from stockade.cli import flags
from stockade.cli.opened import history
from stockade.cli.ui import review
from stockade.cli.ui.asciicast import cast
from stockade.cli.ui.safe import one_line, result_text
from stockade.core.actions import Finish, Observation, Shell, Step
from stockade.core.errors import UsageError
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    AnswerUnreadable,
    CheckFinished,
    MessageInjected,
    ModelAnswered,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
    SelfConfigChanged,
    to_json,
)
from stockade.core.messages import Image
from stockade.core.secrets import View
from stockade.exports import in_words, used
from stockade.exports.atif import text_of, trajectory
from stockade.exports.junit import junit
from stockade.runtime import sandboxes

FORMATS: Mapping[str, Callable[[Sequence[RunEvent], View], Iterable[str]]] = {
    "atif": lambda events, _: [json.dumps(trajectory(events), indent=2)],
    "jsonl": lambda events, _: [to_json(event, ascii_only=True) for event in events],
    "markdown": lambda events, view: [report(events, _diff(events, view)).rstrip("\n")],
    "asciicast": lambda events, _: cast(events),
    "junit": lambda events, _: [junit(events)],
}
"""Of events without secrets, the lines of each form."""


@click.command("export", short_help="Export a run: a report, JSON, a recording.")
@flags.run(default="last")
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="markdown", help="Which one.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A file that is not there yet; else stdout.")
@flags.offered(flags.STORE)
def export(run: str, form: str, output: Path | None, **values: Any) -> int:
    """Write RUN in another form: markdown (a report with the diff), atif (one JSON document, ATIF v1.7),
    jsonl (its events), asciicast (version 2, for asciinema play), junit (XML: the run and each --check as a test case).
    """
    events, settings = history(values, run)
    view = review.view(events, settings.options.redact)
    lines = FORMATS[form]([view.redactor.event(event) for event in events], view)
    if output is None:
        sys.stdout.writelines(f"{result_text(line)}\n" for line in lines)
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


_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~])")


def report(events: Sequence[RunEvent], diff: str | None) -> str:
    """`diff` is None when the changes are not there any more."""
    return "\n".join(_report_lines(events, diff)) + "\n"


def _report_lines(events: Sequence[RunEvent], diff: str | None) -> Iterator[str]:
    started = events[0]
    assert isinstance(started, RunStarted)
    finished = next((event for event in reversed(events) if isinstance(event, RunFinished)), None)
    yield f"# Run {started.run_id}"
    yield ""
    yield from _fenced(started.task)
    yield from _images(started.images)
    yield ""
    yield from _figures(started, finished, events)
    if finished is not None and finished.answer:
        yield "\n## Answer\n"
        yield from _fenced(finished.answer)
    yield "\n## Steps\n"
    for event in events[1:]:
        yield from _step(event)
    yield "\n## Changes\n"
    if diff:
        yield from _fenced(diff, "diff")
    elif finished is not None and finished.changes:
        yield "They were applied or thrown away, and are not kept here any more.\n"
        yield from (f"- {change.kind}: {_plain(change.path)}" for change in finished.changes)
    else:
        yield "None."


def _images(images: Sequence[Image]) -> Iterator[str]:
    yield from (f"\nimage: {_plain(one.name)}, {one.media_type}, {one.kilobytes} kB" for one in images)


def _figures(started: RunStarted, finished: RunFinished | None, events: Sequence[RunEvent]) -> Iterator[str]:
    usage = used(events)
    rows = {
        "status": f"{finished.status} ({finished.reason})" if finished else "not ended",
        "why": finished.detail if finished else "",
        "verified": {True: "yes", False: "no", None: ""}[finished.verified if finished else None],
        "bot, model": f"{started.bot}, {started.model}",
        "sandbox": started.sandbox,
        "folders": ", ".join(f"{rule.host} ({rule.mode})" for rule in started.policy.folders),
        "network": started.policy.network.mode,
        "begun": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(started.at)),
        "took": f"{max(0.0, events[-1].at - started.at):.1f} s",
        "turns": str(sum(isinstance(event, ModelAnswered) for event in events)),
        "prompt tokens": f"{usage.prompt_tokens} ({usage.cached_tokens} from the cache)",
        "answer tokens": f"{usage.completion_tokens} ({usage.thinking_tokens} of thinking)",
        "cost": f"{usage.cost:.4f} USD" if usage.cost else "",
        "branch of": f"{started.parent} after turn {started.parent_turn}" if started.parent else "",
    }
    yield "| | |"
    yield "|---|---|"
    yield from (f"| {name} | {_plain(value)} |" for name, value in rows.items() if value)


def _step(event: RunEvent) -> Iterator[str]:
    match event:
        case AnswerUnderstood():
            yield f"### Turn {event.turn}\n"
            if event.answer.shown:
                yield f"> {_plain(event.answer.shown)}\n"
            if isinstance(event.answer.steps[0].action, Finish):
                yield "The bot says that it is done.\n"
        case AnswerUnreadable():
            yield f"### Turn {event.turn}\n\nThe answer could not be read: {_plain(event.message)}\n"
        case ActionStarted():
            yield from _action(event.action)
        case ActionFinished():
            yield from _result(event.observation)
        case CheckFinished():
            yield f"**Check {'passed' if event.passed else 'failed'}**\n"
            yield from _fenced(event.command, "bash")
            yield from _result(event.observation)
        case SelfConfigChanged():
            yield f"*in force from now on:* {_plain(in_words(event))}\n"
        case MessageInjected():
            yield f"*{_plain(event.source)}:* {_plain(event.text)}\n"
        case RunResumed():
            yield f"### The run goes on\n\n{_plain(event.task or '')}\n"
            yield from _images(event.images)
        case _:
            pass


def _action(step: Step) -> Iterator[str]:
    if step.comment:
        yield f"{_plain(step.comment)}\n"
    action = step.action
    if isinstance(action, Shell):
        yield from _fenced(action.command, "bash")
    else:
        yield f"`{action.tool}`\n"
        yield from _fenced("\n".join(f"{key}: {value}" for key, value in action.model_dump(exclude={"tool"}).items()))


def _result(observation: Observation) -> Iterator[str]:
    yield from _fenced(text_of(observation))


def _fenced(text: str, language: str = "text") -> Iterator[str]:
    text = text.strip("\n")
    ticks = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    yield f"{ticks}{language}\n{text}\n{ticks}\n"


def _plain(text: str) -> str:
    """In one line, with nothing that Markdown or HTML would obey."""
    return _MARKUP.sub(r"\\\1", one_line(text)).replace("&", "&amp;")
