"""A SOCKS 5 proxy (RFC 1928) of the tests' own: by name only, with a user and a password (RFC 1929) or without."""

import select
import socket
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import cast


class _Handler(socketserver.StreamRequestHandler):
    rbufsize = 0

    def _exactly(self, count: int) -> bytes:
        data = self.rfile.read(count)
        assert len(data) == count
        return data

    def _text(self) -> str:
        return self._exactly(self._exactly(1)[0]).decode()

    def handle(self) -> None:
        server = cast(_Server, self.server)
        assert self._exactly(1) == b"\5"
        wanted = 2 if server.account else 0
        if wanted not in self._exactly(self._exactly(1)[0]):
            self.request.sendall(b"\5\xff")
            return
        self.request.sendall(bytes([5, wanted]))
        if wanted:
            assert self._exactly(1) == b"\1"
            right = (self._text(), self._text()) == server.account
            self.request.sendall(b"\1\0" if right else b"\1\1")
            if not right:
                return
        assert self._exactly(4) == b"\5\1\0\3"
        target = f"{self._text()}:{int.from_bytes(self._exactly(2))}"
        server.asked.append(target)
        if target not in server.ports:
            self.request.sendall(b"\5\2\0\1" + bytes(6))
            return
        with socket.create_connection(("127.0.0.1", server.ports[target])) as there:
            self.request.sendall(b"\5\0\0\3\4here\0\1")
            ends = {self.request: there, there: self.request}
            with suppress(OSError):
                while ends:
                    for end in select.select(list(ends), [], [])[0]:
                        data = end.recv(65536)
                        ends[end].sendall(data) if data else ends.pop(end).shutdown(socket.SHUT_WR)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, ports: Mapping[str, int], account: tuple[str, str] | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ports, self.account, self.asked = ports, account, list[str]()


@contextmanager
def socks(ports: Mapping[str, int], account: tuple[str, str] | None = None) -> Iterator[tuple[int, list[str]]]:
    """Its port, and what it is asked for. `ports` of this machine, by the HOST:PORT that leads there."""
    with _Server(ports, account) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1], server.asked
        finally:
            server.shutdown()
            thread.join()
