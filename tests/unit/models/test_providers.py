import pytest

from stockade.core.errors import UsageError
from stockade.models.providers import PROVIDER_NAMES, SERVERS, address_of, parse_name
from stockade.models.providers import PROVIDERS as TABLE


@pytest.mark.parametrize("provider", PROVIDER_NAMES)
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
        ("/x", "not a model: '/x'.*gguf//x is the file"),
        ("openai/", "has no name"),
        ("openai", "has no name"),
        ("azure/", "has no name"),
        ("LM-Studio/x", "did you mean lm-studio/x"),
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
        ("http://box", "http://box:80/v1"),
        ("https://ollama.example.com", "https://ollama.example.com:443/v1"),
        ("https://box/ollama/", "https://box:443/ollama/v1"),
        ("box", "http://box:11434/v1"),
        ("::1", "http://[::1]:11434/v1"),
        ("[::]:7", "http://[::1]:7/v1"),
        (" 'box:9' ", "http://box:9/v1"),
        ("HTTPS://box", "https://box:443/v1"),
        (":9", "http://127.0.0.1:9/v1"),
    ],
)
def test_ollama_host(host: str, url: str) -> None:
    assert address_of("ollama", {"OLLAMA_HOST": host}).base_url == url


@pytest.mark.parametrize("host", ["box:port", "ftp://box"])
def test_an_ollama_host_that_is_none(host: str) -> None:
    with pytest.raises(UsageError, match=f"OLLAMA_HOST is no address: '{host}'"):
        address_of("ollama", {"OLLAMA_HOST": host})


def test_an_address_without_its_scheme_is_told_so_and_not_that_it_needs_a_key() -> None:
    with pytest.raises(UsageError, match=r"OPENAI_BASE_URL: localhost:8080/v1 does.*set OPENAI_BASE_URL=http://lo"):
        address_of("openai", {"OPENAI_BASE_URL": "localhost:8080/v1"})


def test_an_address_in_the_place_of_a_name_is_refused_with_where_it_goes() -> None:
    """The server that was asked was another, the one at the usual address."""
    with pytest.raises(UsageError, match="is an address, not the name of a model") as caught:
        address_of("llama-server", {}, "http://127.0.0.1:18390")
    assert caught.value.hint == "set LLAMA_SERVER_URL=http://127.0.0.1:18390 and give --model llama-server/NAME"


@pytest.mark.parametrize(
    ("url", "needs"),
    [
        ("http://127.0.0.1:1/v1", False), ("http://192.168.0.7:1/v1", False), ("http://10.1.1.1/v1", False),
        ("http://box.local/v1", False), ("http://gpu.lan/v1", False), ("http://host.docker.internal/v1", False),
        ("http://[fd00::1]:1/v1", False), ("http://8.8.8.8/v1", True), ("https://api.example.com/v1", True),
    ],
)  # fmt: skip
def test_who_needs_a_key(url: str, needs: bool) -> None:
    if needs:
        with pytest.raises(UsageError, match="needs a key"):
            address_of("openai", {"OPENAI_BASE_URL": url})
    else:
        assert address_of("openai", {"OPENAI_BASE_URL": url}).api_key is None


def test_llama_server() -> None:
    assert address_of("llama-server", {}).base_url == "http://127.0.0.1:8080/v1"
    found = address_of("llamafile", {"LLAMA_SERVER_URL": "http://box:1/", "LLAMA_API_KEY": "k"})
    assert (found.base_url, found.api_key, found.dialect.llama_cpp) == ("http://box:1/v1", "k", True)


def test_every_server_has_a_row() -> None:
    assert set(SERVERS) == set(TABLE)


@pytest.mark.parametrize(
    ("spec", "is_path"),
    [
        ("llamafile//opt/x.llamafile", True),
        ("llamafile/~/x.llamafile", True),
        ("llama-server/./m.gguf", True),
        ("llama-server/m.gguf", False),
        ("gguf//m.gguf", False),
        ("openai//x", False),
    ],
)
def test_a_path_is_started(spec: str, is_path: bool) -> None:
    assert parse_name(spec).is_path is is_path


def test_azure() -> None:
    with pytest.raises(UsageError, match=r"nobody says where azure is.*AZURE_OPENAI_ENDPOINT"):
        address_of("azure", {"AZURE_OPENAI_API_KEY": "k"}, "gpt")
    place = {"AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com/"}
    with pytest.raises(UsageError, match=r"me.openai.azure.com needs a key.*AZURE_OPENAI_API_KEY"):
        address_of("azure", place, "gpt")
    token = address_of("azure", place | {"AZURE_OPENAI_AD_TOKEN": "t"}, "gpt")
    assert token.headers == {"Authorization": "Bearer t"}
    found = address_of("azure", place | {"AZURE_OPENAI_API_KEY": "k"}, "gpt")
    assert (found.base_url, found.query) == ("https://me.openai.azure.com/openai/v1", "")
    assert found.headers == {"api-key": "k"}
    dated = {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_API_VERSION": "2024-10-21"}
    found = address_of("azure", place | dated, "gpt")
    assert found.base_url == "https://me.openai.azure.com/openai/deployments/gpt"
    assert found.query == "?api-version=2024-10-21"


def test_anthropic() -> None:
    with pytest.raises(UsageError, match=r"api.anthropic.com needs a key.*ANTHROPIC_API_KEY"):
        address_of("anthropic", {})
    assert address_of("anthropic", {"ANTHROPIC_API_KEY": "k"}).headers == {"x-api-key": "k"}
    assert address_of("anthropic", {"ANTHROPIC_AUTH_TOKEN": "t"}).headers == {"Authorization": "Bearer t"}
    assert address_of("anthropic", {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9/"}).base_url == "http://127.0.0.1:9"


def test_others() -> None:
    assert address_of("vllm", {}).base_url == "http://127.0.0.1:8000/v1"
    assert address_of("lm-studio", {"LM_STUDIO_API_BASE": "http://box:1/v1"}).base_url == "http://box:1/v1"


@pytest.mark.parametrize(
    ("provider", "name", "variables", "how"),
    [
        ("openai", "gpt-x", {"OPENAI_API_KEY": "k"}, ("prompt_cache_key",)),
        (
            "openai",
            "gpt-x",
            {"OPENAI_BASE_URL": "https://eu.api.openai.com/v1", "OPENAI_API_KEY": "k"},
            ("prompt_cache_key",),
        ),
        ("openai", "gpt-x", {"OPENAI_BASE_URL": "https://notapi.openai.com/v1", "OPENAI_API_KEY": "k"}, ()),
        ("openai", "gpt-x", {"OPENAI_BASE_URL": "https://box/v1", "OPENAI_API_KEY": "k"}, ()),
        ("azure", "mine", {"AZURE_OPENAI_ENDPOINT": "https://a", "AZURE_OPENAI_API_KEY": "k"}, ("prompt_cache_key",)),
        ("openrouter", "anthropic/claude-x", {"OPENROUTER_API_KEY": "k"}, ("session_id", "cache_control")),
        ("openrouter", "~anthropic/claude-latest", {"OPENROUTER_API_KEY": "k"}, ("session_id", "cache_control")),
        ("openrouter", "qwen/qwen-x", {"OPENROUTER_API_KEY": "k"}, ("session_id",)),
        ("openrouter", "openai/gpt-x", {"OPENROUTER_API_KEY": "k"}, ("session_id", "prompt_cache_key")),
        ("llama-server", "anthropic/claude-x", {}, ()),
    ],
)
def test_who_is_told_how_a_conversation_goes_on(
    provider: str, name: str, variables: dict[str, str], how: tuple[str, ...]
) -> None:
    assert address_of(provider, variables, name).dialect.cache == how


@pytest.mark.parametrize("key", ["a\nb", "schlüssel", "\x1b[31m"])
def test_a_key_that_is_none_is_told_before_it_is_sent(key: str) -> None:
    with pytest.raises(UsageError, match="OPENAI_API_KEY is not a key") as caught:
        address_of("openai", {"OPENAI_API_KEY": key})
    assert key not in str(caught.value)


def test_openai() -> None:
    with pytest.raises(UsageError, match=r"api.openai.com needs a key.*OPENAI_API_KEY"):
        address_of("openai", {})
    with pytest.raises(UsageError, match="box needs a key"):
        address_of("openai", {"OPENAI_BASE_URL": "http://box/v1"})
    assert address_of("openai", {"OPENAI_BASE_URL": "http://localhost:1/v1"}).api_key is None
    found = address_of("openai", {"OPENAI_API_KEY": "k"})
    assert (found.api_key, found.dialect.extended_sampling) == ("k", False)
    assert address_of("openai", {"OPENAI_BASE_URL": "https://x/v1", "OPENAI_API_KEY": "k"}).dialect.extended_sampling
