"""Secrets are replaced in everything that is recorded, exported, shown or sent to a model.

What is known, and how it is found in text: redact.py. Here are events, bytes in chunks, and text in pieces.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stockade.core.actions import Failed, Observation
from stockade.core.errors import UsageError
from stockade.core.events import (
    ActionFinished,
    CheckFinished,
    ModelAnswered,
    NetworkRequested,
    RunEvent,
    RunFinished,
    RunStarted,
    from_json,
    to_json,
)
from stockade.core.ports import OnEvent, OnText
from stockade.core.redact import TextRedactor, cut_out
from stockade.core.secret_formats import FORMATS, is_long, secret_variables
from stockade_sandbox.results import MARK, Chunk, CommandOutput

_HELD_CHARS = 16_384
_MARKED = re.compile(re.escape(MARK) + r": ([^\]\s]+)\]")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]*-----")
_AUTHORIZATION = re.compile(r"(?i)authorization\S{0,8}\s*\S{0,10}\s*\S*\Z", re.ASCII)


class Redactor(TextRedactor):
    """The same for what goes on record, and for text that arrives in pieces."""

    @classmethod
    def like(cls, other: TextRedactor) -> "Redactor":
        """Of the same secrets."""
        same = cls.__new__(cls)
        same.__dict__.update(other.__dict__)
        return same

    def observation(self, observation: Observation) -> Observation:
        """As it goes on record."""
        event = self.event(ActionFinished(at=0.0, turn=0, step=0, observation=observation))
        assert isinstance(event, ActionFinished)
        return event.observation

    def output(self, output: CommandOutput) -> CommandOutput:
        """The same for bytes in chunks: a secret that was cut in two is found too."""
        chunks = list(output.chunks)
        for stream in ("stdout", "stderr"):
            mine = [number for number, chunk in enumerate(chunks) if chunk.stream == stream]
            pieces = [chunks[number].data.decode("latin-1") for number in mine]
            spans = self._spans("".join(pieces), self._as_bytes)
            if not spans:
                continue
            for number, piece in zip(mine, cut_out(pieces, spans), strict=True):
                chunks[number] = Chunk.of(chunks[number].stream, piece.encode("latin-1"))
        if chunks == list(output.chunks):
            return output
        kept = tuple(chunk for chunk in chunks if chunk.text or chunk.base64)
        return replace(output, chunks=kept)

    def event(self, event: RunEvent) -> RunEvent:
        """The event as it goes on record; the same object when there is nothing to hide."""
        output = event.observation if isinstance(event, ActionFinished | CheckFinished) else None
        cut = isinstance(output, CommandOutput) and not _is_whole(output)
        if not cut and not self._may_be_in(to_json(event)):
            return event
        if isinstance(output, CommandOutput):
            event = event.model_copy(update={"observation": self.output(output)})
            rest = event.model_copy(update={"observation": Failed(message=output.cwd)})
            if not self._may_be_in(to_json(rest)):
                return event
        text = to_json(event)
        value = json.loads(text)
        cleaned = self._walk(value)
        if isinstance(event, NetworkRequested):
            cleaned["host"], cleaned["allow"] = self.text(event.host), self.text(event.allow)
        if isinstance(event, RunFinished):
            cleaned["reason"] = event.reason
        if isinstance(event, ModelAnswered) and event.answer.reasoning is not None:
            kept, sent = cleaned["answer"]["reasoning"], value["answer"]["reasoning"]
            kept["changed"] = event.answer.reasoning.changed or kept["items"] != sent["items"]
        return event if cleaned == value else from_json(json.dumps(cleaned))

    def stream(self, on_text: OnText) -> "Stream":
        return Stream(self, on_text)


EXACT = Redactor(formats=False)
"""Hides nothing."""


class Stream:
    """Text that arrives in pieces: what may be the beginning of a secret waits for the rest of it."""

    def __init__(self, redactor: Redactor, on_text: OnText) -> None:
        self._redactor, self._on_text = redactor, on_text
        self._held = ""

    def __call__(self, piece: str | None) -> None:
        """None: all pieces so far are void. An empty one, a token of thinking, has nothing to hide."""
        if not piece:
            self._held = "" if piece is None else self._held
            self._on_text(piece)
            return
        self._held += piece
        ready = self._ready()
        if ready:
            text, self._held = self._held[:ready], self._held[ready:]
            self._on_text(self._redactor.text(text))

    def flush(self) -> None:
        """Nothing more comes."""
        text, self._held = self._held, ""
        if text:
            self._on_text(self._redactor.text(text))

    def _ready(self) -> int:
        """How many characters cannot become part of a secret any more."""
        text = self._held
        ready = _last_word(text)
        if (begun := text.rfind("-----BEGIN")) >= 0 and not _PEM_END.search(text, begun):
            ready = min(ready, begun)
        if (header := _AUTHORIZATION.search(text)) is not None:
            ready = min(ready, header.start())
        for value in self._redactor._spaced:
            longest = next(
                (size for size in range(min(len(value), len(text)), 0, -1) if text.endswith(value[:size])), 0
            )
            ready = min(ready, len(text) - longest)
        for start, end, _ in self._redactor._spans(text, self._redactor._values):
            if start < ready < end:
                ready = start
        return max(ready, len(text) - _HELD_CHARS)


def _is_whole(output: CommandOutput) -> bool:
    """Nothing in it was cut in two or stands there as bytes: what its JSON does not show is not in it."""
    streams = [chunk.stream for chunk in output.chunks]
    return len(set(streams)) == len(streams) and all(chunk.base64 is None for chunk in output.chunks)


def _last_word(text: str) -> int:
    """Where the run of characters without white space at the end begins."""
    stripped = text.rstrip()
    if len(stripped) < len(text):
        return len(text)
    return max(text.rfind(space) for space in " \n\t\r") + 1


def build_redactor(environ: Mapping[str, str], given: Mapping[str, str], named: Sequence[str] = ()) -> Redactor:
    """For a run: of `environ` and of what was `given` to the sandbox what looks secret, and all that was `named` and
    is long enough. UsageError when a named variable is not set.
    """
    mine, short = _named({**environ, **given}, named)
    return Redactor({**secret_variables(environ), **secret_variables(given), **mine}, tuple(mine.values()), short)


def named_redactor(environ: Mapping[str, str], given: Mapping[str, str], named: Sequence[str]) -> Redactor:
    """For output that is exact otherwise: what was `named` and nothing else. UsageError when it is not set."""
    mine, short = _named({**environ, **given}, named)
    return Redactor(mine, tuple(mine.values()), short, formats=False)


def _named(variables: Mapping[str, str], names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Value -> name of those that are long enough, and the names of the others."""
    for name in names:
        if not variables.get(name):
            way_out = f"set it, give --env {name}=VALUE, or take it out of `redact` where that is in a configuration"
            raise UsageError(f"--redact {name}: the variable is not set here", way_out)
    short = [name for name in names if not is_long(variables[name])]
    return {variables[name]: name for name in names if name not in short}, short


@dataclass(frozen=True, slots=True)
class View:
    """How a run on record may be shown: what it hid is read again from the environment, by name.

    `unknown`: hidden by it and not set here. Its record is without them in any case; its files are not.
    """

    redactor: Redactor
    unknown: tuple[str, ...] = ()

    def check_files(self) -> None:
        """UsageError when what the run wrote may hold a value that is not known here and so cannot be masked."""
        if self.unknown:
            names = ", ".join(self.unknown)
            raise UsageError(
                f"the run hid the value of {names}, which is not set here: where its changes hold it cannot be told",
                f"set {names} as it was, or see the changes as they are: stockade runs diff --show-secrets",
            )


def view_of(started: RunStarted, environ: Mapping[str, str], named: Sequence[str] = ()) -> View:
    """`named`: what the user wants hidden now, whatever the run hid."""
    hidden = {name: environ.get(name, "") for name in hidden_names(started)}
    values = secret_variables(environ)
    values |= {environ[name]: name for name in named if is_long(environ.get(name, ""))}
    values |= {value: name for name, value in hidden.items() if is_long(value)}
    return View(Redactor(values), tuple(name for name, value in hidden.items() if not is_long(value)))


def hidden_names(started: RunStarted) -> tuple[str, ...]:
    """The variables whose values a run hid: those that were named, and those that the sandbox was given."""
    marked = [name for value in started.policy.environment.values() for name in _MARKED.findall(value)]
    formats = {one.name for one in FORMATS}
    named = started.options.get("redact", ())
    return tuple(dict.fromkeys((*named, *(name for name in marked if name not in formats))))


def restore_secrets(started: RunStarted, environ: Mapping[str, str]) -> RunStarted:
    """The start of a run on record with the values of its variables, which come from `environ`, by their names.

    UsageError names the first that is not set, also of those that were only to be hidden.
    """
    recorded = started.policy.environment
    marked = [name for name, value in recorded.items() if MARK in value]
    for name in (*marked, *(name for name in hidden_names(started) if name not in recorded)):
        if not environ.get(name):
            raise UsageError(f"the run hid the value of {name}, which is not on record", f"set {name} as it was")
    environment = {**recorded, **{name: environ[name] for name in marked}}
    return started.model_copy(update={"policy": replace(started.policy, environment=environment)})


def without_marks(exports: str | None) -> str | None:
    """Bash that sets variables, but for those whose values are not on record: the sandbox has them from elsewhere."""
    if exports is None or MARK not in exports:
        return exports
    return "".join(line for line in exports.splitlines(keepends=True) if MARK not in line)


def redact_callbacks(
    redactor: Redactor, on_event: OnEvent | None, on_text: OnText | None
) -> tuple[OnEvent | None, OnText | None]:
    """The listeners of a run: secrets are hidden in text as it streams; an answer's rest comes before its event."""
    if on_text is None:
        return on_event, None
    stream = redactor.stream(on_text)

    def event(event: RunEvent) -> None:
        if isinstance(event, ModelAnswered):
            stream.flush()
        if on_event is not None:
            on_event(event)

    return event, stream
