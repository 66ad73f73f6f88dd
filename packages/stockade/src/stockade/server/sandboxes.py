"""`/v1/sandboxes` within `stockade serve`: the sandbox's own routes, for this server's tokens, within its bounds."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from stockade.runtime import sandboxes
from stockade.runtime.spec import RunSpec
from stockade.server.guard import App as Asgi
from stockade.server.runs import Runs
from stockade_sandbox.backends.remote.allowed import Allowed, Root
from stockade_sandbox.policy import Policy, parse_network
from stockade_sandbox.port import OnNetwork, Sandbox
from stockade_sandbox.server.app import App
from stockade_sandbox.server.sessions import KEEP_S, OpenBox, Sessions

PATH = "/v1/sandboxes"


def opener(backend: str) -> OpenBox:
    """Sandboxes of that kind, each gone with all that belongs to it when it is left."""

    def open_box(policy: Policy, on_network: OnNetwork) -> AbstractAsyncContextManager[Sandbox]:
        return sandboxes.own_sandbox(policy, backend, on_network)

    return open_box


class Sandboxes:
    """`sessions.run` has to be running beside it. Folders are those of the server's `--folder`, and only read; the
    network is at most its own.
    """

    def __init__(self, options: RunSpec, runs: Runs) -> None:
        roots = tuple(Root(path=str(path), mode="ro") for path, _ in runs.roots.paths)
        allowed = Allowed(roots=roots, network=parse_network(options.net))
        self.sessions = Sessions(allowed, opener(options.sandbox), KEEP_S)
        self._runs, self._app = runs, App(self.sessions, self._owner).app

    def _owner(self, text: str) -> str | None:
        """A token that may begin runs may have sandboxes."""
        found = self._runs.tokens.check(text)
        return found.id if found is not None and found.may("run") else None

    def beside(self, app: Asgi) -> Asgi:
        """`app`, but for these routes."""

        async def either(scope: Any, receive: Any, send: Any) -> None:
            mine = scope["type"] == "http" and f"{scope['path']}/".startswith(f"{PATH}/")
            await (self._app if mine else app)(scope, receive, send)

        return either
