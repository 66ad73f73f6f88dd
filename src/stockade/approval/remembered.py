"""What a person allowed, by the exact words of each part: for the run in memory, for always in a file."""

import hashlib
import os
from pathlib import Path
from typing import Literal

from stockade.approval.parts import Parsed, Part
from stockade.core.errors import UsageError

MAX_FILE_BYTES = 10_000_000


class Remembered:
    """`file` holds a line for each part that is always allowed: `SHA256  TEXT`. None: nothing is kept."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._keys: set[str] = _read(file) if file is not None else set()

    def allows(self, parsed: Parsed) -> bool:
        """Whether every part was allowed before. What could not be read whole never was."""
        return not parsed.problem and bool(parsed.parts) and all(key(part) in self._keys for part in parsed.parts)

    def add(self, parsed: Parsed, scope: Literal["once", "run", "always"]) -> None:
        """Parts with words that are not known are remembered too: by how they stand in the text."""
        if scope == "once" or parsed.problem:
            return
        new = {key(part): part for part in parsed.parts if key(part) not in self._keys}
        self._keys.update(new)
        if scope == "always" and self._file is not None and new:
            _append(self._file, [f"{mark}  {_line(part.text)}" for mark, part in new.items()])


def key(part: Part) -> str:
    """The same for the same words in the same text, whatever stands around them."""
    return hashlib.sha256(repr((part.words, part.text.strip(), part.writes)).encode(errors="replace")).hexdigest()


def _line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:200]


def _read(file: Path) -> set[str]:
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise UsageError(f"{file} is larger than {MAX_FILE_BYTES} bytes", "shorten it, or remove it")
        lines = file.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    return {line.partition("  ")[0] for line in lines if line.strip()}


def _append(file: Path, lines: list[str]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w") as target:
            target.write("".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None
