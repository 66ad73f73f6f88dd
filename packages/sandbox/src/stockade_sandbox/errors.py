"""What the sandbox raises, sorted by who must act; core/errors.py has the whole tree."""


class StockadeError(Exception):
    """Base of all. `message` is one line naming the cause; `hint` is the way out."""

    exit_status = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(StockadeError):
    """The person's mistake: they can mend it by typing something else."""

    exit_status = 2


class FolderMoved(UsageError):
    """The folder that a run began with is gone, or another one stands there."""


class LayerLost(UsageError):
    """What a run wrote is not there any more, or not all of it: nothing can be said of its changes."""


class ChangedOnHost(UsageError):
    """A file has other content on the host than a run met, and than the run made of it. Nothing was written."""

    exit_status = 1


class ReviewOutdated(UsageError):
    """What was looked at is not what there is now. Nothing was written."""

    exit_status = 1


class PolicyNotEnforceable(StockadeError):
    """The sandbox cannot hold a rule of the policy here. Raised before the model is asked anything.

    `rule` names the policy field; `backends` those that could hold it.
    """

    exit_status = 4

    def __init__(self, rule: str, message: str, hint: str | None = None, backends: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint)
        self.rule = rule
        self.backends = backends


class SandboxFailed(StockadeError):
    """The sandbox could not be made or used. Never shown to the model as command output."""

    exit_status = 4


class SandboxDied(SandboxFailed):
    """The sandbox was there and is gone."""


class ActionFailed(StockadeError):
    """An action could not be done: wrong path, no such tool. `message` is written for the model."""
