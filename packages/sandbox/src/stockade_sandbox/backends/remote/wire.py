"""Frames over a byte stream, each whole or not at all: length, seal, payload.

    u32 length of payload | 16 bytes of HMAC-SHA256(key of this direction, u64 number of the frame, payload) | payload

A payload is u32 length of a JSON object, that object, then the raw bytes that go with it. A frame that was cut,
changed, repeated or left out ends the link: nothing of it is used. Any fragmentation of the stream is the same.
"""

import hashlib
import hmac
import struct

import anyio
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

MAX_FRAME_BYTES = 68 << 20
"""The input of a program is the largest thing that travels: 64 MiB."""
SEAL_BYTES = 16
SEND_S = 30.0
"""How long the peer may take for a piece."""
_PIECE_BYTES = 1 << 18
_LENGTH = struct.Struct("!I")


class LinkLost(Exception):
    """The connection cannot be used any more; the text says why."""


def seal(key: bytes, number: int, payload: bytes) -> bytes:
    return hmac.digest(key, struct.pack("!Q", number) + payload, hashlib.sha256)[:SEAL_BYTES]


def packed(text: bytes, raw: bytes) -> bytes:
    return _LENGTH.pack(len(text)) + text + raw


def unpacked(payload: bytes) -> tuple[bytes, bytes]:
    """The JSON text and the raw bytes. LinkLost for anything else."""
    if len(payload) < _LENGTH.size:
        raise LinkLost("the peer sent a frame that is too short")
    (size,) = _LENGTH.unpack_from(payload)
    if size > len(payload) - _LENGTH.size:
        raise LinkLost("the peer sent a frame that contradicts itself")
    return payload[_LENGTH.size : _LENGTH.size + size], payload[_LENGTH.size + size :]


class Link:
    """One connection after the greeting. One sender and one receiver at a time; both may be cancelled safely."""

    def __init__(self, stream: ByteStream, buffered: BufferedByteReceiveStream, send_key: bytes, receive_key: bytes):
        self._stream, self._buffered = stream, buffered
        self._send_key, self._receive_key = send_key, receive_key
        self._sent = self._received = 0
        self._awaited: int | None = None
        self._sending = anyio.Lock()

    async def send(self, text: bytes, raw: bytes = b"") -> None:
        """Whole or LinkLost; cancelling waits for the end of it."""
        payload = packed(text, raw)
        if len(payload) > MAX_FRAME_BYTES:
            raise LinkLost("a frame is too large")
        async with self._sending:
            frame = _LENGTH.pack(len(payload)) + seal(self._send_key, self._sent, payload) + payload
            self._sent += 1
            try:
                for at in range(0, len(frame), _PIECE_BYTES):
                    with anyio.fail_after(SEND_S, shield=True):
                        await self._stream.send(frame[at : at + _PIECE_BYTES])
            except TimeoutError:
                raise LinkLost("the peer takes nothing any more") from None
            except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                raise LinkLost("the connection broke") from error

    async def receive(self) -> tuple[bytes, bytes]:
        """The next frame's text and raw bytes. Cancelled, it can be called again and nothing is lost."""
        try:
            if self._awaited is None:
                (length,) = _LENGTH.unpack(await self._buffered.receive_exactly(_LENGTH.size))
                if length > MAX_FRAME_BYTES:
                    raise LinkLost("the peer announced a frame that is too large")
                self._awaited = length
            whole = await self._buffered.receive_exactly(SEAL_BYTES + self._awaited)
        except (OSError, anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError) as error:
            raise LinkLost("the connection ended") from error
        except anyio.ClosedResourceError as error:
            raise LinkLost("the connection was closed") from error
        self._awaited = None
        mark, payload = whole[:SEAL_BYTES], whole[SEAL_BYTES:]
        if not hmac.compare_digest(mark, seal(self._receive_key, self._received, payload)):
            raise LinkLost("the peer sent a frame with a wrong seal")
        self._received += 1
        return unpacked(payload)

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.aclose_forcefully(self._stream)
