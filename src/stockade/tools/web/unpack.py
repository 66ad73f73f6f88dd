"""Bodies as they come, unpacked as far as they may be: a gzip bomb ends at the limit, before it is in memory."""

import zlib
from dataclasses import dataclass, field
from typing import Protocol

from stockade.core.errors import ActionFailed

ACCEPTED = "gzip, deflate"
_GZIP_OR_ZLIB, _RAW = 47, -15


class _Unpacker(Protocol):
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...

    @property
    def unconsumed_tail(self) -> bytes: ...


@dataclass(slots=True)
class Body:
    """ActionFailed when it is larger than `limit` bytes, packed or not, or packed in a way nobody asked for."""

    encoding: str
    limit: int
    data: bytearray = field(default_factory=bytearray)
    _packed: int = 0
    _unpacker: _Unpacker | None = None
    _may_be_raw: bool = False

    def __post_init__(self) -> None:
        coding = self.encoding.strip().lower()
        if coding in ("gzip", "x-gzip", "deflate"):
            self._unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
            self._may_be_raw = coding == "deflate"
        elif coding not in ("", "identity"):
            raise ActionFailed("the page is packed in a way that was not asked for")

    def feed(self, piece: bytes) -> None:
        self._packed += len(piece)
        if self._packed > self.limit:
            raise self._too_large()
        if self._unpacker is None:
            self.data += piece
            return
        room = self.limit + 1 - len(self.data)
        try:
            self.data += self._unpacker.decompress(piece, room)
        except zlib.error:
            if not self._may_be_raw or self._packed != len(piece):
                raise ActionFailed("the page is packed, and broken") from None
            # RFC 9110 section 8.4.1.2: some servers send it without zlib
            self._unpacker, self._may_be_raw, self._packed = zlib.decompressobj(_RAW), False, 0
            self.feed(piece)
            return
        if len(self.data) > self.limit or self._unpacker.unconsumed_tail:
            raise self._too_large()

    def _too_large(self) -> ActionFailed:
        return ActionFailed(f"the page is larger than {self.limit >> 20} MiB")
