"""A file server on loopback with Range, that cuts connections, refuses, sends elsewhere and says nothing as told."""

import json
import re
import ssl
from contextlib import AsyncExitStack, suppress
from typing import Any, Self

import anyio
from anyio.abc import SocketAttribute
from anyio.streams.tls import TLSListener


class FakeHub:
    """Serves `data` at every path but those of `pages`, which are JSON; `heads` are the requests' heads.

    `cuts`: bytes after which each of the first answers breaks off; `holds`: the same, but it only falls silent;
    `status`: of every answer, with the hub's word for it in `error_code`; `moved`: paths and the addresses where they
    are; `silent`: requests are taken and not answered; `headers`: more of them with the file, in lines that end in
    CRLF; `tls`: by the name localhost.
    """

    def __init__(
        self,
        data: bytes,
        cuts: tuple[int, ...] = (),
        status: int = 0,
        ranges: bool = True,
        pages: dict[str, Any] | None = None,
        error_code: str = "",
        moved: dict[str, str] | None = None,
        silent: bool = False,
        headers: str = "",
        tls: ssl.SSLContext | None = None,
        holds: tuple[int, ...] = (),
    ) -> None:
        self.data, self.cuts, self.status, self.ranges = data, list(cuts), status, ranges
        self.pages, self.error_code, self.moved, self.silent = pages or {}, error_code, moved or {}, silent
        self.headers, self._tls, self._holds = headers, tls, list(holds)
        self.heads: list[str] = []
        self.was_asked = anyio.Event()
        self.asked: list[tuple[str, int]] = []
        self.url = ""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(SocketAttribute.local_port)
        self.url = f"https://localhost:{port}" if self._tls else f"http://127.0.0.1:{port}"
        await self._stack.enter_async_context(listener)
        group = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(group.cancel_scope.cancel)
        served = TLSListener(listener, self._tls, standard_compatible=False) if self._tls else listener
        group.start_soon(served.serve, self._serve_one)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _serve_one(self, stream: Any) -> None:
        with suppress(anyio.BrokenResourceError, anyio.EndOfStream):  # who asks may leave in the middle
            await self._serve(stream)

    async def _serve(self, stream: Any) -> None:
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                head += await stream.receive()
            path = head.split(b" ", 2)[1].decode()
            self.heads.append(head.decode())
            self.was_asked.set()
            if self.silent:
                await anyio.sleep_forever()
            if path in self.moved:
                await stream.send(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close\r\n"
                                  b"Location: %b\r\n\r\n" % self.moved[path].encode())  # fmt: skip
                return
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
                said = f"X-Error-Code: {self.error_code}\r\n".encode() if self.error_code else b""
                await stream.send(b"HTTP/1.1 %d No\r\n%bContent-Length: 0\r\nConnection: close\r\n\r\n"
                                  % (self.status, said))  # fmt: skip
                return
            status = b"206 Partial\r\nContent-Range: bytes %d-%d/%d" % (start, len(self.data) - 1, len(self.data))
            await stream.send(
                b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\nConnection: close\r\n\r\n"
                % (status if found else b"200 OK", self.headers.encode(), len(body))
            )
            if self._holds:
                await stream.send(body[: self._holds.pop(0)])
                await anyio.sleep_forever()
            if not head.startswith(b"HEAD"):
                await stream.send(body[: self.cuts.pop(0)] if self.cuts else body)
