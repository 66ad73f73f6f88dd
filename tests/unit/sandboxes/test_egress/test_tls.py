"""The name in a ClientHello: of a real client, in pieces, and in everything that is none."""

import ssl
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade_sandbox.egress.rules import Refused
from stockade_sandbox.egress.tls import MAX_HELLO_BYTES, NotTls, server_name


def real_hello(name: str | None) -> bytes:
    """What Python's OpenSSL sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def vector(size: int, data: bytes) -> bytes:
    return len(data).to_bytes(size) + data


def sni(*names: bytes, kind: int = 0) -> bytes:
    return struct.pack(">H", 0) + vector(2, vector(2, b"".join(bytes([kind]) + vector(2, name) for name in names)))


def hello(*extensions: bytes, tail: bytes = b"") -> bytes:
    """A ClientHello message, without its records."""
    body = b"\x03\x03" + bytes(32) + vector(1, b"") + vector(2, b"\x13\x01") + vector(1, b"\0")
    return b"\x01" + vector(3, body + vector(2, b"".join(extensions)) + tail)


def records(message: bytes, size: int = 1 << 14) -> bytes:
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\x03\x01" + vector(2, piece) for piece in pieces)


def test_a_real_clients_name() -> None:
    data = real_hello("PyPI.org")
    assert server_name(data) == "pypi.org"
    assert server_name(data + b"early data") == "pypi.org"


def test_any_beginning_is_incomplete() -> None:
    data = real_hello("pypi.org")
    assert all(server_name(data[:end]) is None for end in range(len(data)))


@given(st.integers(1, 40))
def test_records_of_any_size(size: int) -> None:
    assert server_name(records(hello(sni(b"pypi.org")), size)) == "pypi.org"


def test_grease_and_other_extensions_are_passed_over() -> None:
    other = b"\x0a\x0a" + vector(2, b"") + b"\xfe\x0d" + vector(2, b"\0" * 40)
    assert server_name(records(hello(other, sni(b"a.org")))) == "a.org"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (real_hello(None), "names no server"),
        (records(hello()), "names no server"),
        (records(hello(sni())), "names no server"),
        (records(hello(sni(b"a.org", b"b.org"))), "several servers"),
        (records(hello(sni(b"a.org"), sni(b"b.org"))), "several servers"),
        (records(hello(sni(b"127.0.0.1"))), "not a host name"),
        (records(hello(sni(b"a.org\0.b.org"))), "not a host name"),
        (records(hello(sni(b"\xff\xfe"))), "not a host name"),
        (records(hello(sni(b""))), "not a host name"),
        (records(hello(sni(b"a.org", kind=1))), "unknown kind"),
        (records(hello(sni(b"a.org"), tail=b"x")), "follow the extensions"),
        (records(hello(b"\0\0" + vector(2, vector(2, b"\0\0\xff") + b""))), "cut short"),
        (records(hello(b"\0\0" + vector(2, vector(2, b"") + b"x"))), "follow the server name"),
        (records(b"\x01" + vector(3, b"\x03")), "cut short"),
        (records(b"\x02" + vector(3, bytes(50))), "ClientHello"),
        (b"GET / HTTP/1.1\r\n\r\n", "does not begin with TLS"),
        (b"SSH-2.0-x\r\n", "does not begin with TLS"),
        (b"\x80\x2e\x01\x03\x01", "does not begin with TLS"),
        (b"\x16\x02", "does not begin with TLS"),
        (b"\x16\x03\x01\x00\x00", "does not begin with TLS"),
        (b"\x16\x03\x01\xff\xff", "does not begin with TLS"),
        (records(b"\x01\xff\xff\xff" + bytes(MAX_HELLO_BYTES)), "too long"),
        (records(hello(), 1)[: -6 - 5] + b"\x17\x03\x03\x00\x01x", "does not begin with TLS"),
    ],
)
def test_refused(data: bytes, words: str) -> None:
    with pytest.raises(Refused, match=words):
        server_name(data)


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_incomplete(data: bytes) -> None:
    with suppress(NotTls):
        assert server_name(data) is None


@given(st.data())
def test_a_damaged_hello_never_breaks_the_parser(data: st.DataObject) -> None:
    good = bytearray(records(hello(sni(b"a.org"))))
    good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    with suppress(Refused):
        server_name(bytes(good))
