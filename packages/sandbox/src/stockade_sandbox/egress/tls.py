"""The server's name in a TLS ClientHello, in the clear (RFC 8446 section 4.1.2, RFC 6066 section 3). Pure, bounded.

A ClientHello may come in several records and many pieces. With Encrypted Client Hello the name read here is the outer
one: it has to be the target's all the same, so a hidden name is reached only where the target's own server allows it.
"""

import struct
from collections.abc import Iterator

from stockade_sandbox.egress.rules import Refused, host_name, shown

MAX_HELLO_BYTES = 32 * 1024
UNRECOGNIZED_NAME = b"\x15\x03\x01\x00\x02\x02\x70"
"""The fatal alert that tells a client that it is its name that was not liked."""

_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0
_MAX_RECORD = 1 << 14


class NotTls(Refused):
    """Something else than a ClientHello: the client does not understand TLS alerts."""


class NoName(Refused):
    """A ClientHello without a server's name: right only where an address was asked for (RFC 6066 section 3)."""


class _Cursor:
    """Reads forward, never past the end: ValueError instead."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if count > self.left():
            raise ValueError("it is cut short")
        self._at += count
        return self._data[self._at - count : self._at]

    def rest(self) -> bytes:
        return self.take(self.left())

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def vector(self, size: int) -> "_Cursor":
        """What follows a length of `size` bytes."""
        return _Cursor(self.take(self.number(size)))


def _message(data: bytes) -> bytes:
    """What the records so far carry of the handshake, the last one as far as it has come."""
    message, at = b"", 0
    while at < len(data):
        header = data[at : at + 5]
        if header[0] != _HANDSHAKE or (len(header) > 1 and header[1] != 3):
            raise NotTls("the tunnel does not begin with TLS")
        if len(header) < 5:
            break
        (length,) = struct.unpack(">H", header[3:])
        if not 0 < length <= _MAX_RECORD:
            raise NotTls("the tunnel does not begin with TLS")
        message += data[at + 5 : at + 5 + length]
        at += 5 + length
        if _is_whole(message):
            break  # what follows may be of another kind
    return message


def _is_whole(message: bytes) -> bool:
    return len(message) >= 4 and len(message) >= 4 + int.from_bytes(message[1:4])


def _handshake(data: bytes) -> bytes | None:
    """The ClientHello's body; None while more has to come."""
    message = _message(data)
    if message and message[0] != _CLIENT_HELLO:
        raise NotTls("the tunnel does not begin with a TLS ClientHello")
    if len(message) >= 4 and int.from_bytes(message[1:4]) > MAX_HELLO_BYTES:
        raise NotTls("the TLS ClientHello is too long")
    if not _is_whole(message):
        return None
    return message[4 : 4 + int.from_bytes(message[1:4])]


def _extensions(hello: bytes) -> Iterator[tuple[int, _Cursor]]:
    cursor = _Cursor(hello)
    cursor.take(2 + 32)  # version, random
    cursor.vector(1)  # session
    cursor.vector(2)  # cipher suites
    cursor.vector(1)  # compression
    if not cursor.left():
        return
    extensions = cursor.vector(2)
    if cursor.left():
        raise ValueError("bytes follow the extensions")
    while extensions.left():
        yield extensions.number(2), extensions.vector(2)


def _names(hello: bytes) -> list[str]:
    found: list[str] = []
    for kind, body in _extensions(hello):
        if kind != _SERVER_NAME:
            continue
        names = body.vector(2)
        if body.left():
            raise ValueError("bytes follow the server name")
        while names.left():
            if names.number(1) != _HOST_NAME:
                raise ValueError("a server name of an unknown kind")
            found.append(names.vector(2).rest().decode("latin-1"))
    return found


def server_name(data: bytes) -> str | None:
    """The name asked for, in its one spelling; None while `data` is only the beginning of a ClientHello.

    Refused without exactly one name (NoName without any), and for what is too long or malformed; NotTls for what is
    not TLS.
    """
    hello = _handshake(data)
    if hello is None:
        if len(data) > MAX_HELLO_BYTES:
            raise NotTls("the TLS ClientHello is too long")
        return None
    try:
        names = _names(hello)
    except ValueError as error:
        raise NotTls(f"the TLS ClientHello cannot be read: {error}") from None
    if not names:
        raise NoName("the TLS ClientHello names no server (SNI)")
    if len(names) > 1:
        raise Refused("the TLS ClientHello names several servers")
    try:
        return host_name(names[0])
    except Refused:
        raise Refused(f"the TLS ClientHello names {shown(names[0])}, which is not a host name") from None
