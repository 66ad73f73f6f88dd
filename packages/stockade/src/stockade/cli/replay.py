"""`stockade runs replay`: a run again, as a picture of the record or done anew to see whether it still comes out."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import click
from rich.console import Console
from rich.text import Text

from stockade.cli import flags
from stockade.cli.opened import history
from stockade.cli.ui import review
from stockade.cli.ui.console import moves_cursor, progress, write_prose
from stockade.cli.ui.failures import say
from stockade.cli.ui.markdown import answer_text
from stockade.cli.ui.render import Renderer
from stockade.cli.ui.safe import hide, one_line, some
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent, RunFinished
from stockade.core.secrets import build_redactor
from stockade.loop.verify import Compared, verify
from stockade.runtime import sandboxes
from stockade.runtime.resume import spec_of, verifying
from stockade.runtime.spec import RunSpec

_TICK_S = 0.1
_SHOWN_CHARS = 200


@click.command("replay", short_help="Show a run again at its own speed, or repeat it and compare.")
@flags.run(default="last")
@click.option("--speed", type=flags.Number(0), default=1.0, metavar="X", help="Times as fast; 0 does not wait at all.")
@click.option(
    "--verify", "again", is_flag=True, help="Repeat every action in a new sandbox; name the first difference."
)
@flags.offered(flags.SHOWN, flags.STORE)
def replay(run: str, speed: float, again: bool, **values: Any) -> int:
    """Show RUN as it went in its terminal: no model and no sandbox are needed.

    With --verify its actions are done again on the folder as it is now, in a sandbox whose writing is thrown away, and
    compared with the record. Status 0 when all is the same, 1 when something differs.
    """
    if speed < 0:
        raise UsageError("--speed is below 0", "1 is as it went, 10 ten times as fast, 0 at once")
    events, settings = history(values, run)
    console = progress(plain=settings.front.plain)
    view = review.view(events, settings.options.redact)
    if again:
        return anyio.run(_verify, events, console, settings.options)
    renderer = Renderer(console, live=moves_cursor(console, plain=settings.front.plain) and bool(speed))
    try:
        for before, event in zip([events[0], *events], events, strict=False):
            if speed:
                _wait((event.at - before.at) / speed, renderer)
            renderer.event(event)
            if isinstance(event, RunFinished) and event.answer and not isinstance(before, RunFinished):
                print(answer_text(event.answer, plain=settings.front.plain or not renderer.prose), flush=True)
    finally:
        renderer.close()
    try:
        review.check_kept(found := review.facts(events))
        if work := review.pending(sandboxes.reviewer(), found.layers):
            view.check_files()
            review.draw(console, sandboxes.reviewer(), work)
    except UsageError as error:
        say(f"the changes are not shown: {error.message}", error.hint)
    return 0


def _wait(seconds: float, renderer: Renderer) -> None:
    """With the status line going on."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _TICK_S))
        renderer.tick()


async def _verify(events: Sequence[RunEvent], console: Console, options: RunSpec) -> int:
    spec, verdict = spec_of(events, options), _Verdict(console)
    assert spec.objects.policy is not None
    redactor = build_redactor(os.environ, spec.objects.policy.environment, spec.redact)
    hide(redactor)
    async with verifying(spec, None) as open_sandbox:
        await verify(events, open_sandbox, verdict.seen, redactor)
    if verdict.same:
        verdict.line(f"{some(verdict.done, 'action')} done again: all the same", "green")
    return 0 if verdict.same else 1


@dataclass(slots=True)
class _Verdict:
    """A line for each action, until one comes out otherwise."""

    console: Console
    done: int = 0
    same: bool = True

    def line(self, words: str, style: str = "") -> None:
        write_prose(self.console, Text(words, style))

    def seen(self, compared: Compared) -> bool:
        name = f"turn {compared.turn}: {one_line(compared.action, _SHOWN_CHARS)}"
        if compared.passed_over is not None:
            self.line(f"{name}: not done again: {compared.passed_over}", "magenta")
        elif compared.field is None:
            self.line(f"{name}: the same", "dim")
            self.done += 1
        else:
            recorded, now = _first_difference(compared.recorded, compared.now)
            self.line(f"{name}: {compared.field} differs", "bold red")
            self.line(f"  recorded: {recorded}\n  now:      {now}")
            self.same = False
        return self.same


def _first_difference(recorded: str, now: str) -> tuple[str, str]:
    """The first line that differs, of each; quoted, since what differs may be a blank."""
    for before, after in zip(recorded.split("\n"), now.split("\n"), strict=False):
        if before != after:
            return _quoted(before), _quoted(after)
    return _quoted(recorded), _quoted(now)


def _quoted(text: str) -> str:
    return repr(one_line(text, _SHOWN_CHARS)) if text else "nothing"
