"""HTTP/1.1 heads, read strictly (RFC 9112): what two programs could read in two ways is refused, never repaired. Pure.

Nothing of a client's framing is passed on: lengths are read here, and written anew for the other side.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from stockade_sandbox.egress.rules import Refused, Target, parse_authority, shown

MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 200
END = b"\r\n\r\n"

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_METHOD = re.compile(r"[A-Z-]{1,32}")
_LENGTH = re.compile(r"\d{1,18}")
_BAD_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_HOP_BY_HOP = frozenset({"connection", "proxy-connection", "keep-alive", "proxy-authenticate", "proxy-authorization",
                         "te", "trailer", "transfer-encoding", "upgrade", "content-length", "host", "expect",
                         "http2-settings"})  # fmt: skip
"""Not passed on as they came. Host and Content-Length are written anew; Expect is answered here."""

Headers = tuple[tuple[str, str], ...]


class Body(Enum):
    """How a body's end is known, where it is not by its length."""

    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"


Framing = int | Body


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    version: str
    headers: Headers

    @property
    def keeps_connection(self) -> bool:
        """Whether the client expects to send another request."""
        options = {word.strip().lower() for name in ("connection", "proxy-connection")
                   for value in values(self.headers, name) for word in value.split(",")}  # fmt: skip
        return self.version == "HTTP/1.1" and "close" not in options


@dataclass(frozen=True)
class Response:
    status: int
    phrase: str
    headers: Headers


def values(headers: Headers, name: str) -> list[str]:
    return [value for found, value in headers if found.lower() == name]


def _lines(data: bytes, status: int) -> tuple[str, Headers]:
    """First line and headers of a head that ends in END."""
    first, *rest = data.removesuffix(END).decode("latin-1").split("\r\n")
    if len(rest) > MAX_HEADERS:
        raise Refused(f"more than {MAX_HEADERS} headers", 431 if status == 400 else status)
    if _BAD_IN_VALUE.search(first):
        raise Refused("a control character in the first line", status)
    headers = []
    for line in rest:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name):
            raise Refused(f"a header that cannot be read: {shown(line, 40)}", status)
        if _BAD_IN_VALUE.search(value):
            raise Refused(f"a control character in the header {name}", status)
        headers.append((name, value.strip(" \t")))
    return first, tuple(headers)


def parse_request(data: bytes) -> Request:
    first, headers = _lines(data, 400)
    parts = first.split(" ")
    if len(parts) != 3 or not _METHOD.fullmatch(parts[0]) or parts[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise Refused(f"not an HTTP/1.1 request: {shown(first, 40)}", 400)
    if not parts[1] or not all("!" <= char <= "~" for char in parts[1]):
        raise Refused(f"characters that no URL has: {shown(parts[1])}", 400)
    return Request(parts[0], parts[1], parts[2], headers)


def parse_response(data: bytes) -> Response:
    first, headers = _lines(data, 502)
    version, _, rest = first.partition(" ")
    code, _, phrase = rest.partition(" ")
    if version not in ("HTTP/1.1", "HTTP/1.0") or not re.fullmatch(r"[1-5]\d\d", code):
        raise Refused(f"the server did not answer in HTTP/1.1: {shown(first, 40)}", 502)
    return Response(int(code), phrase, headers)


def absolute_form(target: str) -> tuple[Target, str]:
    """`http://HOST[:PORT]/PATH` to the target and the path with its query. Refused for every other form."""
    if target.lower().startswith("https://"):
        raise Refused("https:// needs a tunnel (CONNECT)", 400)
    if not target.lower().startswith("http://"):
        raise Refused(f"not a URL this proxy knows: {shown(target)}", 400)
    rest = target[len("http://") :]
    end = min((rest.find(mark) for mark in "/?" if mark in rest), default=len(rest))
    authority, path = rest[:end], rest[end:]
    if "#" in target or "\\" in authority:
        raise Refused(f"not a URL this proxy knows: {shown(target)}", 400)
    return parse_authority(authority, 80), path if path.startswith("/") else f"/{path}"


def check_host(request: Request, target: Target, default_port: int | None) -> None:
    """Refused when the Host header means somebody else than the target, or cannot be told."""
    hosts = values(request.headers, "host")
    if not hosts and request.version == "HTTP/1.0":
        return
    if len(hosts) != 1:
        raise Refused(f"{len(hosts)} Host headers", 400)
    if parse_authority(hosts[0], default_port) != target:
        raise Refused(f"the Host header says {shown(hosts[0])}, the request {target}")


def _length(headers: Headers, status: int) -> int | None:
    found = values(headers, "content-length")
    if not found:
        return None
    if len(found) != 1 or not _LENGTH.fullmatch(found[0]):
        raise Refused("a Content-Length that cannot be told", status)
    return int(found[0])


def _is_chunked(headers: Headers, status: int) -> bool:
    found = values(headers, "transfer-encoding")
    if found and [value.lower() for value in found] != ["chunked"]:
        raise Refused("a Transfer-Encoding other than chunked", status)
    return bool(found)


def request_framing(request: Request) -> Framing:
    """0 without a body. Refused where length and encoding contradict each other or are doubled (request smuggling)."""
    length, chunked = _length(request.headers, 400), _is_chunked(request.headers, 400)
    if chunked and (length is not None or request.version != "HTTP/1.1"):
        raise Refused("both Content-Length and Transfer-Encoding" if length is not None else "chunks in HTTP/1.0", 400)
    return Body.CHUNKED if chunked else length or 0


def response_framing(response: Response, method: str) -> Framing:
    """As RFC 9112 section 6.3 has it. Refused (502) for lengths that cannot be told."""
    if method == "HEAD" or response.status in (204, 304):
        return 0
    if _is_chunked(response.headers, 502):
        return Body.CHUNKED
    length = _length(response.headers, 502)
    return Body.UNTIL_CLOSE if length is None else length


def end_to_end(headers: Headers) -> list[tuple[str, str]]:
    """Without what concerns one connection only, nor what `Connection` says does."""
    named = {word.strip().lower() for value in values(headers, "connection") for word in value.split(",")}
    return [(name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP | named]


def head(first: str, headers: Iterable[tuple[str, str]]) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join(lines).encode("latin-1") + END


def framing_headers(framing: Framing) -> list[tuple[str, str]]:
    if isinstance(framing, int):
        return [("Content-Length", str(framing))]
    return [("Transfer-Encoding", "chunked")] if framing is Body.CHUNKED else []


def is_websocket(request: Request) -> bool:
    """Whether it asks for one, with nothing else to read (RFC 6455 section 4.1)."""
    asked = [value.lower() for value in values(request.headers, "upgrade")]
    return asked == ["websocket"] and request.method == "GET" and not request_framing(request)


def request_head(
    request: Request,
    target: Target,
    path: str,
    framing: Framing,
    *,
    port: int = 80,
    upgrade: bool = False,
    more: Headers = (),
) -> bytes:
    """What the server gets: one request on a connection of its own. `port` is the one that Host does not name; `more`
    are headers for the next hop.
    """
    host = str(target).removesuffix(f":{port}")
    body = framing_headers(framing) if framing or request.method in ("POST", "PUT", "PATCH") else []
    last = [("Connection", "Upgrade"), ("Upgrade", "websocket")] if upgrade else [("Connection", "close")]
    headers = [("Host", host), *end_to_end(request.headers), *body, *more, *last]
    return head(f"{request.method} {path} HTTP/1.1", headers)


def response_head(response: Response, method: str, framing: Framing, *, keep: bool) -> bytes:
    """What the client gets. Where there is no body, its length is passed on as information (RFC 9110 section 8.6)."""
    lengths = values(response.headers, "content-length")
    if method == "HEAD" and len(lengths) == 1 and _LENGTH.fullmatch(lengths[0]):
        body = [("Content-Length", lengths[0])]
    elif method == "HEAD" or response.status in (204, 304):
        body = []
    else:
        body = framing_headers(framing)
    connection = [("Connection", "keep-alive" if keep else "close")]
    return head(f"HTTP/1.1 {response.status} {response.phrase}", [*end_to_end(response.headers), *body, *connection])


def upgraded_head(response: Response) -> bytes:
    """What the client gets of a WebSocket's beginning."""
    upgrade = [("Connection", "Upgrade"), ("Upgrade", "websocket")]
    return head(f"HTTP/1.1 101 {response.phrase}", [*end_to_end(response.headers), *upgrade])


def refusal(refused: Refused) -> bytes:
    """The answer that says which rule it was, in the status line too: clients show that of a refused CONNECT."""
    words = f"stockade: {refused.reason}"
    body = f"{words}\n".encode("latin-1", "replace")
    headers = [("Content-Type", "text/plain"), ("Content-Length", str(len(body))), ("X-Stockade-Egress", "refused"),
               ("Connection", "close")]  # fmt: skip
    return head(f"HTTP/1.1 {refused.status} {shown(words, 300)}", headers) + body
