"""The arms: one coder each, with one part of it other than in `ours`. All have the same first answer."""

from dataclasses import dataclass, replace

from stockade.plugins.coder.work import Attempt, Explain, Plan, by_error_handler

ROUNDS = 6
"""The first answer and five repairs."""
_TRACEBACK_CHARS = 2000


def by_traceback(attempt: Attempt) -> str:
    """What Python itself says when the examples stand behind the program as asserts."""
    failed = attempt.verdict.words
    text = attempt.stderr.strip()
    if not text and attempt.code:
        line = attempt.code.count("\n") + 2
        call = failed.split("\n", 1)[-1].split(" gave ")[0]
        expected = failed.split("but it should give ")[-1].split(".\n")[0].rstrip(".")
        text = (
            f'Traceback (most recent call last):\n  File "main.py", line {line}, in <module>\n'
            f"    assert {call} == {expected}\nAssertionError"
        )
    return f"Your code had the following error:\n{(text or failed)[-_TRACEBACK_CHARS:]}"


@dataclass(frozen=True)
class Arm:
    name: str
    about: str
    plan: Plan
    explain: Explain = by_error_handler


_OURS = Plan(repairs=3, fresh_starts=1, rounds=ROUNDS)
_NO_FRESH = Plan(repairs=ROUNDS, fresh_starts=0, rounds=ROUNDS)


def _shown(plan: Plan) -> Plan:
    """Every failed program is shown to the model, with what is said about it."""
    return plan.model_copy(update={"rewrite": False})


ARMS = {
    arm.name: arm
    for arm in (
        Arm(
            "ours",
            "wrong values: the task again with the values that must come; else error handler; fresh start",
            _OURS,
        ),
        Arm("traceback", "the plain traceback, no fresh start: the baseline", _shown(_NO_FRESH), by_traceback),
        Arm("no-fresh", "ours without the fresh start", _NO_FRESH),
        Arm("no-handler", "the plain traceback, fresh start", _shown(_OURS), by_traceback),
        Arm("no-rewrite", "error handler and the program, fresh start", _shown(_OURS)),
    )
}


def shortened(arm: Arm, rounds: int) -> Arm:
    """The same arm with fewer repairs: what it asks is the same, as far as it goes."""
    return replace(arm, plan=arm.plan.model_copy(update={"rounds": rounds}))
