"""The providers as data: where each is, which key it wants, how it is spoken to; and names of models, read strictly."""

import difflib
import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from os.path import expanduser
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field

from stockade.core.data import Data
from stockade.core.errors import UsageError
from stockade.models.openai_request import CacheField, Dialect
from stockade_sandbox.policy import is_loopback


def bearer(api_key: str | None) -> dict[str, str]:
    """The header of a key as most servers want it."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def is_own(url: str) -> bool:
    """True for addresses of this machine that no proxy and no key is needed for."""
    return is_loopback(urlsplit(url).hostname or "")


_NEAR_NAMES = (".local", ".lan", ".internal", ".home.arpa")


def is_near(url: str) -> bool:
    """True for this machine, and for addresses and names of one's own network: servers there mostly want no key."""
    host = urlsplit(url).hostname or ""
    try:
        return is_own(url) or ipaddress.ip_address(host).is_private
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


OPENAI_HOST = "api.openai.com"
OLLAMA_PORT = 11434
_SCHEME_PORTS = {"http": 80, "https": 443}
_HAS_SCHEME = re.compile(r"https?://", re.IGNORECASE)


class Provider(Data):
    """`url` is where it is when none of `url_variables` says so; `version` the path that its API is below.

    `key` says who needs one: `always`, `away` (not on this machine), or `never`: those cost nothing, and tell how large
    a model is. `native_tools`: known without asking.
    """

    url: str = ""
    url_variables: tuple[str, ...] = ()
    version: str = "/v1"
    key_variables: tuple[str, ...] = ()
    key: Literal["always", "away", "never"] = "never"
    key_header: str = "Authorization"
    dialect: Dialect = Dialect()
    native_tools: bool = False


_STRICT = Dialect(extended_sampling=False, max_tokens_key="max_completion_tokens", responses=True,
                  cache=("prompt_cache_key",))  # fmt: skip
_HOSTED = Dialect(extended_sampling=False)

PROVIDERS: Mapping[str, Provider] = {
    "llama-server": Provider(url="http://127.0.0.1:8080", url_variables=("LLAMA_SERVER_URL",),
                             key_variables=("LLAMA_API_KEY",), dialect=Dialect(llama_cpp=True, effort="template")),
    "llamafile": Provider(url="http://127.0.0.1:8080", url_variables=("LLAMAFILE_URL", "LLAMA_SERVER_URL"),
                          key_variables=("LLAMA_API_KEY",), dialect=Dialect(llama_cpp=True, effort="template")),
    "ollama": Provider(url="http://127.0.0.1:11434", url_variables=("OLLAMA_HOST",),
                       key_variables=("OLLAMA_API_KEY",), dialect=Dialect(server="ollama", extended_sampling=False)),
    "vllm": Provider(url="http://127.0.0.1:8000", url_variables=("VLLM_BASE_URL",), key_variables=("VLLM_API_KEY",),
                     dialect=Dialect(server="vllm", effort="template", repeat_penalty_key="repetition_penalty")),
    "lm-studio": Provider(url="http://127.0.0.1:1234", url_variables=("LM_STUDIO_API_BASE",),
                          key_variables=("LM_STUDIO_API_KEY",), dialect=Dialect(server="lm-studio")),
    "openai": Provider(url=f"https://{OPENAI_HOST}/v1", url_variables=("OPENAI_BASE_URL",), version="",
                       key_variables=("OPENAI_API_KEY",), key="away"),
    "azure": Provider(url_variables=("AZURE_OPENAI_ENDPOINT",), version="/openai/v1", key="always",
                      key_variables=("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN"), key_header="api-key",
                      dialect=_STRICT, native_tools=True),
    "anthropic": Provider(url="https://api.anthropic.com", url_variables=("ANTHROPIC_BASE_URL",), version="",
                          key_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), key="away",
                          key_header="x-api-key", native_tools=True),
    # OpenAI's API, spoken by others: https://ai.google.dev/gemini-api/docs/openai, https://api-docs.deepseek.com.
    "gemini": Provider(url="https://generativelanguage.googleapis.com/v1beta/openai", version="/openai", key="away",
                       url_variables=("GEMINI_BASE_URL",), key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
                       dialect=_HOSTED, native_tools=True),
    "deepseek": Provider(url="https://api.deepseek.com", version="", url_variables=("DEEPSEEK_BASE_URL",), key="away",
                         key_variables=("DEEPSEEK_API_KEY",), native_tools=True,
                         dialect=Dialect(extended_sampling=False, effort="thinking", thinks_always=True)),
    "openrouter": Provider(url="https://openrouter.ai/api/v1", url_variables=("OPENROUTER_BASE_URL",), key="away",
                           key_variables=("OPENROUTER_API_KEY",),
                           dialect=Dialect(effort="reasoning", charges=True, cache=("session_id",),
                                           repeat_penalty_key="repetition_penalty")),
}  # fmt: skip


_CACHES_OF: Mapping[str, tuple[CacheField, ...]] = {"anthropic": ("cache_control",), "openai": ("prompt_cache_key",)}
"""What OpenRouter passes on to the maker of a model, by the maker's name."""

AUTO = "auto"
FILES = ("embedded", "gguf", "scripted")
SERVERS = tuple(PROVIDERS)
PROVIDER_NAMES = (*FILES, *SERVERS)
STARTED = ("llama-server", "llamafile")
"""Those that we also start, when the name is a path."""


class ModelName(Data):
    """A provider and the name it knows the model by."""

    provider: str
    name: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.name}"

    @property
    def is_path(self) -> bool:
        """A server to be started from a file: `llamafile//opt/x.llamafile`, `llama-server/~/m.gguf`."""
        return self.provider in STARTED and self.name.startswith(("/", "./", "../", "~"))

    @property
    def path(self) -> Path:
        """Absolute, where the name is a file's."""
        return Path(expanduser(self.name)).absolute()


def parse_name(spec: str, providers: Sequence[str] = PROVIDER_NAMES) -> ModelName:
    """UsageError, with the nearest form, when it is not one. `auto` is not a name."""
    provider, slash, name = spec.strip().partition("/")
    if provider not in providers:
        near = difflib.get_close_matches(provider.lower(), providers, n=1)
        if not slash:
            raise UsageError(f"not a model: '{spec}'", f"write PROVIDER/NAME; providers: {', '.join(providers)}")
        if not provider:
            raise UsageError(f"not a model: '{spec}'", f"gguf/{spec} is the file, llama-server/{spec} a server's model")
        hint = f"did you mean {near[0]}/{name}?" if near else f"providers: {', '.join(providers)}"
        raise UsageError(f"unknown model provider '{provider}'", hint)
    if not name:
        raise UsageError(f"the model '{spec}' has no name", f"write {provider}/NAME")
    return ModelName(provider=provider, name=name)


class Address(Data):
    """A provider as it is reached from here. `query` is appended to every address; `native_tools`: known to have them.

    `headers` carry the key; `key_hint` says how to give another one.
    """

    base_url: str
    api_key: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    key_hint: str = ""
    dialect: Dialect = Dialect()
    query: str = ""
    native_tools: bool = False


def address_of(provider: str, environment: Mapping[str, str] = os.environ, name: str = "") -> Address:
    """UsageError when a variable that the provider needs is missing. `name` is the model's, for Azure's path; one that
    is an address is refused: the server that is asked would be another.
    """
    row = PROVIDERS[provider]
    if _HAS_SCHEME.match(name):
        where, how = row.url_variables[0], f"{provider}/NAME"
        raise UsageError(f"{name} is an address, not the name of a model", f"set {where}={name} and give --model {how}")
    url_variable = next((name for name in row.url_variables if environment.get(name)), row.url_variables[0])
    url = (environment.get(url_variable) or row.url).strip()
    if not url:
        raise UsageError(f"nobody says where {provider} is", f"set {url_variable}")
    variable = next((name for name in row.key_variables if environment.get(name)), None)
    key = environment[variable].strip() if variable else None
    if key is not None and not (key.isascii() and key.isprintable()):
        raise UsageError(f"{variable} is not a key: it has characters that no key has", "set it again")
    if provider != "ollama" and not _HAS_SCHEME.match(url):
        mended = f"http://{url.rpartition('://')[2]}"
        raise UsageError(
            f"{url_variable}: {url} does not begin with http:// or https://", f"set {url_variable}={mended}"
        )
    if key is None and (row.key == "always" or (row.key == "away" and not is_near(url))):
        raise UsageError(f"{urlsplit(url).hostname or url} needs a key", f"set {row.key_variables[0]}")
    as_bearer = key is None or row.key_header == "Authorization" or (variable or "").endswith("_TOKEN")
    address = Address(
        base_url=with_version(_ollama_url(url) if provider == "ollama" else url, row.version),
        api_key=key,
        headers=bearer(key) if as_bearer else {row.key_header: key or ""},
        key_hint=f"set {row.key_variables[0]} to a valid key" if row.key_variables else "",
        dialect=row.dialect,
        native_tools=row.native_tools,
    )
    if provider == "azure":
        return _azure(address, environment, name)
    if provider == "openai" and f".{urlsplit(url).hostname}".endswith(f".{OPENAI_HOST}"):  # or a region's: eu.api...
        return address.model_copy(update={"dialect": _STRICT, "native_tools": True})
    if provider == "openrouter":
        also = _CACHES_OF.get(name.lstrip("~").partition("/")[0], ())  # ~ is before names of newest versions
        return address.model_copy(
            update={"dialect": row.dialect.model_copy(update={"cache": (*row.dialect.cache, *also)})}
        )
    return address


def with_version(url: str, version: str = "/v1") -> str:
    """`http://host:port` and `http://host:port/v1` mean the same server."""
    url = url.rstrip("/")
    return url if url.endswith(version) else f"{url}{version}"


def _azure(address: Address, environment: Mapping[str, str], name: str) -> Address:
    """A dated version of their API has the deployment in its path; the undated one is like everybody's."""
    version = environment.get("AZURE_OPENAI_API_VERSION") or environment.get("OPENAI_API_VERSION") or ""
    if not version[:1].isdigit():
        return address
    base = address.base_url.removesuffix("/openai/v1")
    return address.model_copy(
        update={
            "base_url": f"{base}/openai/deployments/{name}",
            "query": f"?api-version={version}",
            "dialect": address.dialect.model_copy(update={"responses": False}),
        }
    )


def _ollama_url(host: str) -> str:
    """OLLAMA_HOST as Ollama reads it: a host, `host:port` or a URL, whose port is then that of its scheme.

    0.0.0.0 is where it listens, not where it is.
    """
    scheme, separator, rest = host.strip(" \t\"'").rpartition("://")
    scheme = scheme.lower() or "http"
    if scheme not in _SCHEME_PORTS:
        raise UsageError(f"OLLAMA_HOST is no address: {host!r}", "write HOST, HOST:PORT or http://HOST:PORT")
    if rest.count(":") > 1 and not rest.startswith("["):  # an IPv6 address as it stands
        rest = f"[{rest}]"
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        name, port = parts.hostname or "", parts.port
    except ValueError:
        raise UsageError(f"OLLAMA_HOST is no address: {host!r}", "write HOST, HOST:PORT or http://HOST:PORT") from None
    port = port or (_SCHEME_PORTS[scheme] if separator else OLLAMA_PORT)
    name = "127.0.0.1" if name in ("", "0.0.0.0") else "[::1]" if name == "::" else f"[{name}]" if ":" in name else name
    return f"{scheme}://{name}:{port}{parts.path.rstrip('/')}"
