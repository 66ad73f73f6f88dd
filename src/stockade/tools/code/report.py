"""What the runner in the sandbox is told (Job), what it says (Report), and what that means (Verdict). Pure functions.

A program has passed only when its report says so whole: it was loaded, every check was done, none failed.
"""

import ast
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stockade.core.data import Data
from stockade.core.errors import UsageError
from stockade.tools.code import inside
from stockade.tools.code.examples import Example
from stockade.tools.code.failure import FailedCheck, checks_in_words, of_syntax, of_timeout, of_traceback
from stockade.tools.code.program import syntax_error
from stockade.tools.code.trees import statements

FILE = "main.py"
RUNNER = "runner.py"
MAX_TESTS_BYTES = 1_000_000
_MAX_PRINTED_CHARS = 300


def runner_folder() -> Path:
    """Where the runner is on this host: a folder to mount read-only."""
    return Path(inside.__file__).parent


class Job(Data):
    """The checks of a run: worked examples, and the text of a test file. Without both a program is run as a script.

    `limit_s` is wall-clock time of one program. `prelude` runs before it: what the task gives already. `names`: what
    the tests may import it by, beside `main` and `solution`.
    """

    limit_s: float = Field(default=10.0, gt=0)
    examples: tuple[Example, ...] = ()
    tests: str = ""
    prelude: str = ""
    names: tuple[str, ...] = ()

    def text(self) -> str:
        """JSON for the runner."""
        return self.model_dump_json(indent=1)

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
    those of a program that ran whole and gave other values than it should, as far as they were kept.
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
        return Verdict(passed=report.exit_code == 0, words=_of_script(code, report, stderr), **facts)
    if not (report.loaded and report.whole):
        return Verdict(passed=False, words=_of_end(code, report, stderr), **facts)
    if report.failures or report.exit_code:
        found = of_traceback(stderr, code)
        words = checks_in_words(report.failed, report.passed)
        trace = f"\n{found.words()}" if found is not None and found.line is not None else ""
        facts["wrong"] = tuple(one for one in report.failed if one.expected)
        return Verdict(passed=False, words=words + trace, **facts)
    if report.passed < max(1, len(job.examples)):
        return Verdict(passed=False, words="The checks were not done.", **facts)
    return Verdict(passed=True, **facts)


def _of_script(code: str, report: Report, stderr: str) -> str:
    return "" if report.exit_code == 0 else _of_end(code, report, stderr)


def _of_end(code: str, report: Report, stderr: str) -> str:
    """Of a program that did not come to its end."""
    found = of_traceback(stderr, code)
    if found is not None:
        return found.words()
    said = f" It wrote: {stderr.strip()[-_MAX_PRINTED_CHARS:]}" if stderr.strip() else ""
    return f"The program ended by itself with status {report.exit_code}, before it was done.{said}"


__all__ = ["FILE", "RUNNER", "Job", "Report", "Verdict", "check_tests", "judge", "read_report", "runner_folder"]
