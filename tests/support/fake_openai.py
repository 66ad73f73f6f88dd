"""An OpenAI-compatible server on loopback that answers, or misbehaves, as it is told. For tests and benchmarks.

    async with FakeOpenAI([says("hello"), fails(429, headers={"Retry-After": "1"}), says("again")]) as server:
        model = OpenAIModel(server.base_url, "m")

Replies are taken in order, one a question; when none is left it says "ok". `routes` answers other paths with JSON,
whether they are asked for by GET or by POST; one that is a function is called for it each time. fake_anthropic.py
makes the same server speak Anthropic's API.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import anyio
from anyio.abc import SocketAttribute, SocketStream

End = Literal["done", "no_done", "cut", "stall"]
_CLOSED = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError)
_MAX_HEAD_BYTES = 64 * 1024


@dataclass
class Reply:
    """One answer. A dict among `pieces` becomes an event, bytes go out as they are.

    `end`: `done` sends [DONE]; `no_done` leaves it out; `cut` drops the connection; `stall` says no more until the
    client goes. `status` other than 200 sends `body` instead, and so does 200 with a body. `split` sends the pieces in
    parts of so many bytes, whatever they cut in two.
    """

    pieces: Sequence[dict[str, Any] | bytes] = ()
    end: End = "done"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    gate: anyio.Event | None = None
    split: int = 0


@dataclass
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


def piece(content: str | None = None, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """One chunk of a streaming answer."""
    return {
        "object": "chat.completion.chunk",
        "model": "fake",
        "choices": [{"index": 0, "delta": {"content": content, **delta}, "finish_reason": finish}],
    }


def says(text: str, finish: str = "stop", usage: tuple[int, int, int] = (10, 4, 2)) -> Reply:
    """A well-behaved answer in words; `usage` is prompt, cached and completion tokens."""
    parts = text.split(" ")
    pieces = [piece(role="assistant")]
    pieces += [piece(word if last else f"{word} ") for word, last in zip(parts, _lasts(parts), strict=True)]
    prompt, cached, completion = usage
    counted = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return Reply([*pieces, piece(finish=finish), {"choices": [], "usage": counted}])


def fails(status: int, message: str = "no", headers: dict[str, str] | None = None, **error: Any) -> Reply:
    """An error as OpenAI and llama.cpp write it."""
    body = json.dumps({"error": {"code": status, "message": message, **error}}).encode()
    return Reply(status=status, headers=headers or {}, body=body)


def _lasts(words: Sequence[str]) -> list[bool]:
    return [False] * (len(words) - 1) + [True]


class FakeOpenAI:
    """`asked` holds every request; `gone` is set when a client leaves amid an answer. What `refuses` makes of a
    question is its answer, and no reply is used up.
    """

    def __init__(
        self,
        replies: Iterable[Reply] = (),
        models: Sequence[dict[str, Any]] = ({"id": "fake"},),
        props: dict[str, Any] | None = None,
        get_status: int = 200,
        routes: Mapping[str, object] | None = None,
        otherwise: Callable[[], Reply] | None = None,
        refuses: Callable[[Asked], Reply | None] = lambda _: None,
    ) -> None:
        self.replies = list(replies)
        self.asked: list[Asked] = []
        self.connections = 0
        self.port = 0
        self._models, self._props, self._get_status = models, props, get_status
        self.routes = dict(routes or {})
        self._otherwise = otherwise or (lambda: says("ok"))
        self._refuses = refuses
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        """Without a version path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def questions(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.method == "POST" and asked.path not in self.routes]

    async def __aenter__(self) -> Self:
        self.gone = anyio.Event()
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.port = listener.extra(SocketAttribute.local_port)
        await self._stack.enter_async_context(listener)
        group = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(group.cancel_scope.cancel)
        group.start_soon(listener.serve, self._serve)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _serve(self, stream: Any) -> None:
        self.connections += 1
        async with stream:
            try:
                while asked := await _read_request(stream):
                    self.asked.append(asked)
                    if asked.method == "GET" or asked.path in self.routes:
                        await self._tell(stream, asked.path)
                    elif (refusal := self._refuses(asked)) is not None:
                        await self._answer(stream, refusal)
                    else:
                        await self._answer(stream, self.replies.pop(0) if self.replies else self._otherwise())
            except _CLOSED:
                self.gone.set()

    async def _tell(self, stream: SocketStream, path: str) -> None:
        body = self.routes.get(path)
        if callable(body):
            body = body()
        if body is not None:
            pass
        elif path == "/v1/models":
            body = {"object": "list", "data": list(self._models)}
        elif path == "/props":
            body = self._props
        if self._get_status != 200 or body is None:
            status = self._get_status if self._get_status != 200 else 404
            await _send_whole(stream, status, {}, b'{"error": {"message": "no"}}')
        else:
            await _send_whole(stream, 200, {}, json.dumps(body).encode())

    async def _answer(self, stream: SocketStream, reply: Reply) -> None:
        if reply.gate is not None:
            await reply.gate.wait()
        if reply.body is not None:
            await _send_whole(stream, reply.status, reply.headers, reply.body)
            return
        headers = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"} | reply.headers
        await stream.send(_head(reply.status, headers))
        pieces = [item if isinstance(item, bytes) else _event(item) for item in reply.pieces]
        if reply.split:
            whole, size = b"".join(pieces), reply.split
            pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
        for data in pieces:
            await _send_chunk(stream, data)
        if reply.end == "stall":
            while True:
                await stream.receive()
        if reply.end == "cut":
            raise anyio.EndOfStream
        if reply.end == "done":
            await _send_chunk(stream, b"data: [DONE]\n\n")
        await stream.send(b"0\r\n\r\n")


def _event(item: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(item).encode() + b"\n\n"


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Fake", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


async def _send_chunk(stream: SocketStream, data: bytes) -> None:
    await stream.send(b"%x\r\n%b\r\n" % (len(data), data))


async def _send_whole(stream: SocketStream, status: int, headers: dict[str, str], body: bytes) -> None:
    whole = {"Content-Type": "application/json", "Content-Length": str(len(body))} | headers
    await stream.send(_head(status, whole) + body)


async def _read_request(stream: SocketStream) -> Asked | None:
    """None when the client closed between two requests."""
    data = b""
    while b"\r\n\r\n" not in data:
        try:
            data += await stream.receive()
        except _CLOSED:
            return None
        if len(data) > _MAX_HEAD_BYTES and b"\r\n\r\n" not in data:
            raise anyio.EndOfStream
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    parts = [body]
    have = len(body)
    while have < int(headers.get("content-length", 0)):
        parts.append(await stream.receive())
        have += len(parts[-1])
    method, path, _ = first.split(" ", 2)
    return Asked(method, path, headers, b"".join(parts))
