"""What attacks on the egress proxy go for: servers on the host's loopback, behind names that only the proxy knows."""

import re
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from stockade.core.ports import Sandbox
from stockade_sandbox.backends.agent_sandbox import AgentSandbox
from stockade_sandbox.egress import http, proxy
from stockade_sandbox.egress.inside import OnRequest
from stockade_sandbox.egress.proxy import Bounds, Egress
from stockade_sandbox.egress.relay import End
from stockade_sandbox.egress.rules import Address, Rules, Target
from stockade_sandbox.policy import Limits, Network, Policy
from stockade_sandbox.results import NetworkRequest
from tests.support.backends import sandbox_of

SECRET = "s3cret-of-the-host"
_CHUNKED = re.compile(rb"transfer-encoding\s*:\s*(?:[a-z]*,\s*)?chunked", re.IGNORECASE)
_LENGTH = re.compile(rb"content-length:\s*\+?(\d+)", re.IGNORECASE)
NAMED = "10.20.0.7"
"""An address of a block that is on the list; `good` answers there."""

HELPERS = r"""
import os, socket, sys, time, ssl
GOOD, EVIL = int(os.environ["GOOD"]), int(os.environ["EVIL"])
def raw(*pieces, wait=3):
    s = socket.create_connection(("127.0.0.1", 3128), 5)
    s.settimeout(wait)
    got = b""
    try:
        for piece in pieces:
            s.sendall(piece.encode("latin-1") if isinstance(piece, str) else piece)
            if len(pieces) > 1:
                got += s.recv(65536)
        while data := s.recv(65536):
            got += data
    except (OSError, TimeoutError):
        pass
    s.close()
    print(got.decode("latin-1"))
    return got
def hello(name):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
def get(host, port, header=None, path="/"):
    header = f"{host}:{port}" if header is None else header
    return f"GET http://{host}:{port}{path} HTTP/1.1\r\nHost: {header}\r\nConnection: close\r\n\r\n"
def tunnel(host, port):
    return f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
"""


@dataclass
class Servers:
    """`good` may be reached, `evil` not. Both answer whatever is said, and note in `marks` what reached them."""

    good: int = 0
    evil: int = 0
    marks: set[str] = field(default_factory=set)

    def answer(self, port: int, connection: socket.socket) -> None:
        """A server as there are many: chunks go before lengths, one connection may carry several requests."""
        with connection:
            connection.settimeout(5)
            data = b""
            try:
                while piece := connection.recv(65536):
                    data += piece
                    if port == self.evil or b"HTTP/1." not in data:
                        self.marks.add("evil" if port == self.evil else "not http")
                        connection.sendall(_reply(SECRET))
                        return
                    data = self._requests(data, connection)
            except OSError:
                return

    def _requests(self, data: bytes, connection: socket.socket) -> bytes:
        """Answers the whole requests in `data`; the rest."""
        while b"\r\n\r\n" in data:
            head, _, rest = data.partition(b"\r\n\r\n")
            length = _LENGTH.search(head)
            if _CHUNKED.search(head):
                _, end, rest = rest.partition(b"0\r\n\r\n")
                if not end:
                    return data
            elif length and len(rest) < int(length[1]):
                return data
            elif length:
                rest = rest[int(length[1]) :]
            smuggled, other = b"/smuggled" in head.split(b"\n")[0], b"evil.test" in head
            if smuggled or other:
                self.marks.add("smuggled" if smuggled else "other host")
            if b"\nupgrade:" in head.lower():
                self.marks.add("upgrade")
            connection.sendall(_reply(SECRET if smuggled or other else "good"))
            data = rest
        return data


def _reply(text: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


def _serve(stack: ExitStack, handle: Callable[[int, socket.socket], None]) -> int:
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    port = int(listener.getsockname()[1])

    def loop() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            if stopping.is_set():
                connection.close()
                return
            worker = threading.Thread(target=handle, args=(port, connection))
            workers.append(worker)
            worker.start()

    stopping = threading.Event()
    workers: list[threading.Thread] = []
    thread = threading.Thread(target=loop)
    thread.start()

    def stop() -> None:
        stopping.set()
        socket.create_connection(("127.0.0.1", port)).close()
        for one in [thread, *workers]:
            one.join(10)
        listener.close()

    stack.callback(stop)
    return port


@contextmanager
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        found = Servers()
        found.good = _serve(stack, found.answer)
        found.evil = _serve(stack, found.answer)
        yield found


ADDRESSES = {
    "good.test": "127.0.0.1", "evil.test": "127.0.0.1", "private.test": "127.0.0.1", "ten.test": "10.0.0.1",
    "metadata.test": "169.254.169.254", "nat64.test": "64:ff9b::7f00:1", "six.test": "2002:7f00:1::",
    "mapped.test": "::ffff:127.0.0.1", "multicast.test": "224.0.0.1", "ula.test": "fd00::1",
    "a.wild.test": "127.0.0.1", NAMED: "127.0.0.1",
}  # fmt: skip


def make_egress(bounds: Bounds) -> Callable[[Policy, OnRequest], Egress]:
    """The real proxy, which finds the names above; one may have a private address, one's changes."""

    def make(policy: Policy, on_request: OnRequest) -> Egress:
        asked: list[str] = []

        async def resolver(host: str, port: int) -> Sequence[str]:
            if host == "rebind.test":
                asked.append(host)
                return ["127.0.0.3" if len(asked) == 1 else "127.0.0.1"]
            if host not in ADDRESSES:
                raise OSError(-2, "Name or service not known")
            return [ADDRESSES[host]]

        def allow(host: str, address: Address) -> bool:
            if host in ("good.test", "a.wild.test", NAMED):
                return str(address) == "127.0.0.1"
            return (host, str(address)) == ("rebind.test", "127.0.0.3")

        return replace(Egress.of(policy, on_request), resolver=resolver, allow_private=allow, bounds=bounds)

    return make


def weaken(monkeypatch: pytest.MonkeyPatch) -> Callable[[Policy, OnRequest], Egress]:
    """A proxy that believes everything: any name is 127.0.0.1, nothing is compared, nothing is rewritten."""

    def authority(text: str, default_port: int | None = None) -> Target:
        name, _, port = text.rpartition("@")[2].rpartition(":")
        return Target(name or text, int(port) if port.isdigit() else default_port or 443)

    def head(request: http.Request, target: Target, path: str, framing: http.Framing, **_: object) -> bytes:
        return http.head(f"{request.method} {path} HTTP/1.1", request.headers)

    def framing(request: http.Request) -> http.Framing:
        lengths = http.values(request.headers, "content-length")
        return int(lengths[-1]) if lengths else 0

    async def hello(_egress: Egress, client: End, _target: Target, _entry: object) -> bytes:
        return await client.reader.receive()

    for module in (http, proxy):
        monkeypatch.setattr(module, "parse_authority", authority)

    def request(data: bytes) -> http.Request:
        first, *lines = data.removesuffix(http.END).decode("latin-1").split("\r\n")
        method, target, version = first.split(" ", 2)
        pairs = [line.split(": ", 1) for line in lines]
        return http.Request(method, target, version, tuple((name, value) for name, value in pairs))

    def target_and_path(target: str) -> tuple[Target, str]:
        name, slash, path = target.removeprefix("http://").partition("/")
        return authority(name, 80), slash + path

    monkeypatch.setattr(http, "parse_request", request)
    monkeypatch.setattr(http, "absolute_form", target_and_path)
    monkeypatch.setattr(http, "check_host", lambda *_: None)
    monkeypatch.setattr(http, "request_head", head)
    monkeypatch.setattr(http, "request_framing", framing)
    monkeypatch.setattr(Egress, "_hello", hello)
    monkeypatch.setattr(Rules, "judge", lambda *_: None)

    async def anywhere(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    def make(policy: Policy, on_request: OnRequest) -> Egress:
        bounds = Bounds(connections=100_000, head_s=600, idle_s=600)
        return Egress(Rules(everything=True), on_request, bounds, anywhere, lambda *_: True)

    return make


@dataclass
class Box:
    sandbox: Sandbox
    servers: Servers
    events: list[NetworkRequest] = field(default_factory=list)

    root: bool = False

    async def python(self, code: str, timeout_s: float = 40) -> str:
        """What a script that knows HELPERS prints."""
        argv, script = ["/usr/bin/python3", "-"], (HELPERS + code).encode()
        if self.root:
            assert isinstance(self.sandbox, AgentSandbox)
            done = await self.sandbox.exec(argv, script, timeout_s, root=True)
        else:
            done = await self.sandbox.exec(argv, script, timeout_s)
        return (done.stdout + done.stderr).decode(errors="replace")


@asynccontextmanager
async def box(
    found: Servers,
    base: Path,
    make: Callable[[Policy, OnRequest], Egress],
    backend: str = "bubblewrap",
    *,
    hosts: Sequence[str] = (),
    root: bool = False,
) -> AsyncIterator[Box]:
    """`hosts` beside those that every box has. `root`: scripts run as root of the sandbox."""
    others = ("good.test", "evil.test", "a.wild.test", NAMED)
    listed = [f"{name}:{found.evil}" for name in ("rebind.test", *ADDRESSES) if name not in others]
    hosts = (f"good.test:{found.good}", "good.test", *listed, *hosts)
    policy = Policy(
        network=Network(mode="allow", hosts=hosts),
        limits=Limits(open_files=2048),
        environment={"GOOD": str(found.good), "EVIL": str(found.evil)},
        root=root,
    )
    sandbox = sandbox_of(backend, policy, base, make)
    made = Box(sandbox, found, root=root)
    sandbox.on_network = made.events.append
    async with sandbox:
        yield made
