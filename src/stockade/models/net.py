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


_NEAR_NAMES = (".local", ".lan", ".internal", ".home.arpa")


def is_near(url: str) -> bool:
    """True for this machine, and for addresses and names of one's own network: servers there mostly want no key."""
    host = urlsplit(url).hostname or ""
    try:
        return is_loopback(url) or ipaddress.ip_address(host).is_private
    except ValueError:
        return host.endswith(_NEAR_NAMES)


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
