"""Ports inside that are reached from this machine, where the policy says so."""

import socket
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stockade_sandbox import Policy, Sandbox
from stockade_sandbox.errors import UsageError

PORT = 8000
ECHO = """
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
class Server(socketserver.ThreadingTCPServer):
    request_queue_size = 64
server = Server(("127.0.0.1", 8000), Echo)
print("ready", flush=True)
server.serve_forever()
"""


@pytest.fixture
def box() -> Iterator[Sandbox]:
    with Sandbox(policy=Policy(ports=(PORT,))) as box, box.start(["python3", "-c", ECHO]) as server:
        assert server.read() == b"ready\n", server.read_error()
        yield box


def echoed(near: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", near)) as one:
        one.settimeout(60)
        one.sendall(data)
        found = b""
        while len(found) < len(data):
            found += one.recv(65536)
        return found


def test_bytes_go_both_ways_for_many_at_once_and_no_longer_than_it_is_entered(box: Sandbox) -> None:
    with pytest.raises(ConnectionRefusedError):  # the sandbox's loopback is not this machine's
        socket.create_connection(("127.0.0.1", PORT))
    with box.forward(PORT) as near, ThreadPoolExecutor(20) as pool:
        data = [bytes([number]) * 50_000 for number in range(20)]
        assert list(pool.map(lambda one: echoed(near, one), data)) == data
        assert box.exec(shell="echo beside").text == "beside\n"
        with socket.create_connection(("127.0.0.1", near)) as left:
            left.sendall(b"x")
            assert left.recv(1) == b"x"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", near))
    assert box.exec(shell="echo on").text == "on\n"


def test_a_port_that_nobody_serves_is_a_connection_that_ends() -> None:
    with Sandbox(policy=Policy(ports=(PORT,))) as box, box.forward(PORT) as near:
        with socket.create_connection(("127.0.0.1", near)) as one:
            one.settimeout(60)
            assert one.recv(1) == b""


def test_http_of_one_that_is_kept() -> None:
    with Sandbox(policy=Policy(ports=(PORT,)), keep=True) as box:
        with box.start(["python3", "-u", "-m", "http.server", str(PORT), "--bind", "127.0.0.1"]) as server:
            assert server.read().startswith(b"Serving")
            box.write_file("page", "hello")
            with Sandbox.attach(box.id) as other, other.forward(PORT) as near:
                assert urllib.request.urlopen(f"http://127.0.0.1:{near}/page", timeout=60).read() == b"hello"
        box.destroy()


def test_what_the_policy_does_not_name_is_refused() -> None:
    with Sandbox(policy=Policy(ports=(PORT,))) as box:
        with pytest.raises(UsageError, match="does not let port 22"), box.forward(22):
            pass
    with Sandbox() as box, pytest.raises(UsageError, match="does not let port 8000"), box.forward(PORT):
        pass
