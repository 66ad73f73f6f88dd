"""The proxy: takes what clients inside open, connects outside, and reports every request.

Whatever comes in is hostile; whatever goes out was asked for by a name that is on the list, to an address that was
checked, and the check is not repeated by anybody: the connection is made to that very address.
"""

import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import anyio
import anyio.to_thread
from anyio.abc import ByteStream, SocketAttribute

from stockade_sandbox.egress import http
from stockade_sandbox.egress.exchange import DIRECT, HTTP_PORT, HTTPS_PORT, Entry, Exchange
from stockade_sandbox.egress.inside import Accept, OnRequest
from stockade_sandbox.egress.names import DNS_PORT, Names, Speech, who_speaks
from stockade_sandbox.egress.relay import Cut, End, Mask, Meter, copy_body, tunnel, until_one_ends
from stockade_sandbox.egress.resolve import (
    AllowPrivate,
    Resolver,
    as_named,
    never_private,
    public_addresses,
    system_resolver,
)
from stockade_sandbox.egress.rules import (
    LOCALHOST,
    Address,
    Refused,
    Rules,
    Target,
    address_of,
    parse_authority,
    parse_rule,
    shown,
)
from stockade_sandbox.egress.tls import NoName, server_name
from stockade_sandbox.egress.tls_streams import connect_tls, serve_tls
from stockade_sandbox.egress.upstream import DIRECTLY, Upstream, not_connected
from stockade_sandbox.policy import CREDENTIAL_BASE as BASE
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import Doorkeeper
from stockade_sandbox.results import NetworkRequest
from stockade_sandbox.stoppable import unwrap_exception_group

if TYPE_CHECKING:  # imported only where there are some: see Egress.with_credentials
    from stockade_sandbox.egress.credentials import Credentials

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


@dataclass(frozen=True)
class Egress:
    """One sandbox's way out. `resolver` and `allow_private` are there for tests; no policy or flag reaches them."""

    rules: Rules
    on_request: OnRequest
    bounds: Bounds = Bounds()
    resolver: Resolver = system_resolver
    allow_private: AllowPrivate = never_private
    now: Callable[[], float] = time.time
    credentials: "Credentials | None" = None
    upstream: Upstream = DIRECTLY
    doorkeeper: Doorkeeper | None = None

    def with_credentials(self, credentials: "Credentials") -> "Egress":
        return replace(self, credentials=credentials)

    def asking(self, doorkeeper: Doorkeeper) -> "Egress":
        return replace(self, doorkeeper=doorkeeper)

    @classmethod
    def of(cls, policy: Policy, on_request: OnRequest) -> "Egress":
        """With the user's own proxy. UsageError for a rule that is none, and for a variable that names no proxy."""
        return cls(Rules.of(policy.network), on_request, upstream=Upstream.of(os.environ))

    async def serve(self, accept: Accept) -> None:
        """Until it is cancelled; every connection is closed with it."""
        limit, names = anyio.CapacityLimiter(self.bounds.connections), Names(self.rules, self._not_named, self._may)
        async with unwrap_exception_group(), anyio.create_task_group() as group:
            while True:
                token = object()
                await limit.acquire_on_behalf_of(token)
                group.start_soon(self._connection, await accept(), names, limit, token)

    @property
    def ports(self) -> Sequence[int]:
        return (DNS_PORT, *self.rules.ports)

    def _may(self, name: str) -> bool:
        return self.doorkeeper is not None and name != LOCALHOST and self.doorkeeper.may(name)

    async def _rules_for(self, target: Target) -> Rules:
        """The list as it is for `target`: with it, where the user allows a name that is missing. Refused otherwise."""
        try:
            self.rules.judge(target)
            return self.rules
        except Refused as refused:
            asked = refused.allow and target.host != LOCALHOST and address_of(target.host) is None
            if self.doorkeeper is None or not asked or not await self.doorkeeper.allows(refused.allow):
                raise
            return replace(self.rules, rules=(*self.rules.rules, parse_rule(refused.allow)))

    def _not_named(self, name: str, refused: Refused) -> None:
        with self._recorded() as (entry, _):
            entry.method, entry.host, entry.reason, entry.allow = "DNS", name, refused.reason, refused.allow

    async def _connection(self, stream: ByteStream, names: Names, limit: anyio.CapacityLimiter, token: object) -> None:
        try:
            async with stream:
                client = End.of(stream)
                went = stream.extra(SocketAttribute.local_address, "")
                address, port = went[:2] if isinstance(went, tuple) else ("127.0.0.1", 0)
                if port == DNS_PORT:
                    await names.serve(stream)
                elif target := names.target(str(address), int(port)):
                    await self._unaware(client, target)
                else:
                    while await self._request(client):
                        pass
        finally:
            limit.release_on_behalf_of(token)

    async def _unaware(self, client: End, target: Target) -> None:
        """A client that knows of no proxy, and connected to what stands for `target` inside. What it says first tells
        what it speaks: HTTP is read like any, TLS has to be to that name, and where the port is one that was named
        for itself anything else passes. Who waits for the server to speak first speaks neither HTTP nor TLS.
        """
        has_credential = self.credentials is not None and self.credentials.covers(target)
        speaks_http = target.port == HTTP_PORT or (has_credential and target.host == LOCALHOST)

        async def perform(entry: Entry, meter: Meter) -> bool:
            nonlocal speaks_http
            entry.method, entry.host, entry.port = DIRECT, target.host, target.port
            if target.port == HTTPS_PORT or has_credential:
                await self._to_name(client, target, entry, meter)
                return False
            async with await self._connect(target, entry) as stream:
                server, entry.status = End.of(stream), 200
                first = (
                    Speech.OTHER if target.host == LOCALHOST else await who_speaks(client, server, self.bounds.idle_s)
                )
                speaks_http = entry.is_carried = first is Speech.HTTP
                if first is Speech.TLS:
                    hello = await self._hello(client, target, entry)
                    meter.count("up", len(hello))
                    await stream.send(hello)
                if not speaks_http:
                    await tunnel(client, server, meter, self.bounds.idle_s)
            return speaks_http

        if speaks_http or await self._judged(client, perform):
            while await self._request(client, target, plain=True):
                pass

    async def _request(self, client: End, within: Target | None = None, *, plain: bool = False) -> bool:
        """One request; whether another may follow on this connection. `within`: to whom, whatever it says: of a tunnel
        that ends here, or of a `plain` client that knows of no proxy.
        """
        head = await self._head(client)
        if head is None:
            return False

        async def perform(entry: Entry, meter: Meter) -> bool:
            if isinstance(head, Refused):
                raise head
            return await self._perform(client, head, entry, meter, within, plain=plain)

        return await self._judged(client, perform)

    async def _judged(self, client: End, perform: Callable[[Entry, Meter], Awaitable[bool]]) -> bool:
        """What `perform` says; False where it fails, which is on record like all else."""
        answer = b""
        with self._recorded() as (entry, meter):
            try:
                if await perform(entry, meter):
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
    def _recorded(self) -> Iterator[tuple[Entry, Meter]]:
        """Reports at the end, however it comes, the sandbox's own included."""
        entry, meter, started = Entry(), Meter(), time.monotonic()
        try:
            yield entry, meter
        finally:
            if not entry.is_carried:
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
                        credential=entry.credential,
                        allow=entry.allow,
                    )
                )

    async def _perform(
        self, client: End, data: bytes, entry: Entry, meter: Meter, within: Target | None, *, plain: bool
    ) -> bool:
        request = http.parse_request(data)
        entry.method = request.method
        entry.host = within.host if within else shown(request.target)
        if request.method == "CONNECT" and within is None:
            target = parse_authority(request.target)
            http.check_host(request, target, 443 if target.port == 443 else None)
            await self._to_name(client, target, entry, meter)
            return False
        exchange = await self._filled(self._exchange_of(request, entry, meter, within, plain=plain))
        async with self._server(exchange) as server:
            return await self._exchange(client, server, exchange)

    async def _to_name(self, client: End, target: Target, entry: Entry, meter: Meter) -> None:
        if self.credentials and self.credentials.covers(target):
            await self._terminated(client, target, entry)
        else:
            await self._tunnel(client, target, entry, meter)

    def _exchange_of(
        self, request: http.Request, entry: Entry, meter: Meter, within: Target | None, *, plain: bool
    ) -> Exchange:
        """What is asked of whom. Refused where that can be read in two ways."""
        port = 443
        if within is not None:
            if not request.target.startswith("/"):
                raise Refused(f"not a path: {shown(request.target)}", 400)
            http.check_host(request, within, 80 if plain else within.port)
            target, path = within, request.target
        elif self.credentials and request.target.startswith(BASE):
            target, path = self.credentials.of_base_url(request.target)
        else:
            target, path = http.absolute_form(request.target)
            http.check_host(request, target, 80)
            plain = True
        entry.host, entry.port = target.host, target.port
        if plain:
            port = 80
            if self.credentials and self.credentials.covers(target) and target.host != LOCALHOST:
                raise Refused(f"{target} is a credential's host: by TLS only")
        upgrade = port == 443 and http.is_websocket(request)
        framing = http.request_framing(request)
        proxy = self.upstream.http_proxy(target) if port == 80 else None
        secrets = proxy.secrets if proxy else ()
        return Exchange(request, target, path, framing, entry, meter, secrets, port, upgrade, proxy)

    async def _filled(self, exchange: Exchange) -> Exchange:
        """With what this sandbox's credentials put in. Refused for a sentinel that is on its way elsewhere."""
        if self.credentials is None:
            return exchange
        filled = await anyio.to_thread.run_sync(self.credentials.fill, exchange.request, exchange.target)
        exchange.entry.credential = ",".join(filled.names)
        return replace(
            exchange,
            request=replace(exchange.request, headers=filled.headers),
            secrets=filled.secrets or exchange.secrets,
        )

    @asynccontextmanager
    async def _server(self, exchange: Exchange) -> AsyncIterator[End]:
        """TLS where a credential goes, but to this machine's own services."""
        target, credentials = exchange.target, self.credentials
        async with await self._connect(target, exchange.entry, plain=exchange.port == 80) as plain:
            if credentials is None or exchange.port == 80 or target.host == LOCALHOST:
                yield End.of(plain)
                return
            try:
                with anyio.fail_after(self.bounds.connect_s):
                    secure = await connect_tls(plain, target.host, credentials.client)
            except ssl.SSLCertVerificationError as error:
                why = f"the certificate of {target.host} does not hold: {shown(error.verify_message)}"
                raise Refused(why, 502) from None
            except (TimeoutError, *Cut):
                raise Refused(f"{target} does not speak TLS as it should", 502) from None
            async with secure:
                yield End.of(secure)

    async def _terminated(self, client: End, target: Target, entry: Entry) -> None:
        """CONNECT to a credential's host: the TLS inside ends here, and each request in it is judged and on record."""
        credentials = self.credentials
        assert credentials is not None
        entry.host, entry.port, entry.allowed = target.host, target.port, True
        if entry.method != DIRECT:
            await client.stream.send(_ESTABLISHED)
        entry.status = 200
        hello = await self._hello(client, target, entry)
        begun = hello + client.reader.buffer
        try:
            with anyio.fail_after(self.bounds.head_s):
                context = credentials.server_context(target)
                secure = await serve_tls(client.stream, begun, context)
        except ssl.SSLError as error:
            why = shown(error.reason or "the client ended it")
            raise Refused(
                f"the client does not take the sandbox's own certificate (docs/credentials.md): {why}"
            ) from None
        except TimeoutError:
            raise Refused(f"no TLS within {self.bounds.head_s:g} s") from None
        entry.is_carried = True
        inner = End.of(secure)
        async with secure:
            while await self._request(inner, target):
                pass

    async def _connect(self, target: Target, entry: Entry, *, plain: bool = False) -> ByteStream:
        """A connection to one of the addresses that were checked, or by the upstream proxy, which is given the name; to
        that proxy itself where HTTP is `plain`. Refused for all other reasons.
        """
        entry.host, entry.port = target.host, target.port
        rules = await self._rules_for(target)
        may_be_private = partial(self._may_be_private, rules, target)
        if proxy := self.upstream.proxy(target, plain=plain):
            if address_of(target.host):
                await public_addresses(target, self.resolver, may_be_private)
            elif not rules.may_name(target.host):
                raise Refused(f"{target.host} is not a public name: --net has to name it", allow=target.host)
            entry.allowed = True
            return await proxy.connect(target, self.bounds.connect_s, plain=plain)
        addresses = await public_addresses(target, self.resolver, may_be_private)
        entry.allowed = True
        why = "no answer"
        with anyio.move_on_after(self.bounds.connect_s):
            for address in addresses:
                try:
                    return await anyio.connect_tcp(str(address), target.port)
                except OSError as error:
                    why = not_connected(error)
        raise Refused(f"cannot connect to {target}: {shown(why)}", 502)

    def _may_be_private(self, rules: Rules, target: Target, host: str, address: Address) -> bool:
        return self.allow_private(host, address) or as_named(rules, target, address)

    async def _tunnel(self, client: End, target: Target, entry: Entry, meter: Meter) -> None:
        """CONNECT: the name in the ClientHello is the target's; after it the bytes are nobody's business."""
        async with await self._connect(target, entry) as server:
            if entry.method != DIRECT:
                await client.stream.send(_ESTABLISHED)
            entry.status = 200
            hello = await self._hello(client, target, entry)
            meter.count("up", len(hello))
            await server.send(hello)
            await tunnel(client, End.of(server), meter, self.bounds.idle_s)

    async def _hello(self, client: End, target: Target, entry: Entry) -> bytes:
        data = b""
        try:
            with anyio.fail_after(self.bounds.head_s):
                while (name := server_name(data)) is None:
                    data += await client.reader.receive(4096)
        except TimeoutError:
            raise Refused(f"no TLS ClientHello within {self.bounds.head_s:g} s") from None
        except NoName:
            if address_of(target.host) is None:
                raise
            return data
        if name != target.host:
            raise Refused(f"the TLS ClientHello names {name}, the {entry.method} {target.host}")
        return data

    async def _exchange(self, client: End, server: End, exchange: Exchange) -> bool:
        """One request to one server, on a connection of its own: nothing of it can mix with another."""
        request, framing, meter = exchange.request, exchange.framing, exchange.meter
        path, proxy = exchange.path, exchange.proxy
        if proxy:
            path = f"http://{str(exchange.target).removesuffix(':80')}{path}"
        head = http.request_head(
            request,
            exchange.target,
            path,
            framing,
            port=exchange.port,
            upgrade=exchange.upgrade,
            more=proxy.headers if proxy else (),
        )
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
                keeps = await self._answer(client, server, exchange, moved("down"))
                group.cancel_scope.cancel()
        return keeps and sent_all.is_set()

    async def _answer(self, client: End, server: End, exchange: Exchange, moved: Callable[[int], None]) -> bool:
        request, entry = exchange.request, exchange.entry
        for _ in range(_MAX_INTERIM):
            try:
                data = await server.reader.receive_until(http.END, http.MAX_HEAD_BYTES)
            except anyio.DelimiterNotFound:
                raise Refused("the server's answer has a head that is too long", 502) from None
            except Cut:
                raise Refused("the server ended the connection without an answer", 502) from None
            moved(len(data) + len(http.END))
            response = http.parse_response(Mask(exchange.secrets).whole(data + http.END))
            if exchange.proxy:
                exchange.proxy.check(response)
            if response.status == 101 and exchange.upgrade:
                entry.status = 101
                await client.stream.send(http.upgraded_head(response))
                await until_one_ends(client, server, exchange.meter, self.bounds.idle_s, Mask(exchange.secrets))
                return False
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
        if response.status == 401 and self.credentials:
            self.credentials.doubt(exchange.target, entry.credential.split(","))
        await client.stream.send(http.response_head(response, request.method, written, keep=keep))
        mask = Mask(exchange.secrets) if exchange.secrets else None
        await copy_body(server, client.stream, framing, moved, chunks=chunks, mask=mask)
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
