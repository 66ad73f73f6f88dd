"""The OpenAI-compatible servers as data: where each is, what it understands, whether a key is needed."""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from stockade.core.data import Data
from stockade.core.errors import UsageError
from stockade.models.openai_http import is_loopback
from stockade.models.payload import Dialect

LLAMA_SERVER_URL = "http://127.0.0.1:8080"
OLLAMA_URL = "http://127.0.0.1:11434"
OPENAI_URL = "https://api.openai.com/v1"


class Address(Data):
    """A base URL with its version path, its key, and how to speak to it."""

    base_url: str
    api_key: str | None = None
    dialect: Dialect = Dialect()


def address_of(provider: str, environment: Mapping[str, str] = os.environ) -> Address:
    """UsageError when a variable that the provider needs is missing."""
    if provider in ("llama-server", "llamafile"):
        url = environment.get("LLAMA_SERVER_URL") or LLAMA_SERVER_URL
        return Address(
            base_url=with_version(url), api_key=environment.get("LLAMA_API_KEY"), dialect=Dialect(llama_cpp=True)
        )
    if provider == "ollama":
        return Address(base_url=with_version(_ollama_url(environment.get("OLLAMA_HOST", ""))))
    url = environment.get("OPENAI_BASE_URL") or OPENAI_URL
    key = environment.get("OPENAI_API_KEY") or None
    if key is None and not is_loopback(url):
        raise UsageError(f"{urlsplit(url).hostname or url} needs a key", "set OPENAI_API_KEY")
    if urlsplit(url).hostname == "api.openai.com":
        dialect = Dialect(extended_sampling=False, max_tokens_key="max_completion_tokens")
    else:
        dialect = Dialect()
    return Address(base_url=url, api_key=key, dialect=dialect)


def with_version(url: str) -> str:
    """`http://host:port` and `http://host:port/v1` mean the same server."""
    url = url.rstrip("/")
    return url if url.endswith("/v1") else f"{url}/v1"


def _ollama_url(host: str) -> str:
    """OLLAMA_HOST as Ollama reads it: `host`, `host:port` or a URL; 0.0.0.0 is where it listens, not where it is."""
    if not host:
        return OLLAMA_URL
    scheme, separator, rest = host.rpartition("://")
    name, _, port = rest.rstrip("/").partition(":")
    if not separator or not port:
        scheme, port = scheme or "http", port or "11434"
    return f"{scheme}://{'127.0.0.1' if name in ('', '0.0.0.0') else name}:{port}"
