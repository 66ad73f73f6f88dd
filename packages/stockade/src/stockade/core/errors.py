"""Every exception of Stockade, sorted by who must act.

    StockadeError
    |-- UsageError              the user: a flag, a path, a configuration        exit status 2
    |   |-- CommandFailed         a command that they gave, with what it said
    |   |-- FolderMoved           the folder of a run is not where it was
    |   |-- LayerLost             what a run wrote is gone, or not whole
    |   |-- ChangedOnHost         somebody changed what a bot changed too            exit status 1
    |   |-- HookFailed            a hook of the run is broken
    |   `-- RequestRefused        `stockade serve` does not do what a client asked
    |       |-- NotAllowed          the token is not known, or may not do that
    |       |-- NotFound            there is none, or it is another token's
    |       |-- Conflict            not while the run is as it is
    |       `-- TooManyRequests     the token has as much under way, or asks as often, as it may
    |-- PolicyNotEnforceable    this machine cannot hold the policy                exit status 4
    |-- SandboxFailed           the sandbox or this machine broke                  exit status 4
    |   `-- SandboxDied           it was there and is gone
    |-- ModelFailed             the model cannot be asked                          exit status 5
    |   |-- ModelUnavailable      no server, no such model, wrong key, broken file
    |   |   `-- AnswerHeldBack        its provider does not answer this
    |   |-- ModelOverloaded       worth trying again: 429, 5xx, cut or stalled stream
    |   `-- ContextExceeded       the request is larger than the window
    |-- ToolsUnavailable        a tool of the bot cannot be used                   exit status 2
    |-- StoreFailed             the record cannot be written or read               exit status 4
    |   `-- RunTaken              another process drives this run
    |-- ServerFailed            `stockade serve` answered with a fault, or with nonsense  exit status 4
    |   `-- ServerUnavailable     it cannot be reached
    |-- UnreadableAnswer        goes back to the model: the answer has no action in it
    `-- ActionFailed            goes back to the model: the action could not be done

Foreign errors are mapped to these at one edge, in the adapter that met them.
"""

import difflib
import shlex
from collections.abc import Iterable

from stockade_sandbox.errors import (
    ActionFailed,
    ChangedOnHost,
    FolderMoved,
    LayerLost,
    PolicyNotEnforceable,
    SandboxDied,
    SandboxFailed,
    StockadeError,
    UsageError,
)

__all__ = ["NO_MEMORY", "ActionFailed", "AnswerHeldBack", "ChangedOnHost", "CommandFailed", "Conflict",
           "ContextExceeded", "FolderMoved", "HookFailed", "LayerLost", "ModelFailed", "ModelOverloaded",
           "ModelUnavailable", "NotAllowed", "NotFound", "PolicyNotEnforceable", "RequestRefused", "RunRemoved",
           "RunTaken", "SandboxDied", "SandboxFailed", "ServerFailed", "ServerUnavailable", "StockadeError",
           "StoreFailed", "TooManyRequests", "ToolsUnavailable", "UnreadableAnswer", "UsageError",
           "to_install"]  # fmt: skip

NO_MEMORY = "there is no memory left for Stockade itself"


def to_install(extra: str) -> str:
    """The command that installs what the optional part `extra` needs, for hints.

    It names those packages and not `stockade[...]`: that name is not ours on any index, so a stranger could own it.
    """
    from importlib import metadata  # noqa: PLC0415 (13 ms, and only an error needs it)

    requested = [text.partition(";") for text in metadata.requires("stockade") or ()]
    names = [name for name, _, when in requested if when.split() == ["extra", "==", f"'{extra}'"]]
    assert names, f"there is no extra {extra}"
    return shlex.join(["pip", "install", *names])


class CommandFailed(UsageError):
    """A command of the user's own, like one that installs a tool. `output`: the end of what it said, in lines."""

    def __init__(self, message: str, output: tuple[str, ...], hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.output = output


class RunRemoved(UsageError):
    """The user removed this run: nothing of it is kept."""


class HookFailed(UsageError):
    """A hook raised, hung or returned nonsense. `message` names it."""


class RequestRefused(UsageError):
    """A server does not do what its client asked. `status` is HTTP's."""

    def __init__(self, message: str, hint: str | None = None, status: int = 422) -> None:
        super().__init__(message, hint)
        self.status = status


class NotAllowed(RequestRefused):
    """The token is not known, or may not do that."""


class NotFound(RequestRefused):
    """There is none of that name, or it is another token's."""


class Conflict(RequestRefused):
    """It cannot be done while the run is as it is."""


class TooManyRequests(RequestRefused):
    """The token has as much under way, has spent as much, or asks as often, as it may."""


class ServerFailed(StockadeError):
    """A server answered with a fault of its own, or with what nobody understands."""

    exit_status = 4


class ServerUnavailable(ServerFailed):
    """It cannot be reached, or the connection broke and did not come back in time."""


class ModelFailed(StockadeError):
    """The model cannot be asked. `cost`: USD of what came all the same."""

    exit_status = 5
    cost = 0.0


class ModelUnavailable(ModelFailed):
    """No server, no such model, a wrong key, a broken model file."""


class AnswerHeldBack(ModelUnavailable):
    """The model or its provider does not answer this question, and would not if it was asked again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "say the task in other words, or let another model go on: --model, --fallback")


class ModelOverloaded(ModelFailed):
    """A passing fault: rate limit, 5xx, a cut or stalled stream. `retry_after_s` when the server said so."""

    def __init__(self, message: str, hint: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message, hint)
        self.retry_after_s = retry_after_s


class ContextExceeded(ModelFailed):
    """The request is larger than the model's window; both in tokens where the server told them."""

    def __init__(self, message: str, prompt_tokens: int | None = None, window: int | None = None) -> None:
        super().__init__(message, "give it less at once, or take a model with a larger window")
        self.prompt_tokens = prompt_tokens
        self.window = window


class ToolsUnavailable(StockadeError):
    """A tool that the run was to have cannot be used: it cannot be installed, started or told from another."""

    exit_status = 2


class StoreFailed(StockadeError):
    """The record cannot be written or read."""

    exit_status = 4


class RunTaken(StoreFailed):
    """Another process drives this run, or has taken it over. Nothing was written."""


class UnreadableAnswer(StockadeError):
    """The model's answer holds no valid action. `message` is written for the model."""


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """The way out for a name that there is not: the nearest one, or `otherwise` where none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]}?" if near else otherwise
