"""The address of a page as a model writes it, checked before a browser sees it."""

from urllib.parse import urlsplit

MAX_CHARS = 2000


def web_address(text: str) -> str:
    """An http or https address; one without a scheme is https. ValueError for anything else, local files included."""
    url = text.strip()
    if not url or len(url) > MAX_CHARS or any(char.isspace() or not char.isprintable() for char in url):
        raise ValueError(f"it is empty, longer than {MAX_CHARS} characters, or has blanks in it")
    if "://" not in url:
        if url.split(":")[0].lower() in ("javascript", "data", "file", "about", "chrome", "view-source", "blob"):
            raise ValueError("only http and https pages can be opened")
        url = f"https://{url}"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("this is no address") from None
    if parts.scheme.lower() not in ("http", "https"):
        raise ValueError("only http and https pages can be opened")
    if not host:
        raise ValueError("it names no host")
    return url
