"""The proxy: takes what clients inside open, connects outside, and reports every request.

Whatever comes in is hostile; whatever goes out was asked for by a name that is on the list, to an address that was
checked, and the check is not repeated by anybody: the connection is made to that very address.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import anyio
from anyio.abc import ByteStream, SocketStream

from stockade_sandbox.egress import http
from stockade_sandbox.egress.inside import Accept, OnRequest
from stockade_sandbox.egress.relay import Cut, End, Meter, copy_body, tunnel
from stockade_sandbox.egress.resolve import (
    AllowPrivate,
    Resolver,
    never_private,
    public_addresses,
    system_resolver,
)
from stockade_sandbox.egress.rules import Refused, Rules, Target, parse_authority, shown
from stockade_sandbox.egress.tls import UNRECOGNIZED_NAME, NotTls, server_name
from stockade_sandbox.policy import Policy
from stockade_sandbox.results import NetworkRequest
from stockade_sandbox.stoppable import unwrap_exception_group

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_MAX_INTERIM = 8


@dataclass(frozen=True)
class Bounds:
    """`connections` at once; the rest waits. Seconds for the rest."""

    connections: int = 64
    head_s: float = 15.0
    connect_s: float = 15.0
    idle_s: float = 300.0
    linger_s: float = 1.0


@dataclass
class _Entry:
    """A request as it will be on record."""

    method: str = "?"
    host: str = ""
    port: int = 0
    allowed: bool = False
    status: int = 0
    reason: str = ""

    def refuse(self, refused: Refused) -> bytes:
        """What to say to the client, in the language it speaks at this point; nothing in the middle of an answer.

        A server that failed was allowed all the same.
        """
        begun, in_tunnel = self.status != 0, self.status != 0 and self.method == "CONNECT"
        self.reason, self.status = refused.reason, refused.status
        self.allowed = self.allowed and refused.status >= 500
        if in_tunnel and not isinstance(refused, NotTls):
            return UNRECOGNIZED_NAME
        return http.refusal(refused) if in_tunnel or not begun else b""


@dataclass(frozen=True)
class Egress:
    """One sandbox's way out. `resolver` and `allow_private` are there for tests; no policy or flag reaches them."""

    rules: Rules
    on_request: OnRequest
    bounds: Bounds = Bounds()
    resolver: Resolver = system_resolver
    allow_private: AllowPrivate = never_private
    now: Callable[[], float] = time.time

    @classmethod
    def of(cls, policy: Policy, on_request: OnRequest) -> "Egress":
        """UsageError for a rule that is none."""
        return cls(Rules.of(policy.network), on_request)

    async def serve(self, accept: Accept) -> None:
        """Until it is cancelled; every connection is closed with it."""
        limit = anyio.CapacityLimiter(self.bounds.connections)
        async with unwrap_exception_group(), anyio.create_task_group() as group:
            while True:
                token = object()
                await limit.acquire_on_behalf_of(token)
                group.start_soon(self._connection, await accept(), limit, token)

    async def _connection(self, stream: ByteStream, limit: anyio.CapacityLimiter, token: object) -> None:
        try:
            async with stream:
                client = End.of(stream)
                while await self._request(client):
                    pass
        finally:
            limit.release_on_behalf_of(token)

    async def _request(self, client: End) -> bool:
        """One request; whether another may follow on this connection."""
        head = await self._head(client)
        if head is None:
            return False
        answer = b""
        with self._recorded() as (entry, meter):
            try:
                if isinstance(head, Refused):
                    raise head
                if await self._perform(client, head, entry, meter):
                    return True
            except Refused as refused:
                answer = entry.refuse(refused)
            except TimeoutError:
                silence = Refused(f"nothing moved for {self.bounds.idle_s:g} s", 504)
                if entry.status:
                    entry.reason = silence.reason
                else:
                    answer = entry.refuse(silence)
            except Cut:
                entry.reason = "the connection was cut"
        await self._last_words(client, answer)
        return False

    async def _head(self, client: End) -> bytes | Refused | None:
        """None when nothing was asked for."""
        try:
            with anyio.fail_after(self.bounds.head_s):
                return await client.reader.receive_until(http.END, http.MAX_HEAD_BYTES) + http.END
        except anyio.DelimiterNotFound:
            return Refused("a request head that is too long", 431)
        except TimeoutError:
            refused = Refused(f"a request head that was not whole within {self.bounds.head_s:g} s", 408)
        except Cut:
            refused = Refused("a request head that broke off", 400)
        return refused if client.reader.buffer else None

    @contextmanager
    def _recorded(self) -> Iterator[tuple[_Entry, Meter]]:
        """Reports at the end, however it comes, the sandbox's own included."""
        entry, meter, started = _Entry(), Meter(), time.monotonic()
        try:
            yield entry, meter
        finally:
            self.on_request(
                NetworkRequest(
                    at=self.now(),
                    host=entry.host,
                    port=entry.port,
                    method=entry.method,
                    verdict="allowed" if entry.allowed else "refused",
                    reason=entry.reason,
                    status=entry.status,
                    bytes_up=meter.up,
                    bytes_down=meter.down,
                    duration_s=round(time.monotonic() - started, 6),
                )
            )

    async def _perform(self, client: End, data: bytes, entry: _Entry, meter: Meter) -> bool:
        request = http.parse_request(data)
        entry.method = request.method
        entry.host = shown(request.target)
        if request.method == "CONNECT":
            target = parse_authority(request.target)
            http.check_host(request, target, 443 if target.port == 443 else None)
            await self._tunnel(client, target, entry, meter)
            return False
        target, path = http.absolute_form(request.target)
        http.check_host(request, target, 80)
        framing = http.request_framing(request)
        async with await self._connect(target, entry) as stream:
            return await self._exchange(client, End.of(stream), request, target, path, framing, entry, meter)

    async def _connect(self, target: Target, entry: _Entry) -> SocketStream:
        """A connection to one of the addresses that were checked. Refused for all other reasons."""
        entry.host, entry.port = target.host, target.port
        self.rules.judge(target)
        addresses = await public_addresses(target, self.resolver, self.allow_private)
        entry.allowed = True
        why = "no answer"
        with anyio.move_on_after(self.bounds.connect_s):
            for address in addresses:
                try:
                    return await anyio.connect_tcp(str(address), target.port)
                except OSError as error:
                    why = error.strerror or str(error.__cause__ or error)
        raise Refused(f"cannot connect to {target.host}:{target.port}: {shown(why)}", 502)

    async def _tunnel(self, client: End, target: Target, entry: _Entry, meter: Meter) -> None:
        """CONNECT: the name in the ClientHello is the target's; after it the bytes are nobody's business."""
        async with await self._connect(target, entry) as server:
            await client.stream.send(_ESTABLISHED)
            entry.status = 200
            hello = await self._hello(client, target, entry)
            meter.count("up", len(hello))
            await server.send(hello)
            await tunnel(client, server, meter, self.bounds.idle_s)

    async def _hello(self, client: End, target: Target, entry: _Entry) -> bytes:
        data = b""
        try:
            with anyio.fail_after(self.bounds.head_s):
                while (name := server_name(data)) is None:
                    data += await client.reader.receive(4096)
        except TimeoutError:
            raise Refused(f"no TLS ClientHello within {self.bounds.head_s:g} s") from None
        if name != target.host:
            raise Refused(f"the TLS ClientHello names {name}, the CONNECT {target.host}")
        return data

    async def _exchange(
        self, client: End, server: End, request: http.Request, target: Target, path: str, framing: http.Framing,
        entry: _Entry, meter: Meter,
    ) -> bool:  # fmt: skip
        """One request to one server, on a connection of its own: nothing of it can mix with another."""
        head = http.request_head(request, target, path, framing)
        meter.count("up", len(head))
        await server.stream.send(head)
        if framing and "100-continue" in (value.lower() for value in http.values(request.headers, "expect")):
            await client.stream.send(_CONTINUE)
        with anyio.fail_after(self.bounds.idle_s) as patience:

            def moved(way: Literal["up", "down"]) -> Callable[[int], None]:
                def count(size: int) -> None:
                    meter.count(way, size)
                    patience.deadline = anyio.current_time() + self.bounds.idle_s

                return count

            sent_all = anyio.Event()

            async def upload() -> None:
                try:
                    await copy_body(client, server.stream, framing, moved("up"))
                except anyio.BrokenResourceError:
                    return  # the server has heard enough; its answer says why
                sent_all.set()

            async with unwrap_exception_group(), anyio.create_task_group() as group:
                group.start_soon(upload)
                keeps = await self._answer(client, server, request, entry, moved("down"))
                group.cancel_scope.cancel()
        return keeps and sent_all.is_set()

    async def _answer(
        self, client: End, server: End, request: http.Request, entry: _Entry, moved: Callable[[int], None]
    ) -> bool:
        for _ in range(_MAX_INTERIM):
            try:
                data = await server.reader.receive_until(http.END, http.MAX_HEAD_BYTES)
            except anyio.DelimiterNotFound:
                raise Refused("the server's answer has a head that is too long", 502) from None
            except Cut:
                raise Refused("the server ended the connection without an answer", 502) from None
            moved(len(data) + len(http.END))
            response = http.parse_response(data + http.END)
            if response.status == 101:
                raise Refused("the server changed the protocol without being asked", 502)
            if response.status >= 200:
                break
        else:
            raise Refused("the server only gave interim answers", 502)
        framing = http.response_framing(response, request.method)
        chunks = request.version == "HTTP/1.1"
        keep = request.keeps_connection and framing is not http.Body.UNTIL_CLOSE
        written = http.Body.UNTIL_CLOSE if framing is http.Body.CHUNKED and not chunks else framing
        entry.status = response.status
        await client.stream.send(http.response_head(response, request.method, written, keep=keep))
        await copy_body(server, client.stream, framing, moved, chunks=chunks)
        return keep

    async def _last_words(self, client: End, answer: bytes) -> None:
        """Lets the client read them, or what it got before: an end with bytes of its own unread would be a reset."""
        try:
            if answer:
                await client.stream.send(answer)
            await client.stream.send_eof()
            with anyio.move_on_after(self.bounds.linger_s):
                while True:
                    await client.reader.receive()
        except Cut:
            return
