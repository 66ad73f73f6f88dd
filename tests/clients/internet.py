"""Behind the user's own proxy (HTTPS_PROXY): every host of the internet, each with a certificate of its own, and all
of them the player. So a program is wrapped as users wrap it, with the hosts, keys and addresses of its preset.
"""

from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from stockade_sandbox.egress.authority import Authority
from tests.clients.player import Player, Step


class Internet(Player):
    """`hosts` are those that there are; `certificate` is a file, for `-o ca`. `reached`: what was connected to."""

    def __init__(self, hosts: tuple[str, ...], certificate: Path, steps: Sequence[Step] = ()) -> None:
        super().__init__(steps)
        self.reached: list[str] = []
        self.certificate = certificate
        authority, internet, handler = Authority(hosts), self, self._server.RequestHandlerClass
        certificate.write_bytes(authority.certificate)

        class Proxy(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

            def do_CONNECT(self) -> None:
                host = self.path.rpartition(":")[0]
                internet.reached.append(host)
                if host not in hosts:
                    self.send_error(502)
                    return
                self.send_response(200)
                self.end_headers()
                with authority.context(host).wrap_socket(self.connection, server_side=True) as tls:
                    handler(tls, self.client_address, internet._server)
                self.close_connection = True

        self._server.RequestHandlerClass = Proxy
