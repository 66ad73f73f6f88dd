"""Addresses of model servers, and keys as most of them want them."""

import ipaddress
from urllib.parse import urlsplit

from stockade.core.errors import UsageError


def bearer(api_key: str | None) -> dict[str, str]:
    """The header of a key as most servers want it."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def is_loopback(url: str) -> bool:
    """True for addresses of this machine that no proxy and no key is needed for."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_near(url: str) -> bool:
    """True for this machine, and for addresses of a network of one's own: their servers mostly want no key."""
    try:
        return is_loopback(url) or ipaddress.ip_address(urlsplit(url).hostname or "").is_private
    except ValueError:
        return (urlsplit(url).hostname or "").endswith(".local")


def checked_url(url: str) -> str:
    """Without a slash at its end. UsageError when it is no address of a server."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(f"not an address of a model server: {url!r}", "write http://HOST:PORT/v1")
    return url.rstrip("/")
