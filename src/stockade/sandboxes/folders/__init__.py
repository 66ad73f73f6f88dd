"""The host's folders: what a bot may write, the review of it, and applying it."""

from stockade.sandboxes.folders.flags import flag
from stockade.sandboxes.folders.host_side import HostSide, TakenBack
from stockade.sandboxes.folders.prepare import prepare_layer
from stockade.sandboxes.folders.review import Review

__all__ = ["HostSide", "Review", "TakenBack", "flag", "prepare_layer"]
