"""The first words of a connection: both prove that they have the token, which itself never travels.

    client   {"stockade": 1, "nonce": C}
    server   {"stockade": 1, "nonce": S}
    client   {"proof": HMAC(token, "client" C S)}        first, so that whoever connects learns nothing to guess with
    server   {"proof": HMAC(token, "server" C S)}        or {"refused": why}

From there on frames are sealed by keys of this connection alone (wire.py). A client that only wants to know whether a
server is there sends {"probe": true} and gets {"stockade": 1} back.
"""

import hashlib
import hmac
import json
import secrets
import socket
import struct
from contextlib import suppress
from typing import Any

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream

from stockade_sandbox.backends.remote.wire import Link, LinkLost
from stockade_sandbox.errors import SandboxFailed, UsageError

VERSION = 3
GREETING_S = 10.0
MAX_WORD_BYTES = 512
"""Of what is read from somebody who has proved nothing."""
_NONCE_BYTES = 32
_LENGTH = struct.Struct("!I")
_TCP = (
    ("TCP_KEEPIDLE", 15),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 4),
    ("TCP_USER_TIMEOUT", 30_000),
    ("TCP_NODELAY", 1),
)


async def as_client(stream: ByteStream, token: bytes) -> Link:
    """Raises LinkLost, UsageError for a wrong token, SandboxFailed for a server that cannot be spoken to."""
    watch_peer(stream)
    buffered = BufferedByteReceiveStream(stream)
    mine = secrets.token_hex(_NONCE_BYTES)
    with _in_time("the server"):
        await _say(stream, {"stockade": VERSION, "nonce": mine})
        theirs = _nonce(await _hear(buffered))
        nonces = (mine + theirs).encode()
        await _say(stream, {"proof": _proof(token, b"client", nonces)})
        answer = await _hear(buffered)
    if "refused" in answer:
        raise UsageError("the server does not take the token", "both sides need the same token file")
    if not _proves(answer, token, b"server", nonces):
        raise UsageError("the server does not have the token: it is not the one that is meant", "is the address right?")
    return Link(stream, buffered, _key(token, b"c2s", nonces), _key(token, b"s2c", nonces))


async def as_server(stream: ByteStream, token: bytes) -> Link | None:
    """None when nothing more is to be said: it was a probe, or somebody without the token. Raises LinkLost."""
    watch_peer(stream)
    buffered = BufferedByteReceiveStream(stream)
    mine = secrets.token_hex(_NONCE_BYTES)
    with _in_time("the client"):
        hello = await _hear(buffered)
        if hello.get("probe") is True:
            await _say(stream, {"stockade": VERSION})
            return None
        await _say(stream, {"stockade": VERSION, "nonce": mine})
        nonces = (_nonce(hello) + mine).encode()
        if not _proves(await _hear(buffered), token, b"client", nonces):
            await _say(stream, {"refused": "wrong token"})
            return None
        await _say(stream, {"proof": _proof(token, b"server", nonces)})
    return Link(stream, buffered, _key(token, b"s2c", nonces), _key(token, b"c2s", nonces))


async def probe(host: str, port: int) -> int:
    """The version that the server there speaks. SandboxFailed when there is none."""
    try:
        with anyio.fail_after(GREETING_S):
            async with await anyio.connect_tcp(host, port) as stream:
                await _say(stream, {"probe": True})
                answer = await _hear(BufferedByteReceiveStream(stream))
    except (OSError, LinkLost, TimeoutError) as error:
        raise SandboxFailed(f"no sandbox server answers at {host}:{port}", "stockade sandbox serve") from error
    if not isinstance(version := answer.get("stockade"), int):
        raise SandboxFailed(f"what answers at {host}:{port} is no sandbox server")
    return version


def watch_peer(stream: ByteStream) -> None:
    """The kernel notices within a minute that the other machine is gone, however quiet the two are."""
    found: socket.socket | None = stream.extra(SocketAttribute.raw_socket, None)
    if found is None:
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP:
        if (option := getattr(socket, name, None)) is not None:
            with suppress(OSError):
                found.setsockopt(socket.IPPROTO_TCP, option, value)


class _in_time:
    """Inside, the whole greeting is over in GREETING_S, however slowly it drips; else LinkLost."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._scope = anyio.move_on_after(GREETING_S)

    def __enter__(self) -> None:
        self._scope.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._scope.__exit__(*error)
        if self._scope.cancelled_caught:
            raise LinkLost(f"{self._who} did not finish the greeting")


async def _say(stream: ByteStream, word: dict[str, Any]) -> None:
    text = json.dumps(word).encode()
    try:
        await stream.send(_LENGTH.pack(len(text)) + text)
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
        raise LinkLost("the connection broke") from error


async def _hear(buffered: BufferedByteReceiveStream) -> dict[str, Any]:
    try:
        (length,) = _LENGTH.unpack(await buffered.receive_exactly(_LENGTH.size))
        if length > MAX_WORD_BYTES:
            raise LinkLost("what the peer says is no greeting")
        word = json.loads(await buffered.receive_exactly(length))
    except (OSError, anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError) as error:
        raise LinkLost("the connection ended in the greeting") from error
    except (ValueError, RecursionError) as error:
        raise LinkLost("what the peer says is no greeting") from error
    if not isinstance(word, dict):
        raise LinkLost("what the peer says is no greeting")
    return word


def _nonce(word: dict[str, Any]) -> str:
    if word.get("stockade") != VERSION:
        raise SandboxFailed("the peer speaks another version of the protocol", "install the same Stockade on both")
    nonce = word.get("nonce")
    if not isinstance(nonce, str) or len(nonce) != 2 * _NONCE_BYTES or not nonce.isascii():
        raise LinkLost("what the peer says is no greeting")
    return nonce


def _proof(token: bytes, who: bytes, nonces: bytes) -> str:
    return hmac.digest(token, b"stockade remote 1 proof " + who + nonces, hashlib.sha256).hex()


def _proves(word: dict[str, Any], token: bytes, who: bytes, nonces: bytes) -> bool:
    given = word.get("proof")
    return isinstance(given, str) and hmac.compare_digest(given.encode(), _proof(token, who, nonces).encode())


def _key(token: bytes, direction: bytes, nonces: bytes) -> bytes:
    return hmac.digest(token, b"stockade remote 1 key " + direction + nonces, hashlib.sha256)
