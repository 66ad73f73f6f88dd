"""What a server says no to, where it would say yes to less."""

from stockade.core.errors import ModelUnavailable


class Refused(ModelUnavailable):
    """The server does not take this request; a plainer one it may."""


class NotSupported(Refused):
    """The server would answer without `feature`: a parameter by its name, or `system` for the role of that name."""

    def __init__(self, message: str, feature: str) -> None:
        super().__init__(message)
        self.feature = feature
