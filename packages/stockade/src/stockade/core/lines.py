"""Lines that somebody else sends, as the editors' and MCP's servers read them: never more of one than it may have."""

import os
from collections.abc import AsyncIterator
from contextlib import suppress

import anyio

_PIECE = 1 << 16


async def bounded_lines(descriptor: int, most: int) -> AsyncIterator[bytes | None]:
    """Lines from a descriptor, None for one of more than `most` bytes.

    No thread waits for it, which would outlive the event loop and hold up the end of the process.
    """
    buffer, too_long = bytearray(), False
    while True:
        with suppress(PermissionError):  # a file, which never lets wait
            await anyio.wait_readable(descriptor)
        if not (data := os.read(descriptor, _PIECE)):
            break
        *ended, rest = data.split(b"\n")
        for piece in ended:
            buffer += piece
            yield None if too_long or len(buffer) > most else bytes(buffer)
            buffer, too_long = bytearray(), False
        buffer += rest
        if len(buffer) > most:
            buffer, too_long = bytearray(), True
    if buffer:
        yield bytes(buffer)
