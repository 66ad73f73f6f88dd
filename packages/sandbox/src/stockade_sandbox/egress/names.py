"""Names inside a sandbox, for programs that know nothing of a proxy: each name that may be asked for gets an address of
the sandbox's own loopback, on which the agent listens; what is connected to there is judged by that name.

The answers are DNS (RFC 1035, over TCP as in its section 4.2.2): an address of ours, or "no such name", at once and on
record. Nothing is asked outside for them: a name is looked up when it is connected to, by the proxy.
"""

import re
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Address

import anyio
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

from stockade_sandbox.egress.relay import Cut, End
from stockade_sandbox.egress.rules import LOCALHOST, Refused, Rules, Target, host_name, shown
from stockade_sandbox.stoppable import unwrap_exception_group

DNS_PORT = 53
MAX_NAMES = 1 << 16
"""Of one sandbox, which may ask for any number where the rule is a wildcard."""
_FIRST = int(IPv4Address("127.64.0.0"))
_PATIENCE_S = 15.0
_HEADER = struct.Struct(">6H")
_A, _IN, _TTL_S = 1, 1, 60
_NO_ERROR, _FORM_ERROR, _NO_NAME, _NOT_IMPLEMENTED = 0, 1, 3, 4
_RESPONSE, _OPCODE, _WANTS_RECURSION, _RECURSES = 0x8000, 0x7800, 0x0100, 0x0080
_REVERSE = (".in-addr.arpa", ".ip6.arpa")
_SPACE = rb"[\t\x0b-\r\x1c- \x85\xa0]"
_METHOD = rb"(?:\n|%b)*[!#$%%&'*+.^_`|~0-9A-Za-z-]+" % _SPACE
_HTTP = re.compile(rb"%b%b[^\n]*HTTP/" % (_METHOD, _SPACE), re.IGNORECASE)
"""A first line that any server takes for HTTP's, however odd it is: the proxy reads it strictly."""
_PERHAPS_HTTP = re.compile(
    rb"(?:\n|%b)*|%b(?:%b+(?:[!-~\x80-\x84\x86-\x9f\xa1-\xff][^\n]*)?)?" % (_SPACE, _METHOD, _SPACE)
)
_TLS = b"\x16\x03"
_LONGEST = 16 * 1024
OnRefused = Callable[[str, Refused], None]


class Speech(Enum):
    """What a client speaks, by its first bytes."""

    HTTP = "HTTP/1"
    TLS = "TLS"
    OTHER = "something else"


def speech(begun: bytes) -> Speech | None:
    """None while that cannot be told."""
    if _HTTP.match(begun):
        return Speech.HTTP
    if begun[:2] == _TLS:
        return Speech.TLS
    if _TLS.startswith(begun):
        return None
    if not _PERHAPS_HTTP.fullmatch(begun):
        return Speech.OTHER
    return None if len(begun) < _LONGEST else Speech.HTTP


async def who_speaks(client: End, server: End, idle_s: float) -> Speech:
    """What the client speaks, where it is the first to speak; nothing is taken from either. A server of HTTP or TLS
    waits for its client, and might longer than we do: TimeoutError after `idle_s`.
    """
    found = Speech.OTHER

    async def client_speaks() -> None:
        nonlocal found
        with suppress(*Cut):
            while (heard := speech(client.reader.buffer)) is None:
                client.reader.feed_data(await client.stream.receive())
            found = heard
        group.cancel_scope.cancel()

    async def server_speaks() -> None:
        with suppress(*Cut):
            server.reader.feed_data(await server.stream.receive())
        group.cancel_scope.cancel()

    with anyio.fail_after(idle_s):
        async with unwrap_exception_group(), anyio.create_task_group() as group:
            group.start_soon(client_speaks)
            group.start_soon(server_speaks)
    return found


@dataclass
class Names:
    """Of one sandbox. `on_refused` hears of names that are not on the list, but for those that `may` be allowed when
    they are connected to.
    """

    rules: Rules
    on_refused: OnRefused
    may: Callable[[str], bool] = lambda _: False
    _addresses: dict[str, str] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def address(self, text: str) -> str:
        """What stands for a name inside. Refused for one that is not on the list."""
        name = host_name(text)
        if not self.rules.may_name(name) and not self.may(name):
            raise Refused(f"{name} is not on the --net allow list", allow=name)
        if name not in self._addresses:
            if len(self._addresses) >= MAX_NAMES - 1:
                raise Refused(f"more than {MAX_NAMES} names in one sandbox")
            address = str(IPv4Address(_FIRST + 1 + len(self._addresses)))
            self._addresses[name], self._names[address] = address, name
        return self._addresses[name]

    def target(self, address: str, port: int) -> Target | None:
        """What a client meant that connected to an address of the loopback inside; None for the proxy itself."""
        if address == "127.0.0.1":
            return Target(LOCALHOST, port) if self.rules.allows(LOCALHOST, port) else None
        return Target(self._names.get(address, address), port)

    async def serve(self, stream: ByteStream) -> None:
        """Answers questions of one connection until it ends, or nothing more comes."""
        reader, told = BufferedByteReceiveStream(stream), set[str]()
        with suppress(*Cut, TimeoutError):
            while True:
                with anyio.fail_after(_PATIENCE_S):
                    size = int.from_bytes(await reader.receive_exactly(2))
                    answer = self.answer(await reader.receive_exactly(size), told)
                    await stream.send(len(answer).to_bytes(2) + answer)

    def answer(self, message: bytes, told: set[str]) -> bytes:
        """To one question. Who asks for a name asks for several kinds of addresses: that is told once for `told`."""
        if len(message) < _HEADER.size:
            return bytes(2)
        number, flags, questions, *_ = _HEADER.unpack_from(message)
        question, code, records = b"", _FORM_ERROR, b""
        if flags & (_RESPONSE | _OPCODE):
            code = _NOT_IMPLEMENTED
        elif questions == 1 and (found := _question(message)):
            name, kind, question = found
            try:
                address = self.address(name)
                code = _NO_ERROR
                if kind == (_A, _IN):
                    packed = IPv4Address(address).packed
                    records = struct.pack(">3HIH", 0xC000 | _HEADER.size, *kind, _TTL_S, len(packed)) + packed
            except Refused as refused:
                code = _NO_NAME
                if name not in told and not name.lower().endswith(_REVERSE):
                    told.add(name)
                    self.on_refused(shown(name), refused)
        flags = _RESPONSE | flags & (_OPCODE | _WANTS_RECURSION) | _RECURSES | code
        return _HEADER.pack(number, flags, bool(question), bool(records), 0, 0) + question + records


def _question(message: bytes) -> tuple[str, tuple[int, int], bytes] | None:
    """Name, kind and class, and the bytes of it; None where it cannot be read."""
    labels, at = list[str](), _HEADER.size
    while at < len(message) and 0 < message[at] < 64:
        labels.append(message[at + 1 : at + 1 + message[at]].decode("latin-1"))
        at += 1 + message[at]
    whole = message[_HEADER.size : at + 5]
    if at + 5 > len(message) or message[at] or not labels:
        return None
    kind, of = struct.unpack(">2H", message[at + 1 : at + 5])
    return ".".join(labels), (kind, of), whole
