"""The user's ssh-agent, lent to a sandbox for one account of a host: a key is used and stays where it is.

Inside is a socket that speaks the agent's protocol (draft-ietf-sshm-ssh-agent). It lists keys, and has a signature made
when it is for a log-in to that account over a connection that ends at that host: OpenSSH's `session-bind@openssh.com`
(PROTOCOL.agent) shows the host's signature of the connection's identifier, which nobody else can make, and which no
other connection has. All else is refused.
"""

import base64
import binascii
import hashlib
import math
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from stockade_sandbox.agent.frames import SSH_AGENT
from stockade_sandbox.egress.inside import Accept, OnRequest, Server
from stockade_sandbox.egress.relay import Cut
from stockade_sandbox.egress.rules import Refused, shown
from stockade_sandbox.errors import UsageError
from stockade_sandbox.policy import Policy, SshAccount
from stockade_sandbox.port import Doorkeeper
from stockade_sandbox.results import NetworkRequest
from stockade_sandbox.stoppable import unwrap_exception_group
from stockade_sandbox.unix_streams import connected

if TYPE_CHECKING:
    from stockade_sandbox.egress.credentials import Credentials

KNOWN_HOSTS = "/ssh/known_hosts"
"""Inside: the keys of the accounts' hosts."""
PORT = 0
"""What stands for the socket among the ports that the agent inside listens on."""
METHOD = "SSH-AGENT"
"""On record."""

_FAILURE, _SUCCESS = b"\x05", b"\x06"
_LIST, _KEYS, _SIGN, _SIGNED, _EXTENSION = 11, 12, 13, 14, 27
_WORDS = {
    1: "to list keys of version 1", 9: "to remove all keys of version 1", 17: "to add a key", 18: "to remove a key",
    19: "to remove all keys", 20: "to add a key of a card", 21: "to remove a card", 22: "to be locked",
    23: "to be unlocked", 25: "to add a key", 26: "to add a key of a card", _EXTENSION: "for an extension",
}  # fmt: skip
_BIND = b"session-bind@openssh.com"
_LOG_IN, _HOSTBOUND = 50, b"publickey-hostbound-v00@openssh.com"
_MAX_ASKED, _MAX_ANSWER, _MAX_SESSION = 32 << 10, 256 << 10, 128
_WAIT_S = 300.0
"""For a signature: the user may be asked by the agent."""
_FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
_KINDS = ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")
_CURVES: dict[bytes, type[hashes.SHA256 | hashes.SHA384 | hashes.SHA512]] = {
    b"ecdsa-sha2-nistp256": hashes.SHA256, b"ecdsa-sha2-nistp384": hashes.SHA384, b"ecdsa-sha2-nistp521": hashes.SHA512,
}  # fmt: skip
_RSA: dict[bytes, type[hashes.SHA256 | hashes.SHA512]] = {
    b"rsa-sha2-256": hashes.SHA256,
    b"rsa-sha2-512": hashes.SHA512,
}

OnRecord = Callable[[], Awaitable[None]]
"""Ends when all that was told is on record."""


class _Fields:
    """What a message holds, from left to right. Refused where it is shorter or longer."""

    def __init__(self, data: bytes) -> None:
        self._left = memoryview(data)

    def take(self, size: int) -> bytes:
        if size > len(self._left):
            raise Refused("a message that is too short")
        found, self._left = bytes(self._left[:size]), self._left[size:]
        return found

    def number(self) -> int:
        return int.from_bytes(self.take(4))

    def text(self) -> bytes:
        return self.take(self.number())

    def end(self) -> None:
        if self._left:
            raise Refused("a message that is too long")


def _text(data: bytes) -> bytes:
    return len(data).to_bytes(4) + data


def fingerprint(key: bytes) -> str:
    """As `ssh-keygen -l` shows it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def check_signature(key: bytes, signature: bytes, data: bytes) -> None:
    """Of a host. Refused where it is not this key's, or of an algorithm that hosts do not sign by any more (SHA-1)."""
    fields = _Fields(signature)
    algorithm, value = fields.text(), fields.text()
    fields.end()
    kind = _Fields(key).text()
    try:
        public = load_ssh_public_key(kind + b" " + base64.b64encode(key))
        if isinstance(public, ed25519.Ed25519PublicKey) and algorithm == kind:
            public.verify(value, data)
        elif isinstance(public, ec.EllipticCurvePublicKey) and algorithm == kind and algorithm in _CURVES:
            parts = _Fields(value)
            both = encode_dss_signature(int.from_bytes(parts.text()), int.from_bytes(parts.text()))
            public.verify(both, data, ec.ECDSA(_CURVES[algorithm]()))
        elif isinstance(public, rsa.RSAPublicKey) and algorithm in _RSA:
            size = (public.key_size + 7) // 8
            public.verify(value.rjust(size, b"\0"), data, padding.PKCS1v15(), _RSA[algorithm]())
        else:
            raise Refused("a host's signature of a kind that is not checked")
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        raise Refused("a connection's identifier that the host has not signed") from None


def known_keys(account: SshAccount) -> frozenset[bytes]:
    """The host's keys that the user's ssh knows, but for those that are revoked. Blocks. UsageError for none."""
    found, revoked = set[bytes](), set[bytes]()
    for file in map(os.path.expanduser, _FILES):
        if not os.path.isfile(file):
            continue
        try:
            done = subprocess.run(
                ["ssh-keygen", "-F", account.known_as, "-f", file],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            raise UsageError(f"--ssh-agent {account}: ssh-keygen cannot be run", "install OpenSSH's client") from None
        for line in done.stdout.decode(errors="replace").splitlines():
            words = line.split()
            marker = words.pop(0) if words and words[0].startswith("@") else ""
            if len(words) < 3 or words[0] == "#" or words[1] not in _KINDS or marker not in ("", "@revoked"):
                continue
            try:
                (revoked if marker else found).add(base64.b64decode(words[2], validate=True))
            except binascii.Error:
                continue
    if not found - revoked:
        what = f"--ssh-agent {account}: no key of {account.host} is in your known_hosts"
        raise UsageError(what, f"ssh {'' if account.port == 22 else f'-p {account.port} '}{account.user}@{account.host}"
                               " once, and compare the key that it shows")  # fmt: skip
    return frozenset(found - revoked)


@dataclass
class _Connection:
    """To the socket inside, of one client, with one of its own to the user's agent: what is bound is bound there."""

    agent: ByteStream
    reader: BufferedByteReceiveStream
    session: bytes = b""
    host_key: bytes = b""
    signed: set[bytes] = field(default_factory=set)

    async def ask(self, message: bytes) -> bytes:
        """Refused where the agent does not answer."""
        try:
            with anyio.fail_after(_WAIT_S):
                await self.agent.send(_text(message))
                return await receive(self.reader, _MAX_ANSWER)
        except (TimeoutError, *Cut):
            raise Refused("your ssh-agent does not answer", 502) from None


async def receive(reader: BufferedByteReceiveStream, most: int) -> bytes:
    """A message, without its length. BrokenResourceError for one that is longer than `most`, or empty."""
    size = int.from_bytes(await reader.receive_exactly(4))
    if not 0 < size <= most:
        raise anyio.BrokenResourceError
    return await reader.receive_exactly(size)


class SshAgent:
    """Of one sandbox, for its accounts."""

    def __init__(self, accounts: Sequence[SshAccount], on_request: OnRequest, on_record: OnRecord) -> None:
        """Blocks: reads known_hosts. UsageError where no agent runs, or a host is not known."""
        self._on_request, self._on_record = on_request, on_record
        self._turn = anyio.Lock()
        self._path = os.environ.get("SSH_AUTH_SOCK", "")
        if not self._path or not Path(self._path).is_socket():
            what = "SSH_AUTH_SOCK is not set" if not self._path else f"there is no socket {self._path}"
            raise UsageError(f"--ssh-agent: no ssh-agent runs here: {what}", 'eval "$(ssh-agent)"; ssh-add')
        self._known = {account: known_keys(account) for account in accounts}

    def put_into(self, policy: Policy) -> Policy:
        """With the socket's name and the hosts' keys, as a file inside."""
        known = "".join(
            f"{account.known_as} {_Fields(key).text().decode()} {base64.b64encode(key).decode()}\n"
            for account, keys in self._known.items() for key in sorted(keys)
        )  # fmt: skip
        ssh = f"ssh -o UserKnownHostsFile={KNOWN_HOSTS} -o StrictHostKeyChecking=yes"
        given = {"GIT_SSH_COMMAND": ssh, **policy.environment, "SSH_AUTH_SOCK": SSH_AGENT}
        return replace(policy, files={**policy.files, KNOWN_HOSTS: known}, environment=given)

    async def client(self, stream: ByteStream) -> None:
        """Until it leaves."""
        reader = BufferedByteReceiveStream(stream)
        async with stream:
            try:
                agent = await connected(self._path)
            except OSError as error:
                self._refuse(f"your ssh-agent cannot be reached: {error.strerror or error}")
                return
            async with agent:
                connection = _Connection(agent, BufferedByteReceiveStream(agent))
                try:
                    while True:
                        message = await receive(reader, _MAX_ASKED)
                        await stream.send(_text(await self._answer(message, connection)))
                except Cut:
                    return

    async def _answer(self, message: bytes, connection: _Connection) -> bytes:
        kind, fields = message[0], _Fields(message[1:])
        try:
            if kind == _LIST:
                fields.end()
                return _without_comments(await connection.ask(message))
            if kind == _SIGN:
                return await self._sign(message, fields, connection)
            if kind == _EXTENSION and fields.text() == _BIND:
                return await self._bind(message, fields, connection)
            raise Refused(f"the agent is asked {_WORDS.get(kind, f'something of kind {kind}')}")
        except Refused as refused:
            self._refuse(refused.reason)
            return _FAILURE

    async def _bind(self, message: bytes, fields: _Fields, connection: _Connection) -> bytes:
        host_key, session, signature, forwarding = fields.text(), fields.text(), fields.text(), fields.take(1)
        fields.end()
        if forwarding != b"\0":
            raise Refused("the agent would be forwarded to the host")
        if connection.session or not 0 < len(session) <= _MAX_SESSION:
            raise Refused("a second connection is bound, or none")
        if not any(host_key in keys for keys in self._known.values()):
            raise Refused(f"the connection ends at a host of the key {fingerprint(host_key)}, which is not one named")
        check_signature(host_key, signature, session)
        await connection.ask(message)  # an agent that knows of no sessions says no, and we have checked it
        connection.session, connection.host_key = session, host_key
        return _SUCCESS

    async def _sign(self, message: bytes, fields: _Fields, connection: _Connection) -> bytes:
        key, data, flags = fields.text(), fields.text(), fields.number()
        fields.end()
        account = self._account(_Fields(data), key, connection)
        if flags not in (0, 2, 4) or key in connection.signed:
            raise Refused("a second signature for one connection" if key in connection.signed else "flags of no use")
        connection.signed.add(key)
        what = f"a signature by {fingerprint(key)} as {account.user}"
        async with self._turn:
            self._tell(account, "allowed", what)
            await self._on_record()
            answer = await connection.ask(message)
        if answer[0] != _SIGNED:
            raise Refused(f"your ssh-agent makes no signature by {fingerprint(key)}", 502)
        return answer

    def _account(self, data: _Fields, key: bytes, connection: _Connection) -> SshAccount:
        """Whom a log-in is to, of which these are the bytes (RFC 4252 section 7). Refused for anything else."""
        try:
            session, kind = data.text(), data.take(1)[0]
            user, service, method, is_signed = data.text(), data.text(), data.text(), data.take(1)
            _algorithm, named = data.text(), data.text()
            host_key = data.text() if method == _HOSTBOUND else connection.host_key
            data.end()
        except Refused:
            raise Refused("a signature of what is no log-in by ssh") from None
        form = (kind, service, is_signed, named)
        if form != (_LOG_IN, b"ssh-connection", b"\1", key) or method not in (b"publickey", _HOSTBOUND):
            raise Refused("a signature of what is no log-in by ssh")
        if not connection.session:
            raise Refused("a log-in over a connection that no host has signed (OpenSSH before 8.9 does not show it)")
        if session != connection.session or host_key != connection.host_key:
            raise Refused("a log-in over another connection than the one that was shown")
        for account, keys in self._known.items():
            if connection.host_key in keys and account.user.encode() == user:
                return account
        raise Refused(f"a log-in as {shown(user.decode('ascii', 'replace'), 64)}, which is no account that is named")

    def _refuse(self, reason: str) -> None:
        self._tell(next(iter(self._known)), "refused", reason)

    def _tell(self, account: SshAccount, verdict: Literal["allowed", "refused"], reason: str) -> None:
        self._on_request(
            NetworkRequest(
                at=time.time(), host=account.host, port=account.port, method=METHOD, verdict=verdict, reason=reason
            )
        )

    def beside(self, server: Server) -> Server:
        """One server for both."""
        return _Both(server, self)


def _without_comments(answer: bytes) -> bytes:
    """The keys that are there: what the user calls them stays outside. Refused for what is no list."""
    fields = _Fields(answer)
    if fields.take(1)[0] != _KEYS:
        raise Refused("your ssh-agent lists no keys", 502)
    keys = []
    for _ in range(fields.number()):
        keys.append(fields.text())
        fields.text()
    return bytes([_KEYS]) + len(keys).to_bytes(4) + b"".join(_text(key) + _text(b"") for key in keys)


@dataclass(frozen=True)
class _Both:
    """Implements inside.Server."""

    server: Server
    agent: SshAgent

    @property
    def ports(self) -> Sequence[int]:
        return (*self.server.ports, PORT)

    def with_credentials(self, credentials: "Credentials") -> Server:
        return replace(self, server=self.server.with_credentials(credentials))

    def asking(self, doorkeeper: Doorkeeper) -> Server:
        return replace(self, server=self.server.asking(doorkeeper))

    async def serve(self, accept: Accept) -> None:
        send, received = anyio.create_memory_object_stream[ByteStream](math.inf)  # no more than the agent has open
        async with send, received, unwrap_exception_group(), anyio.create_task_group() as group:
            group.start_soon(self.server.serve, received.receive)
            while True:
                stream = await accept()
                if stream.extra(SocketAttribute.local_address, None) is None:
                    group.start_soon(self.agent.client, stream)
                else:
                    send.send_nowait(stream)
