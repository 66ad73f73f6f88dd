"""The head and the tail of an output, in bounded memory, with an exact count of what is missing between them."""

from collections import deque
from typing import BinaryIO

from stockade_sandbox.errors import SandboxFailed
from stockade_sandbox.results import Chunk, Stream

_Piece = tuple[Stream, bytes]


def unfinished(data: bytes) -> int:
    """How many bytes at the end of `data` begin a UTF-8 character that does not end in it: 0 to 3."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 2 if 0xC2 <= byte <= 0xDF else 3 if 0xE0 <= byte <= 0xEF else 4 if 0xF0 <= byte <= 0xF4 else 1
        return back if length > back else 0
    return 0


def misaligned(data: bytes) -> int:
    """How many bytes at the start of `data` can only be the rest of a character: 0 to 3."""
    count = 0
    while count < min(3, len(data)) and data[count] & 0xC0 == 0x80:
        count += 1
    return count


class Clip:
    """Keeps at most `limit` bytes: half from the start, half from the end, in order of arrival.

    The pieces end at character borders wherever the output is UTF-8, so cutting never turns text into bytes.
    Memory stays under twice `limit` and the longest piece added. `whole`, where given, gets all of it up to
    `whole_limit` bytes.
    """

    def __init__(self, limit: int, whole: BinaryIO | None = None, whole_limit: int = 0) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - limit // 2
        self._head: list[_Piece] = []
        self._tail: deque[_Piece] = deque()
        self._head_bytes = self._tail_bytes = self._dropped = 0
        self._carried: dict[Stream, bytes] = {"stdout": b"", "stderr": b""}
        self._whole = whole
        self._whole_left = whole_limit
        self._whole_error: OSError | None = None

    def add(self, stream: Stream, data: bytes) -> None:
        """A piece as it arrived. A character that is cut off at its end waits for the next piece of the stream."""
        self._tee(data)
        data = self._carried[stream] + data
        cut = len(data) - unfinished(data)
        self._carried[stream] = data[cut:]
        self._keep(stream, data[:cut])

    def finish(self) -> tuple[tuple[Chunk, ...], int]:
        """The chunks and the number of bytes cut. SandboxFailed when the whole output could not be written."""
        for stream, rest in self._carried.items():
            self._keep(stream, rest)
        self._carried = {"stdout": b"", "stderr": b""}
        if self._whole_error:
            raise SandboxFailed(f"a command's output cannot be kept: {self._whole_error}") from self._whole_error
        self._trim_tail(exactly=True)
        pieces = [*_merged(self._head), *_merged(self._tail)] if self._dropped else _merged([*self._head, *self._tail])
        return tuple(Chunk.of(stream, data) for stream, data in pieces), self._dropped

    def _tee(self, data: bytes) -> None:
        if self._whole is None or self._whole_error or self._whole_left <= 0:
            return
        try:
            self._whole.write(data[: self._whole_left])
        except OSError as error:
            self._whole_error = error
        self._whole_left -= len(data)

    def _keep(self, stream: Stream, data: bytes) -> None:
        room = self._head_limit - self._head_bytes
        if room > 0 and data:
            taken = data[:room]
            if len(data) > room:
                taken = taken[: len(taken) - unfinished(taken)]
                self._tail_limit += room - len(taken)
                self._head_limit -= room - len(taken)
            self._head.append((stream, taken))
            self._head_bytes += len(taken)
            data = data[len(taken) :]
        if data:
            self._tail.append((stream, data))
            self._tail_bytes += len(data)
            self._trim_tail(exactly=False)

    def _trim_tail(self, *, exactly: bool) -> None:
        while self._tail and self._tail_bytes - len(self._tail[0][1]) >= self._tail_limit:
            self._drop(len(self._tail.popleft()[1]))
        excess = self._tail_bytes - self._tail_limit
        if self._tail and excess > 0 and (exactly or excess > self._tail_limit):
            stream, data = self._tail.popleft()
            cut = excess + misaligned(data[excess:])
            self._drop(cut)
            if cut < len(data):
                self._tail.appendleft((stream, data[cut:]))

    def _drop(self, count: int) -> None:
        self._tail_bytes -= count
        self._dropped += count


def _merged(pieces: "list[_Piece] | deque[_Piece]") -> list[_Piece]:
    """Neighbours of one stream as one piece."""
    runs: list[tuple[Stream, list[bytes]]] = []
    for stream, data in pieces:
        if runs and runs[-1][0] == stream:
            runs[-1][1].append(data)
        elif data:
            runs.append((stream, [data]))
    return [(stream, b"".join(parts)) for stream, parts in runs]
