"""What the coder is to do (Plan, Job), what the runner in the sandbox says of a program (Report), what that means
(Verdict), what went wrong in the few words that help to mend it, and what came of it all (Attempt, Result).

A program has passed only when its report says so whole: it was loaded, every check was done, none failed. A traceback
is mostly noise for a small model: frames of libraries, paths, repeated lines. What is kept: the kind of failure, the
last line of the program's own that was running, the message; for a failed check the call, what it gave and what it
should give. At most `MAX_WORDS_CHARS`.
"""

import ast
import re
from collections.abc import Callable, Sequence
from itertools import dropwhile
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stockade.core.data import Data
from stockade.core.errors import UsageError
from stockade.plugins.coder import inside
from stockade.plugins.coder.program import Example, find_examples, statements, syntax_error

FILE = "main.py"
RUNNER = "runner.py"
MAX_TESTS_BYTES = 1_000_000
MAX_ATTEMPTS = 200
MAX_WORDS_CHARS = 700
_MAX_PRINTED_CHARS = 300
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

    def line(self) -> str:
        """For the user."""
        if not self.expected:
            return f"{cut(self.call)} raised {cut(self.got)}"
        return f"{cut(self.call)} gave {cut(self.got)}, expected {cut(self.expected)}"


def of_traceback(stderr: str, code: str) -> Failure | None:
    """The failure that a traceback on standard error tells of; None when there is none in it."""
    text = _last_traceback(stderr)
    if text is None:
        return None
    kind, message = _error(text)
    return _placed(kind, message, code, _own_frames(text)[-1:])


def of_syntax(error: SyntaxError, code: str) -> Failure:
    """A program that does not compile."""
    number = error.lineno if error.lineno and error.lineno <= len(code.splitlines()) else None
    return Failure(
        kind=type(error).__name__, message=error.msg or "", line=number, source=_source(code, number) if number else ""
    )


def of_timeout(seconds: float, stderr: str, code: str) -> Failure:
    """A program that did not end; where it was, when faulthandler wrote it to standard error."""
    message = f"it did not end within {seconds:g} s: look for a loop that never ends or is far too slow"
    return _placed("Timeout", message, code, _own_frames(stderr)[:1])


def _own_frames(text: str) -> list[re.Match[str]]:
    return [found for found in _FRAME.finditer(text) if found["file"].rpartition("/")[2] == FILE]


def _placed(kind: str, message: str, code: str, frames: Sequence[re.Match[str]]) -> Failure:
    """In the line of the one frame, where there is one."""
    if not frames:
        return Failure(kind=kind, message=message)
    number = int(frames[0]["line"])
    source, function = _source(code, number), frames[0]["name"] or ""
    return Failure(kind=kind, message=message, line=number, source=source, function=function)


def _source(code: str, line: int) -> str:
    lines = code.splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


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


def runner_folder() -> Path:
    """Where the runner is on this host: a folder to mount read-only."""
    return Path(inside.__file__).parent


class Job(Data):
    """The checks of a run: worked examples, and the text of a test file. Without both a program is run as a script.

    `limit_s` is wall-clock time of one program. `prelude` runs before it: what the task gives already. `names`: what
    the tests may import it by, beside `main` and `solution`. `stdin`: what it reads from its standard input.
    """

    limit_s: float = Field(default=10.0, gt=0)
    examples: tuple[Example, ...] = ()
    tests: str = ""
    prelude: str = ""
    names: tuple[str, ...] = ()
    stdin: str = ""

    def text(self) -> str:
        """JSON for the runner."""
        return self.model_dump_json(indent=1, exclude={"stdin"})

    @property
    def has_checks(self) -> bool:
        return bool(self.examples or self.tests)


class Report(BaseModel):
    """What the runner wrote. The program may have had its fingers in it: anything may be missing."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    loaded: bool = False
    whole: bool = False
    passed: int = Field(default=0, ge=0)
    failures: int = Field(default=0, ge=0)
    failed: tuple[FailedCheck, ...] = ()
    exit_code: int = 1
    timed_out: bool = False
    left: int = 0


class Verdict(Data):
    """Whether a program is good; if not, why, in words for the model. `checks` counts those that were done; `wrong` are
    those that failed of a program that ran whole, as far as they were kept.
    """

    passed: bool
    words: str = ""
    checks_passed: int = 0
    checks: int = 0
    wrong: tuple[FailedCheck, ...] = ()


def read_report(text: str) -> Report | None:
    """None when it is none."""
    try:
        return Report.model_validate_json(text)
    except ValidationError:
        return None


def check_tests(text: str) -> str:
    """A test file that can be used. UsageError names what is wrong with it."""
    if len(text.encode(errors="replace")) > MAX_TESTS_BYTES:
        raise UsageError(f"the tests are larger than {MAX_TESTS_BYTES} bytes", "give fewer of them")
    if (error := syntax_error(text)) is not None:
        place = f" in line {error.lineno}" if error.lineno else ""
        raise UsageError(f"the tests do not compile{place}: {error.msg}", "mend the file")
    if not any(_tests(node) for node in statements(text) or ()):
        raise UsageError("the tests hold no test", "write assert lines, functions named test_... or a TestCase")
    return text


def _tests(node: ast.stmt) -> bool:
    match node:
        case ast.Assert():
            return True
        case ast.FunctionDef(name=name):
            return name.startswith("test")
        case ast.ClassDef(bases=bases):
            return any("TestCase" in ast.unparse(base) for base in bases)
        case ast.Expr(value=ast.Call()):
            return True
        case _:
            return False


def judge(code: str, job: Job, report: Report | None, stderr: str) -> Verdict:
    """What came of one program."""
    if (wrong := syntax_error(code)) is not None:
        return Verdict(passed=False, words=of_syntax(wrong, code).words())
    if report is None:
        return Verdict(passed=False, words="The program was ended before it was done: it used too much memory or time.")
    facts: dict[str, Any] = {"checks_passed": report.passed, "checks": report.passed + report.failures}
    if report.timed_out:
        return Verdict(passed=False, words=of_timeout(job.limit_s, stderr, code).words(), **facts)
    if not job.has_checks:
        words = _of_end(code, report, stderr) if report.exit_code else ""
        return Verdict(passed=not report.exit_code, words=words, **facts)
    if not (report.loaded and report.whole):
        return Verdict(passed=False, words=_of_end(code, report, stderr), **facts)
    if report.failures or report.exit_code:
        found = of_traceback(stderr, code)
        words = checks_in_words(report.failed, report.passed)
        trace = f"\n{found.words()}" if found is not None and found.line is not None else ""
        facts["wrong"] = report.failed
        return Verdict(passed=False, words=words + trace, **facts)
    if report.passed < max(1, len(job.examples)):
        return Verdict(passed=False, words="The checks were not done.", **facts)
    return Verdict(passed=True, **facts)


def _of_end(code: str, report: Report, stderr: str) -> str:
    """Of a program that did not come to its end."""
    found = of_traceback(stderr, code)
    if found is not None:
        return found.words()
    said = f" It wrote: {stderr.strip()[-_MAX_PRINTED_CHARS:]}" if stderr.strip() else ""
    return f"The program ended by itself with status {report.exit_code}, before it was done.{said}"


class Plan(Data):
    """How long it goes on: after `repairs` of a program, or when they change nothing, it begins anew, up to
    `fresh_starts` times; at most `rounds` in all (None: what follows from those two).

    `rewrite`: a program that gives wrong values is not shown to the model again; the values that must come are.
    """

    repairs: int = Field(default=3, ge=0, le=MAX_ATTEMPTS)
    fresh_starts: int = Field(default=1, ge=0, le=MAX_ATTEMPTS)
    rounds: int | None = Field(default=None, ge=1, le=MAX_ATTEMPTS)
    rewrite: bool = True

    @property
    def most_rounds(self) -> int:
        return min(self.rounds or (self.repairs + 1) * (self.fresh_starts + 1), MAX_ATTEMPTS)


class Attempt(Data):
    """One program that was run. `number` is the turn of its answer, `start` counts the fresh starts before it.

    `code` is what the user gets; empty when the answer held none. `answer` is what the model said.
    """

    number: int
    start: int
    answer: str = ""
    code: str = ""
    requirements: tuple[str, ...] = ()
    verdict: Verdict
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    duration_s: float = 0.0

    def line(self) -> str:
        """What came of it, for the user."""
        verdict = self.verdict
        if verdict.passed:
            return "passed" if verdict.checks else "it ran"
        if not verdict.wrong:
            return f"{verdict.words[:1].lower()}{verdict.words[1:].splitlines()[0]}" if verdict.words else "it failed"
        failed = verdict.checks - verdict.checks_passed
        more = f" ({failed} of {verdict.checks} checks failed)" if verdict.checks > 1 else ""
        return f"{verdict.wrong[0].line()}{more}"

    @property
    def rank(self) -> tuple[bool, int, bool, bool]:
        """The larger, the better."""
        return self.verdict.passed, self.verdict.checks_passed, self.exit_code == 0, bool(self.code)


class Result(Data):
    """`status`: `success` only for a program that ran and passed its checks; `code` is the best there was."""

    status: str = "error"
    code: str = ""
    stdout: str = ""
    error: str = ""
    attempts: tuple[Attempt, ...] = ()


Explain = Callable[[Attempt], str]
"""What the model is told of an attempt that failed."""


def by_error_handler(attempt: Attempt) -> str:
    """The few words that help."""
    return attempt.verdict.words


def best(attempts: Sequence[Attempt]) -> Attempt | None:
    """The first of the best ones; None when there is no code at all."""
    found = max(attempts, key=lambda one: one.rank, default=None)
    return found if found is not None and found.code else None


def make_job(task: str, tests: str = "", examples: Sequence[str] = (), limit_s: float = 10.0, name: str = "") -> Job:
    """The checks of a task: those that it holds, those that are given. UsageError for what is not understood.

    `name`: of the file that the program will be, which tests may import it by.
    """
    found = list(find_examples(task))
    for text in examples:
        given = find_examples(text)
        if not given:
            raise UsageError(f"--example {text!r} is not understood", 'write it as "f(1) == 2" or as a doctest')
        found.extend(one for one in given if one not in found)
    stem = name.rpartition("/")[2].removesuffix(".py")
    names = (stem,) if stem.isidentifier() else ()
    return Job(limit_s=limit_s, examples=tuple(found), tests=check_tests(tests) if tests else "", names=names)
