"""Secrets are replaced in everything that is recorded, exported, shown or sent to a model.

What is known: values (of environment variables that look secret, of what the user named), as they are, in base64, in
URLs and in JSON; and formats of well-known keys and tokens (secret_formats.py). What is not seen: a value that a bot
spells otherwise on purpose, or that the limit on output has cut in two.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

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
from stockade.core.secret_formats import ANY_LITERAL, FORMATS, SHORTEST, is_long, secret_variables, spellings
from stockade_sandbox.results import MARK, Chunk, CommandOutput

T = TypeVar("T")
_AS_IT_IS = frozenset({"type", "tool", "kind", "stream", "run_id", "parent", "host", "inside", "mode", "strategy",
                       "layer", "role", "status", "verdict", "sandbox", "backend", "answers", "files",
                       "base64", "workdir", "finish_reason", "shell_event", "entry"})  # fmt: skip
"""Fields with words of ours, names of folders, and bytes (which are looked through as bytes)."""
_HELD_CHARS = 16_384
_MARKED = re.compile(re.escape(MARK) + r": ([^\]\s]+)\]")
_PEM_END = re.compile(r"-----END [A-Z0-9 ]*-----")
_AUTHORIZATION = re.compile(r"(?i)authorization\S{0,8}\s*\S{0,10}\s*\S*\Z", re.ASCII)


def mark(name: str) -> str:
    """What stands in place of a secret."""
    return f"{MARK}: {name}]"


class Redactor:
    """`values`: secret -> what it is called. Immutable; finds the same in what it has already gone through.

    `named`: what the user named, of those. `formats`: whether keys and tokens of well-known formats are hidden too.
    """

    def __init__(
        self,
        values: Mapping[str, str] | None = None,
        named: Sequence[str] = (),
        short: Sequence[str] = (),
        *,
        formats: bool = True,
    ) -> None:
        self.named, self._formats = tuple(named), formats
        limit = f"fewer than {SHORTEST} bytes"
        self.warnings = tuple(f"--redact {name}: its value has {limit} and is not hidden" for name in short)
        """What the user has to know: which of the named values are not hidden."""
        self._marks = {mark(name): value for value, name in reversed(list((values or {}).items()))}
        spelled = {form: name for value, name in (values or {}).items() for form in spellings(value)}
        self._values = sorted(spelled.items(), key=lambda pair: -len(pair[0]))
        self._as_bytes = [(_latin(value), name) for value, name in self._values]
        self._in_json = {json.dumps(value, ensure_ascii=False)[1:-1] for value, _ in self._values}
        self._spaced = [value for value, _ in self._values if re.search(r"\s", value)]

    @property
    def recorded(self) -> dict[str, list[str]]:
        """What is on record of it, among the options of a run: names, never values."""
        return {"redact": list(self.named)} if self.named else {}

    def text(self, text: str) -> str:
        """`text` without its secrets."""
        return _replaced(text, self._spans(text, self._values))

    def names(self, text: str) -> list[str]:
        """What is in it, by name."""
        return list(dict.fromkeys(name for _, _, name in self._spans(text, self._values)))

    def data(self, value: T) -> T:
        """The same in what JSON is made of."""
        return cast(T, self._walk(value))

    def restored(self, value: T) -> T:
        """What JSON is made of, as it was before its values were replaced, as far as they are known here."""
        return cast(T, _restored(value, self._marks))

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
            for number, piece in zip(mine, _cut(pieces, spans), strict=True):
                chunks[number] = Chunk.of(chunks[number].stream, piece.encode("latin-1"))
        if chunks == list(output.chunks):
            return output
        kept = tuple(chunk for chunk in chunks if chunk.text or chunk.base64)
        return replace(output, chunks=kept)

    def raw(self, data: bytes) -> bytes:
        """The same for bytes."""
        text = data.decode("latin-1")
        return _cut([text], self._spans(text, self._as_bytes))[0].encode("latin-1")

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
            cleaned["host"] = self.text(event.host)
        if isinstance(event, RunFinished):
            cleaned["reason"] = event.reason
        return event if cleaned == value else from_json(json.dumps(cleaned))

    def _may_be_in(self, line: str) -> bool:
        """Whether an event with this JSON has to be gone through. Every format begins with what JSON leaves alone."""
        if any(value in line for value in self._in_json):
            return True
        return self._formats and ANY_LITERAL.search(line) is not None

    def stream(self, on_text: OnText) -> "Stream":
        return Stream(self, on_text)

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: inner if key in _AS_IT_IS else self._walk(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._walk(inner) for inner in value]
        return value

    def _spans(self, text: str, values: list[tuple[str, str]]) -> list[tuple[int, int, str]]:
        """Where secrets stand, in order and apart."""
        results: list[tuple[int, int, str]] = []
        for value, name in values:
            at = text.find(value)
            while at >= 0:
                results.append((at, at + len(value), name))
                at = text.find(value, at + len(value))
        for number in _possible(text) if self._formats else ():
            pattern = FORMATS[number].pattern
            group = min(1, pattern.groups)
            results += [(*match.span(group), FORMATS[number].name) for match in pattern.finditer(text)]
        return _merged(results)


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


def _latin(text: str) -> str:
    return text.encode(errors="surrogateescape").decode("latin-1")


def _possible(text: str) -> Iterator[int]:
    """The formats that may be in `text`."""
    if ANY_LITERAL.search(text) is None:
        return iter(())
    return (number for number, one in enumerate(FORMATS) if any(literal in text for literal in one.literals))


def _merged(found: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """In order; of those that overlap, one with the name of the first."""
    result: list[tuple[int, int, str]] = []
    for start, end, name in sorted(found, key=lambda span: (span[0], -span[1])):
        if result and start < result[-1][1]:
            before = result[-1]
            result[-1] = (before[0], max(before[1], end), before[2])
        else:
            result.append((start, end, name))
    return result


def _replaced(text: str, spans: list[tuple[int, int, str]]) -> str:
    parts, at = [], 0
    for start, end, name in spans:
        parts += [text[at:start], mark(name)]
        at = end
    return "".join([*parts, text[at:]]) if parts else text


def _cut(pieces: list[str], spans: list[tuple[int, int, str]]) -> list[str]:
    """The pieces without what is in `spans`, which count over all of them; a mark stands where its secret began."""
    result, begin = [], 0
    for piece in pieces:
        end = begin + len(piece)
        kept, at = "", begin
        for start, stop, name in spans:
            if stop <= begin or start >= end:
                continue
            kept += piece[at - begin : max(start, begin) - begin]
            kept += _latin(mark(name)) if start >= begin else ""
            at = min(stop, end)
        result.append(kept + piece[at - begin :])
        begin = end
    return result


def _restored(value: Any, marks: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for one, secret in marks.items():
            value = value.replace(one, secret)
        return value
    if isinstance(value, dict):
        return {key: _restored(inner, marks) for key, inner in value.items()}
    return type(value)(_restored(inner, marks) for inner in value) if isinstance(value, list | tuple) else value


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


def screen_redactor(environ: Mapping[str, str], named: Sequence[str]) -> Redactor:
    """For what is shown before a run says what it hides: what looks secret, and of what was `named` what is set."""
    return Redactor(
        secret_variables(environ) | {environ[name]: name for name in named if is_long(environ.get(name, ""))}
    )


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
