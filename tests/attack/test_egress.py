"""Attacks on the way out, from inside a real sandbox: none gets through, and each does where the proxy believes all."""

import gc
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import pytest

from stockade_sandbox.egress.proxy import Bounds
from tests.attack.egress_scene import SECRET, Servers, box, make_egress, servers, weaken
from tests.support.backends import BACKENDS, ready

pytestmark = pytest.mark.anyio
QUICK = Bounds(head_s=1.0, connect_s=2.0, idle_s=5.0, linger_s=0.2)


@dataclass(frozen=True)
class Attempt:
    """Through when the secret is printed, or the servers note `mark`."""

    name: str
    code: str
    mark: str = ""


def _spelled(name: str, host: str) -> list[Attempt]:
    quoted = repr(host)
    return [
        Attempt(f"{name}, plain", f"raw(get({quoted}, EVIL))"),
        Attempt(f"{name}, tunnel", f"raw(tunnel({quoted}, EVIL), hello('good.test'))"),
    ]


NAMES = [
    attempt
    for name, host in {
        "a name that is not on the list": "evil.test",
        "a name below one that is": "x.good.test",
        "a name that begins like one": "good.test.evil.test",
        "a name that ends like one": "evilgood.test",
        "loopback": "127.0.0.1",
        "loopback as a number": "2130706433",
        "loopback in hex": "0x7f000001",
        "loopback in octal": "0177.0.0.1",
        "loopback, short": "127.1",
        "loopback of IPv6": "[::1]",
        "loopback, mapped": "[::ffff:127.0.0.1]",
        "localhost": "localhost",
        "a user name": "good.test@evil.test",
        "a user name with a port": "good.test:80@evil.test",
        "a NUL": "good.test\x00.evil.test",
        "a percent sign": "good.test%00.evil.test",
        "a name with a private address": "private.test",
        "a name in 10/8": "ten.test",
        "a name of the metadata service": "metadata.test",
        "a name behind NAT64": "nat64.test",
        "a name behind 6to4": "six.test",
        "a mapped name": "mapped.test",
        "a multicast name": "multicast.test",
        "a local IPv6 name": "ula.test",
        "another port of a good name": "good.test",
    }.items()
    for attempt in _spelled(name, host)
]
TRICKS = [
    Attempt("a name that changes its address", "raw(get('rebind.test', EVIL)); raw(get('rebind.test', EVIL))"),
    Attempt("another Host header", "raw(get('good.test', GOOD, 'evil.test'))"),
    Attempt(
        "a second request on the connection",
        "raw(get('good.test', GOOD).replace('Connection: close', 'A: b') + get('evil.test', EVIL))",
    ),
    Attempt(
        "length and chunks",
        "inner = 'GET /smuggled HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n'\n"
        "body = '0\\r\\n\\r\\n' + inner\n"
        "raw(get('good.test', GOOD).replace('Connection: close', f'Content-Length: {len(body)}\\r\\n"
        "Transfer-Encoding: chunked') + body)",
        mark="smuggled",
    ),
    Attempt("another name in TLS", "raw(tunnel('good.test', GOOD), hello('evil.test'))", mark="not http"),
    Attempt("no name in TLS", "raw(tunnel('good.test', GOOD), hello(None))", mark="not http"),
    Attempt("plain text in a tunnel", "raw(tunnel('good.test', GOOD), 'EHLO x\\r\\n')", mark="not http"),
    Attempt(
        "plain HTTP in a tunnel",
        "raw(tunnel('good.test', GOOD), 'GET /smuggled HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')",
        mark="smuggled",
    ),
    Attempt("SSH in a tunnel", "raw(tunnel('good.test', GOOD), 'SSH-2.0-x\\r\\n')", mark="not http"),
]
ATTEMPTS = [*NAMES, *TRICKS]


@pytest.fixture
def scene() -> Iterator[Servers]:
    with servers() as found:
        yield found


def through(attempt: Attempt, said: str, found: Servers) -> bool:
    assert "HTTP/1." in said or said.strip() == "", f"it was not even tried: {said}"
    return attempt.mark in found.marks if attempt.mark else SECRET in said


@pytest.fixture(params=BACKENDS[:4])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    ready(request.param, monkeypatch)
    return str(request.param)


async def test_the_proxy_holds_every_attempt(scene: Servers, tmp_path: Path, backend: str) -> None:
    async with box(scene, tmp_path, make_egress(QUICK), backend) as made:
        for attempt in ATTEMPTS:
            scene.marks.clear()
            said = await made.python(attempt.code)
            assert "stockade: " in said or "\x15\x03\x01" in said, f"{attempt.name}: {said}"
            assert not scene.marks, attempt.name
            assert not through(attempt, said, scene), f"{attempt.name}: {said}"
            assert made.events[-1].verdict == "refused" or "cannot connect" in made.events[-1].reason, attempt.name
        assert "good" in await made.python("raw(get('good.test', GOOD))")


async def test_each_attempt_gets_through_a_proxy_that_believes_all(
    scene: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []
    async with box(scene, tmp_path, weaken(monkeypatch)) as made:
        for attempt in ATTEMPTS:
            scene.marks.clear()
            if not through(attempt, await made.python(attempt.code), scene):
                held.append(attempt.name)
    assert held == []


def _address() -> str:
    """This machine's, as others see it; a connection to it stays inside the machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


DIRECT = {
    "TCP to the host's loopback": "s = socket.create_connection(('127.0.0.1', PORT), 2); print(s.recv(99))",
    "TCP to the host's address": "s = socket.create_connection((ADDRESS, PORT), 2); print(s.recv(99))",
    "UDP": "s = socket.socket(2, 2); s.settimeout(2); s.sendto(b'x', (ADDRESS, PORT)); print(s.recv(99))",
    "DNS": "s = socket.socket(2, 2); s.settimeout(2); s.connect((ADDRESS, PORT)); s.send(b'x'); print(s.recv(99))",
    "an echo request": "s = socket.socket(2, 3, 1); s.settimeout(2)\n"
    "s.sendto(b'\\x08\\0\\xf7\\xfd\\0\\1\\0\\1', (ADDRESS, 0)); s.recv(99); print('SECRET')",
    "a socket to the hypervisor": "socket.socket(40, 1); print('SECRET')",
    "packets": "socket.socket(17, 3, 0x300); print('SECRET')",
    "raw IPv6": "socket.socket(10, 3, 58); print('SECRET')",
    "IP with a header of one's own": "socket.socket(2, 3, 255); print('SECRET')",
    "TCP over several paths": "socket.socket(2, 1, 262); print('SECRET')",
    "another netlink": "socket.socket(16, 3, 16); print('SECRET')",
    "a new network namespace": "import ctypes; print('SECRET' if not ctypes.CDLL(None).unshare(1 << 30) else '')",
    "a route": "print('SECRET' if len(open('/proc/net/route').readlines()) > 1 else '')",
    "a device": "print('SECRET' if len([n for _, n in socket.if_nameindex() if n != 'lo']) else '')",
}


@pytest.fixture
def host_port() -> Iterator[int]:
    """TCP and UDP on one port of every address of this machine, that give the secret away."""
    tcp = socket.create_server(("0.0.0.0", 0))
    port = int(tcp.getsockname()[1])
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("0.0.0.0", port))

    def talk_tcp() -> None:
        while True:
            connection, peer = tcp.accept()
            with connection:
                if peer[1] == stop:
                    return
                connection.sendall(SECRET.encode())

    def talk_udp() -> None:
        while True:
            data, peer = udp.recvfrom(99)
            if data == b"stop":
                return
            udp.sendto(SECRET.encode(), peer)

    last = socket.socket()
    last.bind(("127.0.0.1", 0))
    stop = last.getsockname()[1]
    threads = [threading.Thread(target=talk) for talk in (talk_tcp, talk_udp)]
    for thread in threads:
        thread.start()
    yield port
    last.connect(("127.0.0.1", port))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"stop", ("127.0.0.1", port))
    for thread in threads:
        thread.join(10)
    for one in (last, tcp, udp):
        one.close()


@pytest.mark.root
async def test_there_is_no_other_way_out(scene: Servers, host_port: int, tmp_path: Path, backend: str) -> None:
    async with box(scene, tmp_path, make_egress(QUICK), backend) as made:
        for name, body in DIRECT.items():
            code = f"import socket\nADDRESS, PORT = {_address()!r}, {host_port}\n{body}".replace("SECRET", SECRET)
            free = await anyio.run_process([sys.executable, "-c", code], check=False)
            assert SECRET.encode() in free.stdout, f"{name} does not work at all: {free.stderr!r}"
            assert SECRET not in await made.python(code), name
    assert made.events == []


async def test_a_sandbox_only_has_its_own_proxy(scene: Servers, tmp_path: Path) -> None:
    ask = "raw(get('good.test', GOOD))"
    with servers() as other:
        async with (
            box(scene, tmp_path / "a", make_egress(QUICK)) as one,
            box(other, tmp_path / "b", make_egress(QUICK)),
        ):
            async with box(other, tmp_path / "c", make_egress(QUICK)) as two:
                assert "200 OK" in await one.python(ask)
                assert "200 OK" in await two.python(ask)
                assert "403 stockade" in await two.python(ask.replace("GOOD", str(scene.good)))


FLOOD = """
held, count = [], 0
end = time.time() + 20
while time.time() < end and len(held) < 1000:
    s = socket.socket(); s.setblocking(False)
    try:
        s.connect(("127.0.0.1", 3128))
    except BlockingIOError:
        pass
    except OSError:
        time.sleep(0.01)
    held.append(s)
    time.sleep(0.0005)
time.sleep(0.5)
"""


async def _most_descriptors(most: list[int]) -> None:
    while True:
        most[0] = max(most[0], len(os.listdir("/proc/self/fd")))
        await anyio.sleep(0.05)  # a sample, nothing is waited for


async def test_thousands_of_connections(scene: Servers, tmp_path: Path) -> None:
    before, most = len(os.listdir("/proc/self/fd")), [0]
    async with box(scene, tmp_path, make_egress(QUICK)) as made, anyio.create_task_group() as group:
        group.start_soon(_most_descriptors, most)
        await made.python(FLOOD)
        assert "200 OK" in await made.python("raw(get('good.test', GOOD), wait=30)")
        group.cancel_scope.cancel()
    assert most[0] - before < 100


async def test_the_flood_is_one_where_everything_is_accepted() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        code = "import socket, time" + FLOOD.replace("3128", str(listener.getsockname()[1])) + "held[0].close()"
        accepted: list[socket.socket] = []
        async with anyio.create_task_group() as group:
            group.start_soon(partial(anyio.run_process, [sys.executable, "-c", code]))
            with anyio.fail_after(30):
                listener.setblocking(False)
                while len(accepted) < 500:
                    await anyio.wait_readable(listener)
                    accepted.append(listener.accept()[0])
            group.cancel_scope.cancel()
        for one in accepted:
            one.close()


GIANT = "raw('GET http://good.test/ HTTP/1.1\\r\\nA: ' + 'a' * 50_000_000)"
SLOW = """
s = socket.create_connection(("127.0.0.1", 3128)); s.settimeout(8)
try:
    for _ in range(60):
        s.sendall(b"G")
        time.sleep(0.1)
    print("still open")
except OSError:
    print("closed")
"""


@pytest.mark.parametrize("weak", [False, True])
async def test_a_slow_head(scene: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, weak: bool) -> None:
    make = weaken(monkeypatch) if weak else make_egress(QUICK)
    async with box(scene, tmp_path, make) as made:
        assert ("still open" if weak else "closed") in await made.python(SLOW)


async def test_a_giant_head_is_cut_early(scene: Servers, tmp_path: Path) -> None:
    async with box(scene, tmp_path, make_egress(QUICK)) as made:
        await made.python(GIANT)
        assert made.events[0].status == 431
        assert "200 OK" in await made.python("raw(get('good.test', GOOD))")


HOLD = """import os, socket, time
held = [socket.create_connection(("127.0.0.1", 3128)) for _ in range(20)]
for one in held[10:]:
    one.sendall(b"PUT http://good.test:%s/ HTTP/1.1\\r\\nHost: good.test:%s\\r\\nContent-Length: 9\\r\\n\\r\\n" % (
        (os.environb[b"GOOD"],) * 2))
time.sleep(60)
"""


def _open_here() -> set[str]:
    """What this process holds open, each by what it is (`socket:[1234]`): numbers of descriptors are used again."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one of this very listing
            found.add(os.readlink(f"/proc/self/fd/{number}"))
    return found


async def test_nothing_is_left(scene: Servers, tmp_path: Path) -> None:
    gc.collect()  # what an earlier test left is closed now, not meanwhile
    before = _open_here()
    async with box(scene, tmp_path, make_egress(QUICK)) as made:
        await made.sandbox.run(f"/usr/bin/python3 -c '{HOLD}' >/dev/null 2>&1 &")
        with anyio.fail_after(30):
            while len(_open_here() - before) < 20:  # noqa: ASYNC110  # ten on the way to the server, and their other ends there
                await anyio.sleep(0.05)
    with anyio.fail_after(30):
        while _open_here() - before:  # noqa: ASYNC110  # a server's thread may still be closing its end
            await anyio.sleep(0.05)
