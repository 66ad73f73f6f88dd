"""The host's folders: what a bot may write, the review of it, and applying it."""

from stockade_sandbox.overlay.flags import flag
from stockade_sandbox.overlay.prepare import prepare_layer
from stockade_sandbox.overlay.review import HostSide, Review, TakenBack

__all__ = ["HostSide", "Review", "TakenBack", "flag", "prepare_layer"]
