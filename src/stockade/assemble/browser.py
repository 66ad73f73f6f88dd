"""The browser of a run, where its network allows one."""

from stockade.assemble.tools import Place
from stockade.core.errors import UsageError
from stockade.core.ports import Toolbox
from stockade.tools.browser.toolbox import BrowserToolbox


def make(place: Place) -> Toolbox:
    """UsageError when the run has no network: a browser without one is of no use."""
    if place.policy.network.mode == "none":
        raise UsageError("the browser has no network", "--net allow=HOST,... or --net open")
    return BrowserToolbox(place.sandbox)
