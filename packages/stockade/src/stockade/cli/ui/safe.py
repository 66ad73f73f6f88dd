"""Text from a model, a command, a file name, a server or a task, made fit for a terminal: the one place that does it.

What would move the cursor, start an escape sequence, turn the direction of writing or take no room is shown in its
Python spelling instead (`\\x1b`, `\\u202e`), so that it can be seen and does nothing.
"""

import codecs
import os
import re
import sys
import time
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stockade.cli.lazy import load

if TYPE_CHECKING:
    from stockade.core.redact import TextRedactor


_SPELLED = {
    "C0 but tab and newline, DEL, C1": "\x00-\x08\x0b-\x1f\x7f-\x9f",
    "separators of lines and paragraphs": "\u2028\u2029",
    "direction": "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069",
    "without width": "\xad\u034f\u180e\u200b-\u200d\u2060-\u2065\u206a-\u206f\ufeff\ufff0-\ufffb",
    "fillers": "\u115f\u1160\u17b4\u17b5\u3164\uffa0",
    "variation selectors": "\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef",
    "tags": "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff",
    "format controls of scripts": "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a",
    "halves of characters, undecodable bytes": "\ud800-\udfff",
}
"""What is shown in its spelling, never as it is: class by class, as ranges of a regular expression. An escape sequence
is ESC or a C1 control and then plain text, so that none is left, a link (OSC 8) or a title neither.
"""
_PICTURES = "#*0-9\xa9\xae\u203c-\u3299\U0001f000-\U0001faff"
"""What one selector U+FE0E or U+FE0F may follow, as in ⚠️: it chooses between two pictures of it."""
_UNSAFE = re.compile(f"(?<=[{_PICTURES}])[\ufe0e\ufe0f]|([{''.join(_SPELLED.values())}])")
_MAX_MARKS = 4
"""Combining marks on one character; more of them would be drawn over the lines around it."""
_FLOOD = re.compile(rf"[\u0300-\u1fff\u20d0-\u20ff\u2c00-\U0010ffff]{{{_MAX_MARKS + 1},}}")
"""Where such marks can be: all of them are in these ranges."""
_LAST_SECOND = 253402300799.0
"""Of the year 9999."""
_NEWLINE = re.compile(r"(?<!\r)\r+\n")  # from the first of a row: else its time is the square of their number


def _spelling(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _thinned(run: re.Match[str]) -> str:
    marks, kept = 0, list[str]()
    for char in run[0]:
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        kept.append(char if marks <= _MAX_MARKS else _spelling(char))
    return "".join(kept)


def fit_for_terminal(text: str) -> str:
    """`text` with every character that a terminal would obey, or that nobody would see, spelled out. Tabs and newlines
    stay; CRLF is a newline. What is fit already stays as it is.
    """
    text = _FLOOD.sub(_thinned, _NEWLINE.sub("\n", text))
    return _UNSAFE.sub(lambda found: _spelling(found[1]) if found[1] else found[0], text)


class TerminalBytes:
    """The same for bytes that come in pieces, as UTF-8; what is not is spelled out, byte for byte."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="backslashreplace")
        self._shown = self._held = ""

    def fit(self, data: bytes, *, final: bool = False) -> bytes:
        """What is to be shown of it now. A CR at its end waits for what follows it, half a character too; not if this
        is the `final` piece.
        """
        text = self._held + self._decoder.decode(data, final)
        self._held = "\r" if text.endswith("\r") and not final else ""
        text = self._shown + text.removesuffix(self._held)
        fit = fit_for_terminal(text)[len(fit_for_terminal(self._shown)) :]
        self._shown = "" if text.endswith("\r") else text[-_MAX_MARKS - 1 :]
        return fit.encode()


@dataclass(slots=True)
class _Screen:
    """What this process shows goes through `redactor`; until a run says what it hides, by what is known so far."""

    redactor: "TextRedactor | None" = None
    given: dict[str, str] = field(default_factory=dict)
    named: list[str] = field(default_factory=list)


_SCREEN = _Screen()


def hide(redactor: "TextRedactor") -> None:
    """From now on all that is shown goes through this one, which knows what the user named."""
    _SCREEN.redactor = redactor


def screen() -> "TextRedactor":
    """What is shown goes through this; at first it knows what is secret in this environment, and what was named."""
    if _SCREEN.redactor is None:
        redactor: TextRedactor = load("core.redact:screen_redactor")({**os.environ, **_SCREEN.given}, _SCREEN.named)
        _SCREEN.redactor = redactor
    return _SCREEN.redactor


def hide_named(names: Iterable[str] = (), given: Iterable[str] = ()) -> None:
    """The values of these variables too, some of which were `given` as NAME=VALUE: what goes wrong before there is a
    run is shown without them.
    """
    _SCREEN.named += names
    _SCREEN.given |= {name: value for name, found, value in (text.partition("=") for text in given) if found}
    _SCREEN.redactor = None


def without_secrets(text: str) -> str:
    """`text` without what is secret: a record may be older than the rules, or a diff hold a key."""
    return screen().text(text)


def safe_text(text: str) -> str:
    """`text` fit for a terminal, and without secrets."""
    return fit_for_terminal(without_secrets(text))


def result_text(text: str) -> str:
    """A result for standard output, without secrets: fit for a terminal where it is one; a pipe gets what there is."""
    return safe_text(text) if sys.stdout.isatty() else without_secrets(text)


def moment(at: float) -> str:
    """A time (UNIX s) to the minute, as it is here; a damaged file may hold any number."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(max(0.0, min(at, _LAST_SECOND))))


def some(count: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def one_line(text: str, limit: int = 2000) -> str:
    """The same in one line, in at most `limit` characters."""
    line = " ".join(safe_text(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def one_lines(texts: Sequence[str], limit: int = 2000) -> list[str]:
    """`one_line` of each; of very many at the price of a few."""
    short = [text for text in texts if "\n" not in text and "\r" not in text]
    lines = safe_text("\n".join(short)).split("\n")
    if len(lines) != len(short):  # what is to be hidden goes over several of them
        return [one_line(text, limit) for text in texts]
    cut = [" ".join(line.split()) for line in lines]
    done = iter(line if len(line) <= limit else f"{line[: limit - 1]}…" for line in cut)
    return [one_line(text, limit) if "\n" in text or "\r" in text else next(done) for text in texts]
