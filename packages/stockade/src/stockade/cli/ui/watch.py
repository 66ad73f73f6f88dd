"""Who watches a run: its events are drawn, written as JSON lines, kept as an asciicast, or sent as spans.

And the files that a run without a folder wrote, which go with its sandbox: asked while it is up, said at the end.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import PurePosixPath
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread

from stockade.cli.lazy import load
from stockade.cli.ui import review
from stockade.cli.ui.asciicast import Recorder
from stockade.cli.ui.attention import Attention
from stockade.cli.ui.failures import say
from stockade.cli.ui.markdown import answer_text, is_prose
from stockade.cli.ui.overheard import Live
from stockade.cli.ui.prompts import PausePrompt
from stockade.cli.ui.render import Renderer
from stockade.cli.ui.safe import screen
from stockade.core.actions import ToolResult
from stockade.core.errors import StockadeError, UsageError, to_install
from stockade.core.events import RunEvent, RunFinished, RunResumed, RunStarted, SandboxStarted, to_json
from stockade.core.ports import RunStore, Sandbox
from stockade.core.tools import ToolSpec
from stockade.exports import is_wanted
from stockade.runtime import factory
from stockade.runtime.factory import Prepared
from stockade.runtime.settings import Front
from stockade_sandbox.policy import Policy
from stockade_sandbox.results import Stream

_SHOWN = 5
_PATIENCE_S = 5.0
_MAX_BYTES = 64 << 10


@dataclass(slots=True)
class Scratch:
    """Implements core.ports.Toolbox without a tool: what it does is to look when it is left, while the sandbox is up.

    `names` are the files of the working folder, relative, where the run came to an end of its own and had no folder.
    """

    sandbox: Sandbox
    policy: Policy
    specs: tuple[ToolSpec, ...] = ()
    names: list[str] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self.policy.folders:
            with suppress(StockadeError):
                await self._look()

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> ToolResult:
        raise KeyError(name)

    async def _look(self) -> None:
        place = PurePosixPath(self.policy.workdir)
        listed = await self.sandbox.exec(
            ["find", str(place), "-type", "f", "-print0"], timeout_s=_PATIENCE_S, max_output_bytes=_MAX_BYTES
        )
        whole, _, _ = listed.stdout.rpartition(b"\0")
        paths = [PurePosixPath(path.decode(errors="backslashreplace")) for path in whole.split(b"\0") if path]
        copied = [PurePosixPath(rule.inside) for rule in self.policy.copies]
        self.names = sorted(
            str(path.relative_to(place))
            for path in paths
            if path.is_relative_to(place) and not any(path.is_relative_to(known) for known in copied)
        )

    def words(self) -> str | None:
        """A line for the user, with a few of the names; None when nothing is lost."""
        if not self.names:
            return None
        more = f" and {len(self.names) - _SHOWN} more" if len(self.names) > _SHOWN else ""
        return f"these files are gone with the sandbox: {', '.join(self.names[:_SHOWN])}{more}"


@dataclass(slots=True)
class Watch:
    """Takes the events of a run as they come, and remembers what is needed at its end."""

    front: Front
    renderer: Renderer
    facts: review.RunFacts = field(default_factory=review.RunFacts)
    stop: Callable[[], None] = lambda: None
    lost: OSError | None = None
    prepared: factory.Prepared | None = None
    asker: PausePrompt | None = None
    tape: Recorder | None = None
    live: Live | None = None
    scratch: Scratch | None = None
    attention: Attention = field(default_factory=lambda: Attention(None))

    @property
    def silent(self) -> bool:
        """Whether nothing is drawn."""
        return self.front.quiet or self.front.json_lines

    @property
    def run_id(self) -> str:
        return self.facts.started.run_id if self.facts.started else ""

    def heard(self, event: RunEvent) -> None:
        """At once, or when the user who is being asked something has answered."""
        if self.live is not None:
            self.live.event(event.at)
        (self.asker.event if self.asker else self.event)(event)

    def output(self, stream: Stream, data: bytes) -> None:
        """What the shell's command writes, as it comes."""
        if self.live is not None:
            self.live.output(stream, data)
        show = partial(self.renderer.output, stream, data)
        self.asker.do(show) if self.asker else show()

    def event(self, event: RunEvent) -> None:
        match event:
            case RunStarted():
                self.facts.started = event
            case RunResumed() if self.prepared is not None:
                self.facts.started = self.prepared.started.model_copy(update={"budget": event.budget})
            case SandboxStarted():
                self.facts.layers = event.layers
            case RunFinished():
                self.facts.finished = event
            case _:
                pass
        self.attention.event(event)
        if self.tape is not None:
            self.tape.event(event)
        if self.front.json_lines:
            self.line(to_json(event, ascii_only=True))
        elif not self.front.quiet:
            self.renderer.event(event)

    def write(self, value: object) -> None:
        self.line(json.dumps(screen().data(value)))

    def line(self, text: str) -> None:
        """A JSON line in ASCII: nothing in it is an escape of a terminal. A run that cannot be read is stopped."""
        if self.lost is None and not self.put(text):
            self.stop()

    def answer(self, text: str) -> None:
        """The bot's, as a result."""
        assert self.facts.started is not None
        self.put(answer_text(text, plain=self.front.plain or not is_prose(self.facts.started)))

    def put(self, text: str) -> bool:
        """A line of the result. That it could not be written is told at the end: the changes come first."""
        try:
            print(text, flush=True)
        except OSError as error:
            self.lost = error
        return self.lost is None


def traced() -> Callable[[RunStore, Prepared], None] | None:
    """What sends the spans of a run, where `OTEL_*` asks for them. Where they cannot be had, a warning says so once:
    the variables are often set for every program of a machine.
    """
    if not any(name.startswith("OTEL_") for name in os.environ):
        return None
    try:
        if not is_wanted():
            return None
        send_spans = load("exports.otel:send")
    except UsageError as error:
        _warn(f"no spans are sent: {error.message}: {error.hint}")
        return None
    except ImportError:
        _warn(f"no spans are sent: OTEL_* asks for spans, which needs OpenTelemetry: {to_install('otel')}")
        return None

    async def deliver(store: RunStore, prepared: Prepared) -> bool:
        events, known = await store.events(prepared.started.run_id), len(prepared.history)
        ends = (place + 1 for place, event in enumerate(events[:known]) if isinstance(event, RunFinished))
        return await anyio.to_thread.run_sync(send_spans, events, max(ends, default=0))

    def send(store: RunStore, prepared: Prepared) -> None:
        if not anyio.run(deliver, store, prepared):
            say("the spans of this run could not be delivered", "look at OTEL_EXPORTER_OTLP_ENDPOINT")

    return send


@cache
def _warn(line: str) -> None:
    say(line)
