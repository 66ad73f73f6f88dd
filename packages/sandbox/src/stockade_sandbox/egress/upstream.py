"""The user's own proxy as the next hop: HTTPS_PROXY for tunnels (CONNECT), HTTP_PROXY for plain HTTP, but for NO_PROXY.

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

    def proxy(self, target: Target, *, plain: bool = False) -> Proxy | None:
        """Which one is asked for `target`, `plain` for HTTP without a tunnel; None where none is."""
        found = self.http if plain else self.https
        is_here = f".{target.host}".endswith(f".{LOCALHOST}")
        return None if is_here or any(one.meets(target) for one in self.direct) else found


DIRECTLY = Upstream()


def _proxy(environ: Mapping[str, str], lower: str) -> Proxy | None:
    for variable in (lower, lower.upper()):
        if text := environ.get(variable):
            return _parsed(variable, text)
    return None


def _parsed(variable: str, text: str) -> Proxy:
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port or 80
    except ValueError:
        parts, host, port = urlsplit(""), None, 0
    if parts.scheme != "http" or not host:
        raise UsageError(
            f"{variable} is not the http:// address of a proxy",
            "write http://[USER:PASSWORD@]HOST:PORT, or unset it (proxies of https:// and socks are not spoken to)",
        )
    words = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return Proxy(variable, host, port, "" if words == ":" else f"Basic {b64encode(words.encode()).decode()}")
