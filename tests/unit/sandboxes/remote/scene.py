"""A server over HTTP in the same event loop, and a way to it that can be cut, held and chopped into pieces."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketAttribute

from stockade_sandbox.backends.remote.allowed import Allowed
from stockade_sandbox.backends.remote.endpoint import Address
from stockade_sandbox.server.alone import serve
from stockade_sandbox.server.app import App, owners
from stockade_sandbox.server.listening import listen
from stockade_sandbox.server.sessions import Sessions
from tests.unit.sandboxes.remote.helpers import Boxes, Way

TOKEN = "both-sides-know-these-words-and-nobody-else-does"
OTHER_TOKEN = "somebody-else-who-may-use-the-same-server-has-this"


class Scene:
    """A server and a way to it. `tokens` may be changed."""

    def __init__(self, boxes: Boxes, server: Sessions, address: Address, way: Way, near: Address) -> None:
        self.boxes, self.server, self.address, self.way, self.near = boxes, server, address, way, near
        self.said: list[str] = []
        self.tokens = [TOKEN.encode(), OTHER_TOKEN.encode()]

    @property
    def url(self) -> str:
        return f"http://{self.near}"


@asynccontextmanager
async def scene(allowed: Allowed | None = None, keep_s: float = 30.0) -> AsyncIterator[Scene]:
    boxes, said = Boxes(), list[str]()
    server = Sessions(allowed or Allowed(), boxes.opener, keep_s, said.append)
    at = listen("127.0.0.1", 0)
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as near,
        anyio.create_task_group() as group,
    ):
        address = Address(host="127.0.0.1", port=at.getsockname()[1])
        way = Way(address)
        here = Address(host="127.0.0.1", port=int(near.extra(SocketAttribute.local_port)))
        made = Scene(boxes, server, address, way, here)
        made.said = said
        app = App(server, lambda text: owners(made.tokens)(text))
        ready = anyio.Event()
        group.start_soon(serve, app, server, at, None, ready.set)
        group.start_soon(near.serve, way.serve)
        await ready.wait()
        yield made
        await way.cut()
        group.cancel_scope.cancel()
