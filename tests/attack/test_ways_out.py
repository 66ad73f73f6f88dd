"""Attacks on what `--net` promises beside the proxy's own: every spelling of an address and of a name, heads that two
programs read differently, the names inside, and what is neither TCP nor named. Each is shown to work outside first.
"""

import json
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from stockade_sandbox.egress.inside import OnRequest
from stockade_sandbox.egress.proxy import Bounds, Egress
from stockade_sandbox.policy import Policy
from tests.attack.egress_scene import NAMED, SECRET, Box, Servers, box, make_egress, servers, weaken

pytestmark = pytest.mark.anyio
QUICK = Bounds(head_s=1.0, connect_s=2.0, idle_s=5.0, linger_s=0.2)
WHO = pytest.mark.parametrize("root", [False, True], ids=["nobody", "root of the sandbox"])


@pytest.fixture
def scene() -> Iterator[Servers]:
    with servers() as found:
        yield found


ASK = r"""
import json
def told(ask):
    try:
        return ask()
    except (OSError, UnicodeError) as error:
        return f"{type(error).__name__}: {error}"
def through(port, *pieces, address="127.0.0.1", wait=3):
    with socket.create_connection((address, port), 5) as s:
        s.settimeout(wait)
        got = b""
        try:
            for piece in pieces:
                s.sendall(piece)
                time.sleep(0.05)
            while data := s.recv(65536):
                got += data
        except OSError:
            pass
        return got.decode("latin-1")
def plain(host, port):
    return through(3128, get(host, port).encode())
def tunnelled(host, port):
    return through(3128, tunnel(host, port).encode(), hello("good.test"))
def direct(host, port):
    request = f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n"
    return through(port, request.encode(), address=host)
def question(labels, kind, of=1):
    name = b"".join(bytes([len(one)]) + one for one in labels) + b"\0"
    return b"\0\7\1\0\0\1\0\0\0\0\0\0" + name + kind.to_bytes(2, "big") + of.to_bytes(2, "big")
def dns(labels, kind, of=1):
    asked = question(labels, kind, of)
    with socket.create_connection(("127.0.0.1", 53), 5) as s:
        s.sendall(len(asked).to_bytes(2, "big") + asked)
        with s.makefile("rb") as answer:
            said = answer.read(int.from_bytes(answer.read(2), "big"))
    return {"code": said[3] & 15, "answers": int.from_bytes(said[6:8], "big"), "hex": said.hex()}
"""


async def asked(made: Box, expression: str, cases: Sequence[object]) -> list[object]:
    """What `expression` of `one` gives inside for each case, in one program."""
    loop = f"for one in json.loads({json.dumps(json.dumps(cases))}):\n    print(json.dumps(told(lambda: {expression})))"
    code = f"{ASK}\n{loop}"
    said = await made.python(code, 300)
    found = said.splitlines()
    assert len(found) == len(cases), said
    return [json.loads(line) for line in found]


# ---- every spelling of an address ----


def _parts(address: str) -> list[int]:
    return [int(part) for part in address.split(".")]


def _number(address: str) -> int:
    return int.from_bytes(socket.inet_aton(address))


SPELLINGS: dict[str, Callable[[str], str]] = {
    "decimal": lambda a: str(_number(a)),
    "hex": lambda a: hex(_number(a)),
    "HEX": lambda a: f"0X{_number(a):X}",
    "octal": lambda a: f"0{_number(a):o}",
    "hex, dotted": lambda a: ".".join(map(hex, _parts(a))),
    "octal, dotted": lambda a: ".".join(f"0{part:o}" for part in _parts(a)),
    "octal, with zeros": lambda a: ".".join(f"{part:011o}" for part in _parts(a)),
    "mixed": lambda a: "{}.0{:o}.{:#x}.{}".format(*_parts(a)),
    "short": lambda a: f"{_parts(a)[0]}.{_number(a) & 0xFFFFFF}",
    "in three": lambda a: "{}.{}.{}".format(*_parts(a)[:2], _number(a) & 0xFFFF),
    "mapped": lambda a: f"::ffff:{a}",
    "mapped, in hex": lambda a: f"::ffff:{_number(a) >> 16:x}:{_number(a) & 0xFFFF:x}",
    "mapped, long": lambda a: f"0:0:0:0:0:ffff:{a}",
    "fullwidth digits": lambda a: a.translate({48 + n: 0xFF10 + n for n in range(10)}),
    "circled digits": lambda a: a.replace("1", "\u2460", 1),
    "ideographic full stops": lambda a: a.replace(".", "\u3002"),
    "a NUL behind it": lambda a: f"{a}\x00.good.test",
}
"""Python, through the C library, takes each for the address."""
ODD: dict[str, Callable[[str], str]] = {
    "a final dot": lambda a: f"{a}.",
    "percent signs": lambda a: "".join(f"%{ord(char):02x}" for char in a),
    "a percent sign and a NUL": lambda a: f"{a}%00.good.test",
    "a zone": lambda a: f"::ffff:{a}%25lo",
    "compatible": lambda a: f"::{a}",
    "NAT64": lambda a: f"64:ff9b::{a}",
    "6to4": lambda a: f"2002:{_number(a) >> 16:x}:{_number(a) & 0xFFFF:x}::",
}
"""Some other clients and gateways do."""
BESIDE = "10.21.0.7"
ELSEWHERE = ("0.0.0.0", "0", "[::]", "[::1]", "[0:0:0:0:0:0:0:1]", "[::1%25lo]", "[fe80::1%25eth0]", "::1", "localhost",
             "LOCALHOST", "localhost.", "\uff4cocalhost", "localhost.localdomain", "ip6-localhost", "[127.0.0.1]", "[",
             "")  # fmt: skip


def _spelled(address: str, ways: dict[str, Callable[[str], str]]) -> list[str]:
    found = [way(address) for way in ways.values()]
    return [f"[{text}]" if ":" in text else text for text in found]


def test_the_c_library_takes_every_spelling_for_the_address(scene: Servers) -> None:
    for address in ("127.0.0.1", NAMED, BESIDE):
        for name, way in SPELLINGS.items():
            found = socket.getaddrinfo(way(address), 80, type=socket.SOCK_STREAM)[0][4][0]
            assert str(found).removeprefix("::ffff:") == address, name
    for name, way in SPELLINGS.items():
        with socket.create_connection((way("127.0.0.1"), scene.evil), 5) as connection:
            connection.sendall(b"x")
            assert SECRET.encode() in connection.recv(999), name


@WHO
async def test_no_spelling_of_an_address_is_let_out(scene: Servers, tmp_path: Path, *, root: bool) -> None:
    """Loopback, one beside the block that is named, and one of the block itself, which only its plain spelling is."""
    addresses = ("127.0.0.1", BESIDE, NAMED)
    spelled = [text for one in addresses for text in _spelled(one, SPELLINGS | ODD)]
    spelled = ["127.0.0.1", BESIDE, *spelled, *ELSEWHERE]
    async with box(scene, tmp_path, make_egress(QUICK), hosts=(f"10.20.0.0/16:{scene.evil}",), root=root) as made:
        for way in ("plain", "tunnelled"):
            for text, said in zip(spelled, await asked(made, f"{way}(one, EVIL)", spelled), strict=True):
                assert str(said).startswith("HTTP/1.1 4"), (way, text, said)
                assert "stockade: " in str(said), (way, text, said)
        assert [event.verdict for event in made.events] == ["refused"] * (2 * len(spelled))
        assert all(event.reason for event in made.events)
        by_name = [way(one) for one in addresses for way in SPELLINGS.values()]
        said = await asked(made, "direct(one, EVIL)", by_name)
        assert SECRET not in repr(said), said
        assert scene.marks == set()
        assert SECRET in str((await asked(made, "plain(one, EVIL)", [NAMED]))[0])


# ---- names ----

NAMES = (
    "evil.test", "EVIL.TEST", "evil.test.", "eViL.tEsT.", "wild.test", "WILD.TEST", "evilwild.test",
    "wild.test.evil.test", "a.wild.test.evil.test", "*.wild.test", ".wild.test", "a..wild.test", "a.wild.test..",
    "-.wild.test", "a.wild.test-evil", "a-.wild.test", "a.wild.test\\.evil.test", "a.wild.test;evil.test",
    "a.wild.test,evil.test", "a.wild.test&evil.test", "a.wild.test@evil.test", "a.wild.test:80@evil.test",
    "@evil.test", "a.wild.test%00.evil.test", "evil.test%2ewild.test", "evil.test%23.wild.test",
    "evil.test#.wild.test", "evil.test?.wild.test", "evil.test\t.wild.test",
    "evil.test\x00.wild.test", "evil.test\u3002wild.test", "evil\uff0etest", "\uff45vil.test", "evil.te\u017ft",
    "\u212aevil.test", "evil\u00ad.test", "xn--evil-.test", "good.test.wild.test.evil.test",
)  # fmt: skip
PORTS = ("+{}", "0{}", "{}.", "{}0000000", " {}", "{}%20", "-1", "0", "65536", "{:#x}", "\uff11", "")


@WHO
async def test_no_spelling_of_a_name_is_let_out(scene: Servers, tmp_path: Path, *, root: bool) -> None:
    rules = (f"*.wild.test:{scene.evil}",)
    ports = [form.format(scene.evil) for form in PORTS]
    async with box(scene, tmp_path, make_egress(QUICK), hosts=rules, root=root) as made:
        for way in ("plain", "tunnelled"):
            named = zip(NAMES, await asked(made, f"{way}(one, EVIL)", NAMES), strict=True)
            ported = zip(ports, await asked(made, f"{way}('a.wild.test', one)", ports), strict=True)
            for text, said in (*named, *ported):
                assert str(said).startswith("HTTP/1.1 4"), (way, text, said)
                assert SECRET not in str(said), (way, text)
        assert [event.verdict for event in made.events] == ["refused"] * (2 * (len(NAMES) + len(PORTS)))
        assert scene.marks == set()
        for right in ("a.wild.test", "A.Wild.TEST", "a.wild.test."):
            assert SECRET in str((await asked(made, "plain(one, EVIL)", [right]))[0]), right
            assert SECRET in str((await asked(made, "direct(one, EVIL)", [right]))[0]), right
        assert {event.host for event in made.events if event.verdict == "allowed"} == {"a.wild.test"}


async def test_a_proxy_that_believes_all_lets_names_out(
    scene: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with box(scene, tmp_path, weaken(monkeypatch)) as made:
        plain = await asked(made, "plain(one, EVIL)", NAMES)
        assert [text for text, said in zip(NAMES, plain, strict=True) if SECRET not in str(said)] == []
        spelled = _spelled("127.0.0.1", SPELLINGS | ODD)
        held = await asked(made, "tunnelled(one, EVIL)", spelled)
        assert [text for text, said in zip(spelled, held, strict=True) if SECRET not in str(said)] == []


# ---- heads that two programs read differently ----

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: good.test\r\n\r\n"
CHUNKS = b"0\r\n\r\n" + SMUGGLED


def _with(headers: bytes, body: bytes = b"", first: bytes = b"GET URL HTTP/1.1") -> bytes:
    return first + b"\r\nHost: ORIGIN\r\n" + headers + b"\r\n\r\n" + body


def _lengths(text: bytes) -> bytes:
    """Chunks for one reader, `text` for another."""
    return _with(text, CHUNKS, b"POST URL HTTP/1.1").replace(b"SIZE", str(len(CHUNKS)).encode())


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + body


HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b"") + _frame(
    1, 5, 1, b"\x82\x86\x84\x41\x09evil.test"
)  # fmt: skip
"""With prior knowledge: GET, http, /, and `:authority` is evil.test."""
HEADS = {
    "another Host": b"GET URL HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "two Hosts": _with(b"Host: evil.test"),
    "two Hosts, one in capitals": _with(b"HOST: evil.test"),
    "no Host": b"GET URL HTTP/1.1\r\nX: evil.test\r\n\r\n",
    "a Host that goes on in the next line": _with(b"X: y\r\n Host: evil.test"),
    "a Host folded away": b"GET URL HTTP/1.1\r\nHost:\r\n evil.test\r\n\r\n",
    "a Host after a space": _with(b" Host: evil.test"),
    "a Host with a space before its colon": _with(b"Host : evil.test"),
    "a Host after a bare line feed": _with(b"X: y\nHost: evil.test"),
    "a Host after a bare return": _with(b"X: y\rHost: evil.test"),
    "a Host with a user": b"GET URL HTTP/1.1\r\nHost: ORIGIN@evil.test\r\n\r\n",
    "a Host of two": b"GET URL HTTP/1.1\r\nHost: ORIGIN, evil.test\r\n\r\n",
    "a Host with a path": b"GET URL HTTP/1.1\r\nHost: ORIGIN/evil.test\r\n\r\n",
    "a Host with a NUL": b"GET URL HTTP/1.1\r\nHost: ORIGIN\0.evil.test\r\n\r\n",
    "a URL of another host": b"GET http://evil.test/ HTTP/1.1\r\nHost: ORIGIN\r\n\r\n",
    "a URL of this host, another Host": b"GET http://ORIGIN/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "a URL of another scheme": b"GET ftp://evil.test/ HTTP/1.1\r\nHost: ORIGIN\r\n\r\n",
    "a URL without a scheme": b"GET //evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "a second request": _with(b"A: b", b"GET URL HTTP/1.1\r\nHost: evil.test\r\n\r\n"),
    "a second request behind a body": _with(b"Content-Length: 2", b"xxGET URL HTTP/1.1\r\nHost: evil.test\r\n\r\n"),
    "length and chunks": _lengths(b"Content-Length: SIZE\r\nTransfer-Encoding: chunked"),
    "chunks and length": _lengths(b"Transfer-Encoding: chunked\r\nContent-Length: SIZE"),
    "chunks with a space before the colon": _lengths(b"Content-Length: SIZE\r\nTransfer-Encoding : chunked"),
    "chunks folded": _lengths(b"Content-Length: SIZE\r\nTransfer-Encoding:\r\n chunked"),
    "chunks behind a vertical tab": _lengths(b"Content-Length: SIZE\r\nTransfer-Encoding:\x0bchunked"),
    "chunks after a bare line feed": _lengths(b"Content-Length: SIZE\r\nX: y\nTransfer-Encoding: chunked"),
    "chunks of two encodings": _lengths(b"Content-Length: SIZE\r\nTransfer-Encoding: identity, chunked"),
    "chunks of an unknown encoding": _lengths(b"Transfer-Encoding: x, chunked"),
    "two lengths": _with(b"Content-Length: 0\r\nContent-Length: SIZE", SMUGGLED),
    "a length with a sign": _with(b"Content-Length: +0", SMUGGLED),
    "chunks in HTTP/1.0": _lengths(b"Transfer-Encoding: chunked").replace(b"1.1", b"1.0"),
    "a WebSocket to another host": b"GET URL HTTP/1.1\r\nHost: evil.test\r\nConnection: Upgrade\r\n"
                                   b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
    "a method that nobody has": b"G_T URL HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "a method with a digit": b"GET2 URL HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "a long method": b"A" * 40 + b" URL HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "a space before the method": b" GET URL HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "a vertical tab before the method": b"\x0bGET URL HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "vertical tabs between the words": b"GET\x0bURL\x0bHTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "four words": b"GET URL x HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "empty lines first": b"\n\r\n\nGET URL HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "HTTP/2 to another host": HTTP2,
    "HTTP/2 to another host in small letters": HTTP2.replace(b"PRI", b"pri"),
}  # fmt: skip
CHANGES = {
    "a WebSocket": _with(b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13"),
    "HTTP/2 by an upgrade": _with(b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA"),
}
"""Requests that reach their server without what would make the connection another."""


def _said(head: bytes, url: str, host: str) -> str:
    return head.replace(b"URL", url.encode()).replace(b"ORIGIN", host.encode()).decode("latin-1")


def test_a_server_takes_each_head(scene: Servers) -> None:
    host = f"good.test:{scene.good}"
    for name, head in (HEADS | CHANGES).items():
        scene.marks.clear()
        with socket.create_connection(("127.0.0.1", scene.good), 5) as connection:
            connection.sendall(_said(head, "/", host).encode("latin-1"))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(9999):
                pass
        assert scene.marks, name


@WHO
async def test_no_head_is_read_in_two_ways(scene: Servers, tmp_path: Path, *, root: bool) -> None:
    """By the proxy and without one: the name's own address inside, on the port that --net names."""
    host = f"good.test:{scene.good}"
    async with box(scene, tmp_path, make_egress(QUICK), root=root) as made:
        ways = ((f"http://{host}/", "3128, address='127.0.0.1'"), ("/", "GOOD, address='good.test'"))
        for url, where in ways:
            for heads, verdict in ((HEADS, "refused"), (CHANGES, "allowed")):
                cases = [_said(head, url, host) for head in heads.values()]
                port, address = where.split(", ")
                found = await asked(made, f"through({port}, one.encode('latin-1'), {address})", cases)
                for name, said in zip(heads, found, strict=True):
                    assert ("stockade: " in str(said)) is (verdict == "refused"), (where, name, said)
                assert [event.verdict for event in made.events][-1] == verdict
        assert scene.marks == set()


LATE = """
s = socket.create_connection((HOST, GOOD), 5)
s.settimeout(5)
try:
    BEGIN
    time.sleep(3)
    s.sendall(b"GET / HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n"[SENT:])
    print(s.recv(999))
except OSError as error:
    print("ended", error)
"""


@pytest.mark.parametrize(("begin", "sent"), [("pass", 0), ("s.sendall(b'GET')", 3)], ids=["nothing", "a beginning"])
async def test_who_waits_is_not_taken_for_one_who_listens(
    scene: Servers, tmp_path: Path, begin: str, sent: int
) -> None:
    """The server would wait longer than we do."""
    script = LATE.replace("BEGIN", begin).replace("SENT", str(sent))
    outside = f"import socket, time\nGOOD = {scene.good}\n" + script.replace("HOST", "'127.0.0.1'")
    free = await anyio.run_process([sys.executable, "-c", outside])
    assert SECRET.encode() in free.stdout, free
    scene.marks.clear()
    bounds = Bounds(head_s=1.0, connect_s=2.0, idle_s=1.0, linger_s=0.2)
    async with box(scene, tmp_path, make_egress(bounds)) as made:
        assert SECRET not in await made.python(script.replace("HOST", "'good.test'"))
        assert scene.marks == set()
        assert made.events[-1].reason == "nothing moved for 1 s"


# ---- the names inside ----

TXT, ANY, NULL, CHAOS = 16, 255, 10, 3
NONE = ("evil.test", "EVIL2.test", "x" * 63 + ".evil.test", "deadbeef." * 20 + "evil.test", "wild.test", "version.bind",
        "a.wild.test.evil.test", "_dns.resolver.arpa", "127.0.0.1", "0x7f.1", "\x00.evil.test", "evil test",
        "\xe9vil.test")  # fmt: skip
"""Names that do not exist inside. What a tunnel sends out is in them."""


def _dns(name: str, kind: int, of: int = 1) -> tuple[list[list[int]], int, int]:
    return [list(label.encode("latin-1")) for label in name.split(".")], kind, of


async def test_questions_of_names_carry_nothing_out_and_nothing_in(scene: Servers, tmp_path: Path) -> None:
    """A tunnel has its words in the names that are looked up outside: that is one, and only when it is connected to."""
    asked_outside: list[str] = []
    made_egress = make_egress(QUICK)

    def make(policy: Policy, on_request: OnRequest) -> Egress:
        egress = made_egress(policy, on_request)

        async def resolver(host: str, port: int) -> Sequence[str]:
            asked_outside.append(host)
            return await egress.resolver(host, port)

        return replace(egress, resolver=resolver)

    kinds = [(kind, 1) for kind in (1, 2, 5, 6, NULL, 12, 15, TXT, 28, 33, 41, 65, 252, ANY)] + [(TXT, CHAOS)]
    async with box(scene, tmp_path, make, hosts=(f"*.wild.test:{scene.evil}",)) as made:
        for name in NONE:
            cases = [_dns(name, kind, of) for kind, of in kinds]
            for said in await asked(made, "dns([bytes(label) for label in one[0]], *one[1:])", cases):
                assert isinstance(said, dict)
                assert (said["code"], said["answers"]) == (3, 0), name
        assert {event.method for event in made.events} == {"DNS"}
        assert {event.verdict for event in made.events} == {"refused"}
        assert len({event.host for event in made.events}) == len(NONE)
        cases = [_dns("stolen.wild.test", kind, of) for kind, of in kinds]
        found = await asked(made, "dns([bytes(label) for label in one[0]], *one[1:])", cases)
        assert [said["answers"] for said in found if isinstance(said, dict)] == [1, *[0] * (len(kinds) - 1)]
        assert asked_outside == []
        await asked(made, "direct(one, EVIL)", ["stolen.wild.test"])
        assert asked_outside == ["stolen.wild.test"]


async def test_what_stands_for_a_name_is_that_name_on_its_port(scene: Servers, tmp_path: Path) -> None:
    cases = {
        "another port of it": ("good.test", scene.evil, "only other ports of it are"),
        "an address that stands for nothing": ("127.64.9.9", scene.good, "is an address that --net does not name"),
        "another address of the loopback": ("127.0.0.2", scene.evil, "is an address that --net does not name"),
        "no address": ("0.0.0.0", scene.good, "not an HTTP/1.1 request"),
        "the proxy on a port of a name": ("127.0.0.1", scene.evil, "not an HTTP/1.1 request"),
        "HTTPS of nothing": ("127.99.0.1", 443, "is an address that --net does not name"),
    }
    ask = "through(one[1], b'EHLO x\\r\\n\\r\\n', address=one[0])"
    said = "through(GOOD, hello(one), address='good.test').encode('latin-1').hex()"
    with socket.create_connection(("127.0.0.1", scene.evil), 5) as connection:
        connection.sendall(b"EHLO x\r\n\r\n")
        assert SECRET.encode() in connection.recv(999)
    scene.marks.clear()
    async with box(scene, tmp_path, make_egress(QUICK), hosts=(f"*.wild.test:{scene.evil}",)) as made:
        for name, (address, port, reason) in cases.items():
            found = await asked(made, ask, [(address, port)])
            assert SECRET not in str(found), name
            assert (made.events[-1].verdict, reason in made.events[-1].reason) == ("refused", True), (name, made.events)
        for other in ("a.wild.test", "evil.test", "good.test.evil.test", None):
            assert await asked(made, said, [other]) == [""]
            assert "the TLS ClientHello names" in made.events[-1].reason
        for address in ("::1", "127.64.0.1"):
            found = await asked(made, "through(one[1], b'x', address=one[0])", [(address, 9)])
            assert str(found[0]).startswith("ConnectionRefusedError"), found
        assert scene.marks == set()
        assert SECRET in str(await asked(made, "through(GOOD, hello(one), address='good.test')", ["GOOD.test"]))
        assert scene.marks == {"not http"}, "TLS to its own name goes through"
