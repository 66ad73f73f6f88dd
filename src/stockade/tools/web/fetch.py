"""One page from the web: asked for, followed, bounded in time, size, steps and kind."""

import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field

import anyio
import httpcore2

from stockade.core.data import Data
from stockade.core.errors import ActionFailed
from stockade.core.policy import MIB
from stockade.tools.reading.reader import one_line
from stockade.tools.web.address import Address, parse
from stockade.tools.web.connecting import Connecting
from stockade.tools.web.unpack import ACCEPTED, Body

_MOVED = (301, 302, 303, 307, 308)
_READABLE = ("text/", "application/json", "application/xml", "application/xhtml", "application/pdf",
             "application/octet-stream", "application/x-ipynb", "application/javascript", "application/rtf",
             "application/vnd.openxmlformats-officedocument.wordprocessingml")  # fmt: skip
_CUT = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, anyio.BrokenResourceError,
        anyio.ClosedResourceError, anyio.EndOfStream, OSError)  # fmt: skip


class Bounds(Data):
    """Of one fetch: seconds and bytes in all, and redirections."""

    total_s: float = 30.0
    body_bytes: int = 8 * MIB
    redirects: int = 5


BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Fetched:
    """`type` and `charset` in lower case, as the server says; `data` is unpacked. `asked` counts requests."""

    address: Address
    status: int
    type: str
    charset: str
    data: bytes
    asked: int = 1


async def fetch(connecting: Connecting, address: Address, bounds: Bounds = BOUNDS) -> Fetched:
    """ActionFailed, for the model, for everything that the rules, the network or the server do against it."""
    result = _Result()
    async with connecting.pool() as pool:
        with anyio.move_on_after(bounds.total_s):
            try:
                result.fetched = await _follow(pool, address, bounds)
            except ActionFailed as error:
                result.failed = error
    if result.failed is not None:
        raise result.failed
    if result.fetched is None:
        raise ActionFailed(f"{address.host} did not answer in full within {bounds.total_s:g} s")
    return result.fetched


@dataclass(slots=True)
class _Result:
    fetched: Fetched | None = None
    failed: ActionFailed | None = field(default=None)


async def _follow(pool: httpcore2.AsyncConnectionPool, address: Address, bounds: Bounds) -> Fetched:
    for number in range(1, bounds.redirects + 2):
        try:
            found = await _ask(pool, address, bounds, number)
        except httpcore2.ProxyError as error:
            raise ActionFailed(_refused(str(error).partition(" ")[2] or str(error))) from None
        except ssl.SSLCertVerificationError as error:
            raise ActionFailed(f"{address.host} has no valid certificate: {error.verify_message}") from None
        except _CUT as error:
            raise ActionFailed(f"{address.host} cannot be read: {_why(error)}") from None
        if isinstance(found, Fetched):
            return found
        address = found
    raise ActionFailed(f"more than {bounds.redirects} redirections, the last one to {one_line(str(address), 200)}")


async def _ask(pool: httpcore2.AsyncConnectionPool, address: Address, bounds: Bounds, number: int) -> Fetched | Address:
    """The page, or where it is said to be."""
    headers = [("Host", address.authority), ("User-Agent", "Mozilla/5.0 (compatible; stockade)"),
               ("Accept", "text/html,application/xhtml+xml,text/*;q=0.9,*/*;q=0.5"),
               ("Accept-Encoding", ACCEPTED), ("Accept-Language", "en,*;q=0.5"), ("Connection", "close")]  # fmt: skip
    async with pool.stream("GET", str(address), headers=headers) as response:
        named = _headers(response.headers)
        if "x-stockade-egress" in named:
            text = b"".join([piece async for piece in response.aiter_stream()])[:1000]
            raise ActionFailed(_refused(text.decode(errors="replace")))
        if response.status in _MOVED and "location" in named:
            return parse(named["location"], address)
        if response.status >= 400:
            phrase = one_line(bytes(response.extensions.get("reason_phrase", b"")).decode("latin-1"), 60)
            raise ActionFailed(f"{address.host} answers HTTP {response.status} {phrase}".rstrip())
        kind, charset = _kind(named.get("content-type", ""))
        if kind and not kind.startswith(_READABLE) and not kind.endswith(("+xml", "+json")):
            raise ActionFailed(f"it is {one_line(kind, 60)}, not text")
        body = Body(named.get("content-encoding", ""), bounds.body_bytes)
        length = named.get("content-length", "")
        if length.isdecimal() and len(length) < 20 and int(length) > bounds.body_bytes:
            raise ActionFailed(f"the page is larger than {bounds.body_bytes >> 20} MiB")
        async for piece in response.aiter_stream():
            body.feed(piece)
    return Fetched(address, response.status, kind, charset, bytes(body.data), number)


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The first of each name."""
    found: dict[str, str] = {}
    for name, value in raw:
        found.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return found


def _kind(text: str) -> tuple[str, str]:
    kind, *parameters = text.split(";")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return kind.strip().lower()[:100], value.strip(" \"'").lower()[:40]
    return kind.strip().lower()[:100], ""


def _refused(text: str) -> str:
    """What the proxy says; its rules are the person's."""
    return one_line(text, 300).removeprefix("stockade: ")


def _why(error: Exception) -> str:
    if isinstance(error, httpcore2.TimeoutException):
        return "it takes too long"
    return one_line(str(error), 150) or "the connection was cut"
