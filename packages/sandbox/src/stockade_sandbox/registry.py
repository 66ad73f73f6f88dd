"""What is imported on use and nowhere else: backends by their names, the proxy, which few sandboxes have, and what
reviews the changes of those that have folders.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stockade_sandbox.errors import UsageError
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import Backend

if TYPE_CHECKING:
    from stockade_sandbox.egress.inside import OnRequest, Server

GROUP = "stockade_sandbox.backends"
DEFAULT = "bubblewrap"


def load(where: str) -> Any:
    """What `module:name` of this package names, imported now."""
    module, _, name = where.partition(":")
    return getattr(import_module(f"stockade_sandbox.{module}"), name)


def backend_named(name: str) -> Backend:
    """Of the entry points GROUP; of https://HOST:PORT that of another machine. UsageError when there is none of that
    name, or it needs an address.

    For the default one nobody looks through all that is installed.
    """
    if name == DEFAULT:
        default: Backend = load("backends.bubblewrap.sandbox:BACKEND")
        return default
    from importlib.metadata import entry_points  # noqa: PLC0415 (11 ms, and few need it)

    known = {point.name: point for point in entry_points(group=GROUP)}
    if not isinstance(name, str):
        raise UsageError(
            f"backend={name!r} is neither a name nor a Backend", f"choose one of {', '.join(sorted(known))}"
        )
    if "://" in name:
        of_address: Backend = known["remote"].load()(name)
        return of_address
    if name not in known:
        raise UsageError(f"there is no backend {name!r}", f"choose one of {', '.join(sorted(known))}")
    found = known[name].load()
    if not isinstance(found, Backend):
        raise UsageError(f"the backend {name!r} needs an address", "pass the Backend that it makes instead of a name")
    return found


def egress(policy: Policy, on_request: "OnRequest") -> "Server":
    """The proxy of a sandbox with a network. UsageError for a rule that is none."""
    found: Server = load("egress.proxy:Egress").of(policy, on_request)
    return found
