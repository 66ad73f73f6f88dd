"""Why a server ended: its status, and the line of llama.cpp's log that tells the cause. Standard library only."""

import os
import re
import signal
from typing import IO

_TAIL_BYTES = 64 * 1024
# `0.00.005.845 E ` at the head of a line: time and level.
_HEAD = re.compile(r"^(?:\d+\.)+\d+ (?P<level>[A-Z]) ")


def last_words(log: str) -> str:
    """The line that says why: the first error of the log's end, for the later ones only say that there was one."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if (head := _HEAD.match(line)) and head["level"] == "E"]
    line = (errors[:1] or lines[-1:] or [""])[0]
    return " ".join("".join(c for c in _HEAD.sub("", line) if c.isprintable()).split())[:300]


def last_words_of(log: IO[bytes]) -> str:
    """The same from the end of an open file."""
    size = os.fstat(log.fileno()).st_size
    return last_words(os.pread(log.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode(errors="replace"))


def ending(status: int) -> str:
    """A process's return code in words: `ended with status 1`, `was ended by SIGKILL`."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
