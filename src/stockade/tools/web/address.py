"""Addresses as a model or a page writes them, to one spelling. Pure. Who may be asked is for the proxy to say."""

from dataclasses import dataclass
from urllib.parse import quote, urldefrag, urljoin, urlsplit

from stockade.core.errors import ActionFailed
from stockade.tools.reading.reader import one_line

MAX_CHARS = 2000
_KEPT = "/%:@!$&'()*+,;=~-._?"


@dataclass(frozen=True, slots=True)
class Address:
    """An `http` or `https` URL in ASCII, without a fragment; `target` is path and query."""

    scheme: str
    host: str
    port: int | None
    target: str

    @property
    def authority(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def parse(text: str, base: Address | None = None) -> Address:
    """ActionFailed for all that is no web address: files, other schemes, user names, odd characters, too long."""
    text = text.strip()
    if not text or len(text) > MAX_CHARS:
        raise ActionFailed(f"the URL is {'empty' if not text else f'longer than {MAX_CHARS} characters'}")
    if base is None and "://" not in text and not text.startswith("/") and "." in text.split("/")[0]:
        text = f"https://{text}"
    shown = one_line(text, 100)
    if not text.isprintable():  # urlsplit drops line ends and tabs in silence
        raise ActionFailed(f"{shown} has characters that no URL has")
    try:
        parts = urlsplit(urldefrag(urljoin(str(base), text) if base else text)[0])
        port = parts.port
    except ValueError as error:
        raise ActionFailed(f"{shown} is not a URL: {one_line(str(error), 100)}") from None
    if parts.scheme not in ("http", "https"):
        raise ActionFailed(f"{shown} is not a web address: it must begin with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ActionFailed(f"{shown} has a user name before the host")
    try:
        host = (parts.hostname or "").encode("idna").decode().lower() if not (parts.hostname or "").isascii() else None
        target = quote(parts.path or "/", safe=_KEPT) + (f"?{quote(parts.query, safe=_KEPT)}" if parts.query else "")
    except (UnicodeError, ValueError):
        raise ActionFailed(f"{shown} has characters that no URL has") from None
    host = host if host is not None else (parts.hostname or "")
    if not host or not all("!" <= char <= "~" for char in host) or set(host) & set("/\\?#@%"):
        raise ActionFailed(f"{shown} names no host")
    default = 80 if parts.scheme == "http" else 443
    return Address(parts.scheme, f"[{host}]" if ":" in host else host, None if port == default else port, target)
