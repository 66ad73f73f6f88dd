"""A proxy as companies have them: by name only, with a password, and what it does not know it refuses."""

import http.client
import select
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

USER, PASSWORD = "me", "p@ss word/0123"
IN_URL = "me:p%40ss%20word%2F0123"
AUTHORIZATION = f"Basic {b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"


@dataclass
class Upstream:
    """`asked` are the first lines of what it was asked, with a password that was right or not."""

    port: int = 0
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{IN_URL}@127.0.0.1:{self.port}"


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def place(self, authority: str) -> int | None:
        self.server.found.asked.append(self.requestline)
        if self.headers["Proxy-Authorization"] != AUTHORIZATION:
            self.send_response(407)
            self.send_header("Proxy-Authenticate", "Basic")
        elif authority not in self.server.ports:
            self.send_response(403, f"no {self.headers['Proxy-Authorization']} here")
        else:
            return self.server.ports[authority]
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None

    def do_CONNECT(self) -> None:
        self.close_connection = True
        if (port := self.place(self.path)) is None:
            return
        with socket.create_connection(("127.0.0.1", port)) as server:
            ready = select.select([server], [], [], 0.2)[0] if self.path.endswith(":22") else ()
            first = server.recv(65536) if ready else b""
            self.connection.sendall(b"HTTP/1.1 200 yes\r\n\r\n" + first)
            ends = {self.connection: server, server: self.connection}
            with suppress(OSError):
                while ends:
                    for end in select.select(list(ends), [], [])[0]:
                        data = end.recv(65536)
                        ends[end].sendall(data) if data else ends.pop(end).shutdown(socket.SHUT_WR)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if (port := self.place(url.netloc)) is None:
            return
        server = http.client.HTTPConnection("127.0.0.1", port)
        server.request("GET", url.path, headers={"Host": self.headers["Host"]})
        data = server.getresponse().read()
        self.answer(data)
        server.close()

    def do_TRACE(self) -> None:
        self.server.found.asked.append(self.requestline)
        self.answer(str(self.headers).encode())

    def answer(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class _Server(ThreadingHTTPServer):
    def __init__(self, ports: Mapping[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.daemon_threads = True
        self.ports, self.found = ports, Upstream(self.server_port)


@contextmanager
def upstream(ports: Mapping[str, int]) -> Iterator[Upstream]:
    """`ports` of this machine, by the HOST:PORT that leads there. TRACE gives the request back, password and all."""
    with _Server(ports) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.found
        finally:
            server.shutdown()
            thread.join()
