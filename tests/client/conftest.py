"""The real server in a process of its own; what lies between may be cut."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from stockade import Client
from tests.server.conftest import Stage, own, stage

__all__ = ["own", "stage"]


@pytest.fixture
def client(stage: Stage, request: pytest.FixtureRequest) -> Iterator[Client]:
    """With every scope, and a name of its own."""
    with Client(stage.url, stage.token(request.node.name)) as made:
        yield made


class Wire:
    """Between a client and the server: each connection is cut, as by a network that fails, when so many bytes came
    from the server, and some more each time, but never so many as a run has. `cuts`: how often that was.
    """

    def __init__(self, url: str, most: int) -> None:
        self._to, self._most, self.cuts = (str(urlsplit(url).hostname), urlsplit(url).port or 0), most, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with self._listener:
            while True:
                try:
                    near, _ = self._listener.accept()
                except OSError:
                    return
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        left = min(4500, self._most * (1 + self.cuts))
        with near, socket.create_connection(self._to) as far:
            up = threading.Thread(target=_up, args=(near, far))
            up.start()
            with suppress(OSError):
                while left > 0 and (data := far.recv(left)):
                    near.sendall(data)
                    left -= len(data)
            self.cuts += left <= 0
            for one in (near, far):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            up.join()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)


def _up(near: socket.socket, far: socket.socket) -> None:
    with suppress(OSError):
        while data := near.recv(65536):
            far.sendall(data)
        far.shutdown(socket.SHUT_RDWR)
