"""A network between a client and a server that can be cut: what is under way breaks, or is heard no more."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal


class Network:
    """Forwards what comes to `port` to `to` on loopback; `cut("refused")` closes all, `cut("silent")` keeps it back."""

    def __init__(self, to: int) -> None:
        self._to, self._ways = to, list[socket.socket]()
        self._open = threading.Event()
        self._refuses = False
        self._open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, how: Literal["refused", "silent"]) -> None:
        self._open.clear()
        self._refuses = how == "refused"
        if self._refuses:
            self._end()

    def mend(self) -> None:
        """What was kept back goes on; a client that had given up comes again."""
        self._refuses = False
        self._open.set()

    def close(self) -> None:
        self.mend()
        self._listener.close()
        self._end()

    def _end(self) -> None:
        while self._ways:
            way = self._ways.pop()
            with suppress(OSError):
                way.shutdown(socket.SHUT_RDWR)
            way.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._refuses:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._to))
                self._ways += [client, server]
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._open.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def network(to: int) -> Iterator[Network]:
    made = Network(to)
    try:
        yield made
    finally:
        made.close()
