"""The import `stockade:tool/http`: the one way to the network, for the hosts of the tool's policy.

It goes through the sandbox's proxy, which holds the run's own rules and puts every request on record.
"""

import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from email.message import Message
from http.client import HTTPException
from typing import IO, Any

from wasmtime import component as wc

MAX_REQUEST_BYTES = 1 << 20


class Refused(Exception):
    """Not allowed, or not possible; the message is for the component."""


def allowed(url: str, hosts: Sequence[dict[str, Any]], method: str) -> str:
    """The address put together anew, so that nobody reads another host in it.

    Refused unless a rule has its host, scheme and port, and the method. `*.SUFFIX` is every name below, `*` every name.
    """
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise Refused(f"{url[:80]!r} is no address: write others than ASCII as %XX")
    parts = urllib.parse.urlsplit(url)
    host = (parts.hostname or "").rstrip(".").lower()
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        raise Refused(f"{url[:80]!r} is no http or https address of a host")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise Refused(f"{url[:80]!r} has no valid port") from None
    for rule in hosts:
        name = rule["host"]
        below = name.startswith("*.") and host.endswith(name[1:])
        fits = (name == "*" or host == name or below) and rule.get("port") in (None, port)
        if fits and parts.scheme in rule["schemes"] and method in rule["methods"]:
            return urllib.parse.urlunsplit((parts.scheme, f"{host}:{port}", parts.path or "/", parts.query, ""))
    raise Refused(f"{method} {parts.scheme}://{host}:{port} is not in the tool's policy")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other: the component asks again, and is judged again."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


class Fetch:
    """`fetch` of the interface, for one call."""

    def __init__(self, hosts: Sequence[dict[str, Any]], max_bytes: int, timeout_s: float) -> None:
        self._hosts, self._max_bytes, self._timeout_s = hosts, max_bytes, timeout_s

    def __call__(self, _: object, request: Any) -> Any:
        """result<response, string>: every failure is the component's to see."""
        try:
            return self._fetch(request)
        except Refused as refused:
            return str(refused)
        except (OSError, HTTPException, ValueError) as error:
            return f"{type(error).__name__}: {error}"[:300]

    def _fetch(self, request: Any) -> Any:
        method = request.method.upper()
        url = allowed(request.url, self._hosts, method)
        body = None if request.body is None else request.body.encode()
        if len(body or b"") > MAX_REQUEST_BYTES:
            raise Refused(f"the request is larger than {MAX_REQUEST_BYTES} bytes")
        if not any(name in os.environ for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY")):
            raise Refused("this run has no network")
        wanted = urllib.request.Request(url, body, dict(request.headers), method=method)
        opener = urllib.request.build_opener(_NoRedirect)
        try:
            reply = opener.open(wanted, timeout=self._timeout_s)
        except urllib.error.HTTPError as error:
            reply = error
        with reply:
            return self._response(reply)

    def _response(self, reply: Any) -> wc.Record:
        data: bytes = reply.read(self._max_bytes + 1)
        if len(data) > self._max_bytes:
            raise Refused(f"the answer is larger than {self._max_bytes} bytes")
        response = wc.Record()
        for name, value in (
            ("status", int(reply.status)),
            ("headers", [(name.lower(), value) for name, value in reply.headers.items()]),
            ("body", data.decode(errors="replace")),
        ):
            setattr(response, name, value)
        return response
