"""Secrets are replaced in text, and in what JSON is made of. For events there is secrets.py, which is slow to import.

What is known: values (of environment variables that look secret, of what the user named), as they are, in base64, in
URLs and in JSON; and formats of well-known keys and tokens (secret_formats.py). What is not seen: a value that a bot
spells otherwise on purpose, or that the limit on output has cut in two.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from stockade.core.secret_formats import ANY_LITERAL, FORMATS, SHORTEST, is_long, secret_variables, spellings
from stockade_sandbox.results import MARK

T = TypeVar("T")
_AS_IT_IS = frozenset({"type", "tool", "kind", "stream", "run_id", "parent", "host", "inside", "mode", "strategy",
                       "layer", "role", "status", "verdict", "sandbox", "backend", "answers", "files",
                       "base64", "workdir", "finish_reason", "shell_event", "entry"})  # fmt: skip
"""Fields with words of ours, names of folders, and bytes (which are looked through as bytes)."""


def mark(name: str) -> str:
    """What stands in place of a secret."""
    return f"{MARK}: {name}]"


class TextRedactor:
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
        self._as_bytes = [(latin(value), name) for value, name in self._values]
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

    def raw(self, data: bytes) -> bytes:
        """The same for bytes."""
        text = data.decode("latin-1")
        return cut_out([text], self._spans(text, self._as_bytes))[0].encode("latin-1")

    def _may_be_in(self, line: str) -> bool:
        """Whether an event with this JSON has to be gone through. Every format begins with what JSON leaves alone."""
        if any(value in line for value in self._in_json):
            return True
        return self._formats and ANY_LITERAL.search(line) is not None

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


def latin(text: str) -> str:
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


def cut_out(pieces: list[str], spans: list[tuple[int, int, str]]) -> list[str]:
    """The pieces without what is in `spans`, which count over all of them; a mark stands where its secret began."""
    result, begin = [], 0
    for piece in pieces:
        end = begin + len(piece)
        kept, at = "", begin
        for start, stop, name in spans:
            if stop <= begin or start >= end:
                continue
            kept += piece[at - begin : max(start, begin) - begin]
            kept += latin(mark(name)) if start >= begin else ""
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


def screen_redactor(environ: Mapping[str, str], named: Sequence[str]) -> TextRedactor:
    """For what is shown before a run says what it hides: what looks secret, and of what was `named` what is set."""
    return TextRedactor(
        secret_variables(environ) | {environ[name]: name for name in named if is_long(environ.get(name, ""))}
    )
