"""The network by name, as every backend must have it: one way out, whose rules and record are the same everywhere."""

import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

import anyio
import pytest

from stockade_sandbox.conformance.bench import Bench, output_of
from stockade_sandbox.errors import SandboxDied
from stockade_sandbox.policy import Network, Policy
from stockade_sandbox.results import NetworkRequest

SLOW = "/slow"
_UNAWARE = """
import socket, sys
def say(host, port, words):
    try:
        with socket.create_connection((host, port), 20) as s:
            s.sendall(words); s.shutdown(socket.SHUT_WR)
            print(b"".join(iter(lambda: s.recv(4096), b"")).decode("latin-1").splitlines()[-1:])
    except OSError as error:
        print(type(error).__name__)
port = int(sys.argv[1])
say("good.test", port, b"")
say("good.test", port, b"\\0anything")
say("good.test", port, b"GET / HTTP/1.1\\r\\nHost: good.test:%d\\r\\nConnection: close\\r\\n\\r\\n" % port)
say("good.test", port, b"GET / HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n")
say("good.test", port + 1, b"")
say("evil.test", port, b"")
say("192.0.2.1", port, b"")
say("localhost", port, b"")
"""
"""A program that knows of no proxy."""
_BODY = 1_000_003


class _Site(http.server.ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked, self.over = threading.Event(), threading.Event()


class _Handler(http.server.BaseHTTPRequestHandler):
    """A line to every GET, their body to every POST; an answer that begins and does not end for SLOW."""

    protocol_version = "HTTP/1.1"
    server: _Site

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def _answer(self, body: bytes, length: int) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._answer(b"hello\n", 1000 if self.path == SLOW else 6)
        if self.path == SLOW:
            self.server.asked.set()
            self.server.over.wait()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(body, len(body))


@contextmanager
def site() -> Iterator[_Site]:
    """A server on loopback while the context lasts."""
    with _Site() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()


@contextmanager
def talker() -> Iterator[int]:
    """The port of a server that says what it heard, and hello to HTTP, while the context lasts."""

    def serve() -> None:
        while not over.is_set():
            with listener.accept()[0] as client, suppress(OSError):
                heard = b""
                while piece := client.recv(4096):
                    heard += piece
                    if b"\r\n\r\n" in heard:
                        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
                        break
                else:
                    client.sendall(b"heard " + heard)

    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        port = int(listener.getsockname()[1])
        try:
            yield port
        finally:
            over.set()
            socket.create_connection(("127.0.0.1", port)).close()
            thread.join()


def _allowing(server: _Site) -> Policy:
    return Policy(network=Network(mode="allow", hosts=(f"good.test:{server.server_port}",)))


class NetworkConformance:
    """`--net`."""

    pytestmark = pytest.mark.anyio

    async def test_a_name_on_the_list_and_no_other(self, bench: Bench) -> None:
        events: list[NetworkRequest] = []
        with site() as server:
            port = server.server_port
            async with bench.make(_allowing(server), events.append) as box:
                assert any(f"good.test:{port}" in line for line in box.guarantees)
                assert await output_of(box, f"curl -sS http://good.test:{port}/") == "hello\n"
                for url in (f"http://evil.test:{port}/", f"http://127.0.0.1:{port}/"):
                    assert "stockade: " in await output_of(box, f"curl -sS --noproxy '' {url}")
        assert [(event.verdict, event.host, event.method, event.status) for event in events] == [
            ("allowed", "good.test", "GET", 200),
            ("refused", "evil.test", "GET", 403),
            ("refused", "127.0.0.1", "GET", 403),
        ]
        assert events[0].port == port
        assert events[0].bytes_down > 6 < events[0].bytes_up
        assert (events[1].bytes_up, events[1].bytes_down) == (0, 0)

    @pytest.mark.parametrize("mode", ["allow", "open"])
    async def test_the_proxy_is_the_only_way_out(self, bench: Bench, mode: Literal["allow", "open"]) -> None:
        with site() as server:
            network = Network(mode=mode, hosts=("good.test",) if mode == "allow" else ())
            async with bench.make(Policy(network=network)) as box:
                assert (await box.run(f"exec 3<>/dev/tcp/127.0.0.1/{server.server_port}")).exit_code != 0
                assert await output_of(box, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '") == "lo\n"
                assert await output_of(box, "tail -n +2 /proc/net/route") == ""

    async def test_a_service_of_the_host_is_reached_by_its_one_name(self, bench: Bench) -> None:
        events: list[NetworkRequest] = []
        with site() as server, site() as other:
            policy = Policy(network=Network(mode="allow", hosts=(f"localhost:{server.server_port}", "10.0.0.0/8")))
            async with bench.make(policy, events.append) as box:
                ask = "curl -sS --noproxy '' http://"
                assert await output_of(box, f"{ask}localhost:{server.server_port}/") == "hello\n"
                for host in (f"localhost:{other.server_port}", f"127.0.0.1:{server.server_port}", "11.0.0.1", "a.test"):
                    assert "stockade: " in await output_of(box, f"{ask}{host}/")
        assert [event.verdict for event in events] == ["allowed", *["refused"] * 4]

    async def test_programs_that_know_of_no_proxy_reach_what_is_allowed_and_learn_at_once_what_is_not(
        self, bench: Bench
    ) -> None:
        events: list[NetworkRequest] = []
        with talker() as port:
            policy = Policy(network=Network(mode="allow", hosts=(f"good.test:{port}",)))
            async with bench.make(policy, events.append) as box:
                await box.exec(["/bin/sh", "-c", "cat > /tmp/unaware.py"], _UNAWARE.encode())
                said = await output_of(box, f"env -u http_proxy python3 /tmp/unaware.py {port}")
                assert said.splitlines() == [  # each line as Python shows it
                    "['heard ']", "['heard \\x00anything']", "['hello']",
                    f"['stockade: the Host header says evil.test, the request good.test:{port}']",
                    "ConnectionRefusedError", "gaierror", "OSError", "[]",
                ]  # fmt: skip
        found = [(event.method, event.host, event.port, event.verdict) for event in events]
        assert found == [
            ("TCP", "good.test", port, "allowed"), ("TCP", "good.test", port, "allowed"),
            ("GET", "good.test", port, "allowed"), ("GET", "good.test", 0, "refused"),
            ("DNS", "evil.test", 0, "refused"),
        ]  # fmt: skip

    async def test_transfers_beside_each_other_and_beside_commands(self, bench: Bench) -> None:
        events: list[NetworkRequest] = []
        with site() as server:
            url = f"http://good.test:{server.server_port}/"
            one = f"curl -sS --data-binary @/tmp/b {url} | cmp - /tmp/b && echo same"
            async with bench.make(_allowing(server), events.append) as box:
                await box.run(f"head -c {_BODY} /dev/urandom > /tmp/b; ({one}) > /tmp/before 2>&1 &")
                both = f"for i in 1 2 3 4 5 6; do ({one}) > /tmp/$i & done; head -c 3000000 /dev/zero; wait"
                assert (await box.run(both, 60)).exit_code == 0
                assert await output_of(box, "cat /tmp/before /tmp/[1-6]") == "same\n" * 7
        assert [event.verdict for event in events] == ["allowed"] * 7
        assert all(min(event.bytes_up, event.bytes_down) > _BODY for event in events)

    async def test_a_death_amid_a_transfer_leaves_nothing(self, bench: Bench) -> None:
        events: list[NetworkRequest] = []
        before = bench.traces()
        with site() as server:
            async with bench.make(_allowing(server), events.append) as box:
                await box.run(f"curl -sSN http://good.test:{server.server_port}{SLOW} >/dev/null 2>&1 &")
                assert await anyio.to_thread.run_sync(server.asked.wait, 30)
                bench.kill(box)
                with pytest.raises(SandboxDied), anyio.fail_after(30):
                    await box.run("sleep 20; echo")
        assert not bench.traces() - before
        assert [(event.verdict, event.host, event.status) for event in events] == [("allowed", "good.test", 200)]
