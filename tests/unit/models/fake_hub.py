"""A file server on loopback with Range, that cuts connections and refuses as it is told."""

import json
import re
from contextlib import AsyncExitStack
from typing import Any, Self

import anyio
from anyio.abc import SocketAttribute


class FakeHub:
    """Serves `data` at every path but those of `pages`, which are JSON; `heads` are the requests' heads.

    `cuts`: bytes after which each of the first answers breaks off.
    """

    def __init__(
        self,
        data: bytes,
        cuts: tuple[int, ...] = (),
        status: int = 0,
        ranges: bool = True,
        pages: dict[str, Any] | None = None,
    ) -> None:
        self.data, self.cuts, self.status, self.ranges = data, list(cuts), status, ranges
        self.pages = pages or {}
        self.heads: list[str] = []
        self.asked: list[tuple[str, int]] = []
        self.url = ""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        await self._stack.enter_async_context(listener)
        group = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(group.cancel_scope.cancel)
        group.start_soon(listener.serve, self._serve)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _serve(self, stream: Any) -> None:
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                head += await stream.receive()
            path = head.split(b" ", 2)[1].decode()
            self.heads.append(head.decode())
            if path in self.pages and not self.status:
                page = json.dumps(self.pages[path]).encode()
                await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
                                  b"Content-Length: %d\r\n\r\n%b" % (len(page), page))  # fmt: skip
                return
            found = re.search(rb"range: bytes=(\d+)-", head, re.IGNORECASE) if self.ranges else None
            start = int(found[1]) if found else 0
            self.asked.append((path, start))
            body = self.data[start:]
            if self.status:
                await stream.send(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % self.status)
                return
            status = b"206 Partial\r\nContent-Range: bytes %d-%d/%d" % (start, len(self.data) - 1, len(self.data))
            await stream.send(
                b"HTTP/1.1 %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                % (status if found else b"200 OK", len(body))
            )
            await stream.send(body[: self.cuts.pop(0)] if self.cuts else body)
