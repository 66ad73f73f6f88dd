import pytest

from stockade.core.errors import UsageError
from stockade.models.names import PROVIDERS, parse_name
from stockade.models.servers import address_of


@pytest.mark.parametrize("provider", PROVIDERS)
def test_names_may_hold_slashes(provider: str) -> None:
    found = parse_name(f"{provider}/a/b:c/d")
    assert (found.provider, found.name, str(found)) == (provider, "a/b:c/d", f"{provider}/a/b:c/d")


def test_gguf_paths() -> None:
    assert parse_name("gguf//abs/m.gguf").name == "/abs/m.gguf"
    assert parse_name("gguf/rel/m.gguf").name == "rel/m.gguf"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("", "not a model: ''"),
        ("qwen", "not a model: 'qwen'.*PROVIDER/NAME"),
        ("olama/x", "unknown model provider 'olama'.*did you mean ollama/x"),
        ("zzz/x", "unknown model provider 'zzz'.*providers: embedded"),
        ("/x", "unknown model provider ''"),
        ("openai/", "has no name"),
        ("openai", "has no name"),
        ("azure/x", "comes with a later version"),
        ("anthropic/x", "comes with a later version"),
    ],
)
def test_bad_names(spec: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_name(spec)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("box:9", "http://box:9/v1"),
        ("https://box:9/", "https://box:9/v1"),
        ("http://box", "http://box:11434/v1"),
    ],
)
def test_ollama_host(host: str, url: str) -> None:
    assert address_of("ollama", {"OLLAMA_HOST": host}).base_url == url


def test_llama_server() -> None:
    assert address_of("llama-server", {}).base_url == "http://127.0.0.1:8080/v1"
    found = address_of("llamafile", {"LLAMA_SERVER_URL": "http://box:1/", "LLAMA_API_KEY": "k"})
    assert (found.base_url, found.api_key, found.dialect.llama_cpp) == ("http://box:1/v1", "k", True)


def test_openai() -> None:
    with pytest.raises(UsageError, match=r"api.openai.com needs a key.*OPENAI_API_KEY"):
        address_of("openai", {})
    with pytest.raises(UsageError, match="box needs a key"):
        address_of("openai", {"OPENAI_BASE_URL": "http://box/v1"})
    assert address_of("openai", {"OPENAI_BASE_URL": "http://localhost:1/v1"}).api_key is None
    found = address_of("openai", {"OPENAI_API_KEY": "k"})
    assert (found.api_key, found.dialect.extended_sampling) == ("k", False)
    assert address_of("openai", {"OPENAI_BASE_URL": "https://x/v1", "OPENAI_API_KEY": "k"}).dialect.extended_sampling
