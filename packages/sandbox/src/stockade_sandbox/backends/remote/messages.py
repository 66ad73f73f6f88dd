"""Errors as they travel between processes and machines."""

from typing import Literal

from stockade_sandbox.errors import (
    ActionFailed,
    PolicyNotEnforceable,
    SandboxDied,
    SandboxFailed,
    StockadeError,
    UsageError,
)
from stockade_sandbox.records import Record


class Problem(Record, kw_only=True, tag_field="t", tag="problem"):
    """An error of the port."""

    kind: Literal["action", "usage", "policy", "sandbox", "died"]
    message: str
    hint: str | None = None
    rule: str = ""
    backends: tuple[str, ...] = ()


def problem(error: StockadeError) -> Problem:
    """An error as it travels."""
    if isinstance(error, PolicyNotEnforceable):
        return Problem(kind="policy", message=error.message, hint=error.hint, rule=error.rule, backends=error.backends)
    kinds: tuple[tuple[type[StockadeError], Literal["action", "usage", "died"]], ...] = (
        (ActionFailed, "action"), (UsageError, "usage"), (SandboxDied, "died"),
    )  # fmt: skip
    name: Literal["action", "usage", "died", "sandbox"]
    name = next((name for kind, name in kinds if isinstance(error, kind)), "sandbox")
    return Problem(kind=name, message=error.message, hint=error.hint)


def error_of(found: Problem) -> StockadeError:
    """The same error on this side."""
    match found.kind:
        case "action":
            return ActionFailed(found.message, found.hint)
        case "usage":
            return UsageError(found.message, found.hint)
        case "policy":
            return PolicyNotEnforceable(found.rule, found.message, found.hint, found.backends)
        case "died":
            return SandboxDied(found.message, found.hint)
        case "sandbox":
            return SandboxFailed(found.message, found.hint)
