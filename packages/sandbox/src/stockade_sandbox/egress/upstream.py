"""The user's own proxy as the next hop: HTTPS_PROXY for tunnels, HTTP_PROXY for plain HTTP, ALL_PROXY for what has
none, but for NO_PROXY. Tunnels are made by CONNECT, or by SOCKS 5 (RFC 1928, RFC 1929).

It is given names and looks them up itself. What its URL has of a password goes to it alone.
"""

import os
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Self
from urllib.parse import unquote, urlsplit

import anyio
from anyio.abc import ByteStream, SocketStream

from stockade_sandbox.egress import http
from stockade_sandbox.egress.relay import Cut, End, Mask
from stockade_sandbox.egress.rules import LOCALHOST, Block, Refused, Target, address_of, shown
from stockade_sandbox.egress.tls_streams import Begun
from stockade_sandbox.errors import UsageError


def not_connected(error: OSError) -> str:
    """Why, of what anyio raises for one or several tries."""
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    number = cause.errno or 0
    return os.strerror(number) if number > 0 else cause.strerror or str(error.__cause__ or error)


@dataclass(frozen=True)
class Proxy:
    """`variable` is the one that names it; `authorization` a header's value, or empty."""

    variable: str
    host: str
    port: int
    authorization: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"the upstream proxy {shown(str(Target(self.host, self.port)))} ({self.variable})"

    @property
    def headers(self) -> http.Headers:
        return (("Proxy-Authorization", self.authorization),) if self.authorization else ()

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """What is to be hidden in its answers."""
        return (self.authorization.encode(),) if self.authorization else ()

    def check(self, response: http.Response) -> None:
        """Refused (502) where it does not take our password."""
        if response.status == 407:
            what = "another user and password than its URL has" if self.authorization else "a user and a password"
            raise Refused(f"{self} wants {what} (407)", 502)

    async def reach(self, within_s: float) -> SocketStream:
        """Refused (502) when it is not there."""
        try:
            with anyio.fail_after(within_s):
                return await anyio.connect_tcp(self.host, self.port)
        except TimeoutError:
            why = "no answer"
        except OSError as error:
            why = not_connected(error)
        raise Refused(f"{self} cannot be reached: {shown(why)}", 502)

    async def connect(self, target: Target, within_s: float, *, plain: bool) -> ByteStream:
        """For one request of `plain` HTTP, or for all that is said to `target`."""
        return await (self.reach(within_s) if plain else self.tunnel(target, within_s))

    async def tunnel(self, target: Target, within_s: float) -> ByteStream:
        """A connection to `target`, as it made one. Refused (502) when it did not."""
        stream = await self.reach(within_s)
        try:
            with anyio.fail_after(within_s):
                return await self._connected(stream, target)
        except BaseException as error:
            await anyio.aclose_forcefully(stream)
            if isinstance(error, (TimeoutError, anyio.DelimiterNotFound, *Cut)):
                raise Refused(f"{self} gave no answer for {target}", 502) from None
            raise

    async def _connected(self, stream: SocketStream, target: Target) -> ByteStream:
        reader = End.of(stream).reader
        await stream.send(http.head(f"CONNECT {target} HTTP/1.1", [("Host", str(target)), *self.headers]))
        data = await reader.receive_until(http.END, http.MAX_HEAD_BYTES) + http.END
        response = http.parse_response(Mask(self.secrets).whole(data))
        self.check(response)
        if not 200 <= response.status < 300:
            raise Refused(f"{self} refused {target}: {response.status} {shown(response.phrase)}", 502)
        return Begun(stream, reader.buffer) if reader.buffer else stream


@dataclass(frozen=True)
class Socks(Proxy):
    """`account` are a user and a password, where its URL has them."""

    account: tuple[bytes, bytes] | None = field(default=None, repr=False)

    async def connect(self, target: Target, within_s: float, *, plain: bool) -> ByteStream:
        """It knows nothing of HTTP."""
        return await self.tunnel(target, within_s)

    async def _connected(self, stream: SocketStream, target: Target) -> ByteStream:
        reader = End.of(stream).reader
        await stream.send(b"\5\2\0\2" if self.account else b"\5\1\0")
        method = await reader.receive_exactly(2)
        if method == b"\5\2" and self.account:
            user, password = self.account
            await stream.send(b"\1%c%b%c%b" % (len(user), user, len(password), password))
            if (await reader.receive_exactly(2))[1]:
                raise Refused(f"{self} wants another user and password than its URL has", 502)
        elif method != b"\5\0":
            raise Refused(f"{self} wants a user and a password, or speaks no SOCKS 5", 502)
        await stream.send(b"\5\1\0%b%b" % (_socks_address(target.host), target.port.to_bytes(2)))
        _, failed, _, kind = await reader.receive_exactly(4)
        if failed:
            raise Refused(f"{self} refused {target}: {_SOCKS_FAILURES.get(failed, f'failure {failed}')}", 502)
        size = {1: 4, 4: 16}.get(kind)
        await reader.receive_exactly((size or (await reader.receive_exactly(1))[0]) + 2)
        return Begun(stream, reader.buffer) if reader.buffer else stream


_SOCKS_FAILURES = {1: "general failure", 2: "not allowed by its rules", 3: "network unreachable", 4: "host unreachable",
                   5: "connection refused", 6: "TTL expired", 7: "no such command", 8: "no such address"}  # fmt: skip


def _socks_address(host: str) -> bytes:
    if (address := address_of(host)) is not None:
        return (b"\1" if address.version == 4 else b"\4") + address.packed
    return b"\3%c%b" % (len(host), host.encode())


@dataclass(frozen=True)
class _Direct:
    """What one word of NO_PROXY names: a name with all below it (empty is every one) or a block; port 0 is any."""

    name: str
    port: int = 0
    block: Block | None = None

    @classmethod
    def of(cls, word: str) -> Self:
        host, port = word.lower(), "0"
        if host.count(":") == 1 or "]:" in host:
            host, _, port = host.rpartition(":")
        try:
            block = ip_network(host.strip("[]"), strict=False)
        except ValueError:
            block = None
        return cls(host.removeprefix("*").strip("."), int(port) if port.isdecimal() else -1, block)

    def meets(self, target: Target) -> bool:
        if self.port not in (0, target.port):
            return False
        if self.block is not None:
            return (address := address_of(target.host)) is not None and address in self.block
        return not self.name or f".{target.host}".endswith(f".{self.name}")


@dataclass(frozen=True)
class Upstream:
    """By default none."""

    https: Proxy | None = None
    http: Proxy | None = None
    direct: tuple[_Direct, ...] = ()

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """What the variables say, the lower-case one first. UsageError, without the URL, for one that is no proxy's."""
        words = next((environ[name] for name in ("no_proxy", "NO_PROXY") if environ.get(name)), "")
        direct = tuple(_Direct.of(word) for word in re.split(r"[\s,]+", words) if word)
        return cls(_proxy(environ, "https_proxy"), _proxy(environ, "http_proxy"), direct)

    def http_proxy(self, target: Target) -> Proxy | None:
        """One that is given a whole request for `target`."""
        found = self.proxy(target, plain=True)
        return None if isinstance(found, Socks) else found

    def proxy(self, target: Target, *, plain: bool = False) -> Proxy | None:
        """Which one is asked for `target`, `plain` for HTTP without a tunnel; None where none is."""
        found = self.http if plain else self.https
        is_here = f".{target.host}".endswith(f".{LOCALHOST}")
        return None if is_here or any(one.meets(target) for one in self.direct) else found


DIRECTLY = Upstream()


def _proxy(environ: Mapping[str, str], lower: str) -> Proxy | None:
    for variable in (lower, lower.upper(), "all_proxy", "ALL_PROXY"):
        if text := environ.get(variable):
            return _parsed(variable, text)
    return None


def _parsed(variable: str, text: str) -> Proxy:
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port or (1080 if parts.scheme.startswith("socks") else 80)
    except ValueError:
        parts, host, port = urlsplit(""), None, 0
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    account = (user.encode(), password.encode()) if user or password else None
    if host and parts.scheme in ("socks5", "socks5h") and all(len(one) < 256 for one in account or ()):
        return Socks(variable, host, port, account=account)
    if parts.scheme != "http" or not host:
        way_out = "write http://[USER:PASSWORD@]HOST:PORT or socks5://[USER:PASSWORD@]HOST:PORT, or unset it"
        if parts.scheme == "https":
            way_out += " (proxies that are spoken to by TLS are not supported)"
        raise UsageError(f"{variable} is not the http:// or socks5:// address of a proxy", way_out)
    return Proxy(variable, host, port, f"Basic {b64encode(b':'.join(account)).decode()}" if account else "")
