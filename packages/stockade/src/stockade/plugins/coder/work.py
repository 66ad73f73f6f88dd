"""What the coder is to do, and what came of it: plain data."""

from collections.abc import Callable, Sequence

from pydantic import Field

from stockade.core.data import Data
from stockade.core.errors import UsageError
from stockade.plugins.coder.draft import Draft
from stockade.plugins.coder.program import find_examples
from stockade.plugins.coder.report import Job, Verdict, check_tests

MAX_ATTEMPTS = 200


class Plan(Data):
    """How long it goes on: after `repairs` of a program, or when they change nothing, it begins anew, up to
    `fresh_starts` times; at most `rounds` in all (None: what follows from those two), each with `candidates`.

    `rewrite`: a program that gives wrong values is not shown to the model again; the values that must come are.
    """

    repairs: int = Field(default=3, ge=0, le=MAX_ATTEMPTS)
    fresh_starts: int = Field(default=1, ge=0, le=MAX_ATTEMPTS)
    candidates: int = Field(default=1, ge=1, le=16)
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
    """The few words that help (plugins/coder/report.py)."""
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


__all__ = ["Attempt", "Draft", "Explain", "Job", "Plan", "Result", "Verdict", "best", "by_error_handler", "make_job"]
