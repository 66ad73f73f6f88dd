"""Text from a model, a command, a file name or a task, made fit for a terminal.

What would move the cursor, start an escape sequence, turn the direction of writing or take no room is shown in its
Python spelling instead (`\\x1b`, `\\u202e`), so that it can be seen and does nothing.
"""

import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stockade.cli.lazy import load

if TYPE_CHECKING:
    from stockade.core.secrets import Redactor


_UNSAFE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, joiners and fillers without width
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero width, separators, bidirectional controls
    "\u3164\ufeff\uffa0\ufff0-\ufffb"  # fillers, byte order mark, interlinear annotation
    "\ud800-\udfff"  # halves of characters, undecodable bytes
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # invisible musical signs, tags
    "]"
)
_LAST_SECOND = 253402300799.0
"""Of the year 9999."""
_NEWLINE = re.compile(r"\r+\n")


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@dataclass(slots=True)
class _Screen:
    """What this process shows goes through `redactor`; until a run says what it hides, by what is known so far."""

    redactor: "Redactor | None" = None
    given: dict[str, str] = field(default_factory=dict)
    named: list[str] = field(default_factory=list)


_SCREEN = _Screen()


def hide(redactor: "Redactor") -> None:
    """From now on all that is shown goes through this one, which knows what the user named."""
    _SCREEN.redactor = redactor


def screen() -> "Redactor":
    """What is shown goes through this; at first it knows what is secret in this environment, and what was named."""
    if _SCREEN.redactor is None:
        redactor: Redactor = load("core.secrets:screen_redactor")({**os.environ, **_SCREEN.given}, _SCREEN.named)
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
    """`text` with every character that a terminal would obey spelled out, and without secrets.

    Tabs and newlines stay; CRLF is a newline.
    """
    return _UNSAFE.sub(_spelled, _NEWLINE.sub("\n", without_secrets(text)))


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
