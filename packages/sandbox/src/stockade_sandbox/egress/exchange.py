"""A request while it is served: what goes on record of it, and what is asked of whom."""

from dataclasses import dataclass

from stockade_sandbox.egress import http
from stockade_sandbox.egress.relay import Meter
from stockade_sandbox.egress.rules import Refused, Target
from stockade_sandbox.egress.tls import UNRECOGNIZED_NAME, NotTls
from stockade_sandbox.egress.upstream import Proxy

HTTP_PORT, HTTPS_PORT = 80, 443
DIRECT = "TCP"
"""The method on record of who knows of no proxy."""


@dataclass
class Entry:
    """A request as it will be on record."""

    method: str = "?"
    host: str = ""
    port: int = 0
    allowed: bool = False
    status: int = 0
    reason: str = ""
    credential: str = ""
    allow: str = ""
    is_carried: bool = False
    """It only carried requests that stand on record themselves."""

    def refuse(self, refused: Refused) -> bytes:
        """What to say to the client, in the language it speaks at this point; nothing in the middle of an answer.

        A server that failed was allowed all the same.
        """
        begun, in_tunnel = self.status != 0, self.status != 0 and self.method == "CONNECT"
        self.reason, self.status, self.allow = refused.reason, refused.status, refused.allow
        self.allowed = self.allowed and refused.status >= 500
        if self.method == DIRECT:
            return UNRECOGNIZED_NAME if self.port == HTTPS_PORT else b""
        if in_tunnel and not isinstance(refused, NotTls):
            return UNRECOGNIZED_NAME
        return http.refusal(refused) if in_tunnel or not begun else b""


@dataclass(frozen=True)
class Exchange:
    """A request on its way. `secrets` are hidden in what comes back; `port` is the one that its scheme implies; `proxy`
    the upstream one that gets it as it is.
    """

    request: http.Request
    target: Target
    path: str
    framing: http.Framing
    entry: Entry
    meter: Meter
    secrets: tuple[bytes, ...] = ()
    port: int = 80
    upgrade: bool = False
    proxy: Proxy | None = None
