"""What went wrong in a program, in the few words that help to mend it.

A traceback is mostly noise for a small model: frames of libraries, paths, repeated lines. What is kept: the kind of
failure, the last line of the program's own that was running, the message; for a failed check the call, what it gave
and what it should give. At most `MAX_WORDS_CHARS`.
"""

import re
from collections.abc import Sequence
from itertools import dropwhile

from stockade.core.data import Data

MAX_WORDS_CHARS = 700
_MAX_VALUE_CHARS = 160
_FRAME = re.compile(r'^[ \t]*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,? in (?P<name>.+))?$', re.MULTILINE)
_ERROR = re.compile(r"(?P<kind>[A-Za-z_][\w.]*)(?::\s*(?P<text>.*))?$", re.DOTALL)


class Failure(Data):
    """One failure. `line` is 1-based in the program, None when it is not in it; `source` the text of that line."""

    kind: str
    message: str = ""
    line: int | None = None
    source: str = ""
    function: str = ""

    def words(self) -> str:
        """For the model, bounded."""
        place = f" in line {self.line}" if self.line is not None else ""
        source = f": `{self.source[:120]}`" if self.source else ""
        inside = f", in {self.function}" if self.function and self.function != "<module>" else ""
        message = f". {self.kind}: {self.message}" if self.message else f". {self.kind}"
        return _bounded(f"The program failed{place}{inside}{source}{message}")


class FailedCheck(Data):
    """A call that gave something else than it should; `got` and `expected` as Python writes them.

    With nothing expected, `got` is the exception that it raised.
    """

    call: str
    expected: str
    got: str

    def words(self) -> str:
        if not self.expected:
            return f"{cut(self.call)} raised {cut(self.got)}."
        return f"{cut(self.call)} gave {cut(self.got)}, but it should give {cut(self.expected)}."


def of_traceback(stderr: str, code: str, file: str = "main.py") -> Failure | None:
    """The failure that a traceback on standard error tells of; None when there is none in it."""
    text = _last_traceback(stderr)
    if text is None:
        return None
    kind, message = _error(text)
    frames = [found for found in _FRAME.finditer(text) if found["file"].rpartition("/")[2] == file]
    if not frames:
        return Failure(kind=kind, message=message)
    last, lines = frames[-1], code.splitlines()
    number = int(last["line"])
    source = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return Failure(kind=kind, message=message, line=number, source=source, function=last["name"] or "")


def of_syntax(error: SyntaxError, code: str) -> Failure:
    """A program that does not compile."""
    lines = code.splitlines()
    number = error.lineno if error.lineno and error.lineno <= len(lines) else None
    source = lines[number - 1].strip() if number else ""
    return Failure(kind=type(error).__name__, message=error.msg or "", line=number, source=source)


def of_timeout(seconds: float, stderr: str, code: str, file: str = "main.py") -> Failure:
    """A program that did not end; where it was, when faulthandler wrote it to standard error."""
    frames = [found for found in _FRAME.finditer(stderr) if found["file"].rpartition("/")[2] == file]
    message = f"it did not end within {seconds:g} s: look for a loop that never ends or is far too slow"
    if not frames:
        return Failure(kind="Timeout", message=message)
    number, lines = int(frames[0]["line"]), code.splitlines()
    source = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return Failure(kind="Timeout", message=message, line=number, source=source, function=frames[0]["name"] or "")


def checks_in_words(failed: Sequence[FailedCheck], passed: int) -> str:
    """The first three failed checks, and how many there are."""
    shown = "\n".join(one.words() for one in failed[:3])
    return _bounded(f"{len(failed)} of {len(failed) + passed} checks failed.\n{shown}")


def _last_traceback(stderr: str) -> str | None:
    """From the last `Traceback` (or syntax error) on: chained ones end with the one that counts."""
    place = stderr.rfind("Traceback (most recent call last):")
    if place >= 0:
        return stderr[place:]
    found = _FRAME.search(stderr)
    return stderr[found.start() :] if found else None


def _error(text: str) -> tuple[str, str]:
    """The exception's name without its module, and its message on one line: what stands behind the last frame."""
    frames = list(_FRAME.finditer(text))
    lines = text[frames[-1].end() if frames else 0 :].splitlines()
    said = "\n".join(dropwhile(lambda line: not line.strip() or line.startswith(" "), lines)).strip()
    found = _ERROR.match(said)
    if found is None:
        return cut(" ".join(said.split()), 100) or "it failed without a word", ""
    return found["kind"].rpartition(".")[2], cut(" ".join((found["text"] or "").split()), 300)


def cut(text: str, limit: int = _MAX_VALUE_CHARS) -> str:
    """Its beginning and its end."""
    half = (limit - 5) // 2
    return text if len(text) <= limit else f"{text[:half]} ... {text[-half:]}"


def _bounded(text: str) -> str:
    return text if len(text) <= MAX_WORDS_CHARS else f"{text[: MAX_WORDS_CHARS - 4]} ..."
