"""What huggingface_hub does for `hf:`: listings and tokens, against a hub on loopback."""

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.http import tls_context
from stockade.models.local import hub as hub_module
from stockade.models.local.fetch import pull
from tests.support.site import certificates

from .fake_hub import FakeHub
from .test_pull import API, COMMIT, DATA, Hub, listed, models

__all__ = ["models"]

pytestmark = pytest.mark.anyio
FILE = f"/me/Tiny-GGUF/resolve/{COMMIT}/a.gguf"


@pytest.fixture(autouse=True)
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library reads where it is when it is imported."""
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))


async def test_a_stored_token(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("hf_stored\n")
    async with Hub(monkeypatch, listed("a.gguf")) as hub:
        await pull("hf:me/Tiny-GGUF", folder=models)
        assert len(hub.heads) == 2
        assert all("authorization: bearer hf_stored" in head.lower() for head in hub.heads)
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    async with Hub(monkeypatch, listed("b.gguf")) as hub:
        await pull("hf:me/Tiny-GGUF", folder=models)
        assert len(hub.heads) == 2
        assert all("authorization: bearer hf_other" in head.lower() for head in hub.heads)


async def test_no_token_over_plain_http_or_when_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    for endpoint, wanted in (
        ("http://hub.example", None),
        ("http://hub.example:443", None),
        ("https://hub.example", "hf_secret"),
        ("http://127.0.0.1:1", "hf_secret"),
    ):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        assert hub_module.token_to_send() == wanted
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
    assert hub_module.token_to_send() is None


async def test_tokens_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").mkdir()
    assert hub_module.token_to_send() is None
    monkeypatch.setenv("HF_TOKEN", "hf_\x1b[1m")
    with pytest.raises(UsageError, match="characters that no token has"):
        hub_module.token_to_send()
    monkeypatch.setenv("HF_OIDC_RESOURCE", "me")
    assert hub_module.token_to_send() is None


async def test_a_redirect_to_another_host_does_not_get_the_token(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    async with FakeHub(DATA, pages={"/listing": listed("a.gguf")[API]}) as elsewhere:
        moved = {API: f"{elsewhere.url}/listing", FILE: f"{elsewhere.url}/bytes"}
        async with Hub(monkeypatch, {}, moved=moved) as hub:
            _, path = await pull("hf:me/Tiny-GGUF", folder=models)
            assert hub.heads
            assert all("hf_secret" in head for head in hub.heads)
        assert [head.split()[1] for head in elsewhere.heads] == ["/listing", "/bytes"]
        assert not [head for head in elsewhere.heads if "hf_secret" in head]
    assert path.read_bytes() == DATA


@pytest.mark.parametrize(
    ("status", "error_code", "words"),
    [
        (
            403,
            "GatedRepo",
            r"it has conditions, 127.0.0.1 answered 403 No \(for one.*HF_TOKEN or log in with hf auth",
        ),
        (404, "RepoNotFound", r"me/Tiny-GGUF cannot be had: 127.0.0.1 answered 404 No \(for one"),
        (404, "RevisionNotFound", r"has no revision 'main'"),
        (429, "", r"answered 429 No$"),
        (503, "", "answered 503 No"),
    ],
)
async def test_refusals(
    models: Path, monkeypatch: pytest.MonkeyPatch, status: int, error_code: str, words: str
) -> None:
    async with Hub(monkeypatch, {}, status=status, error_code=error_code):
        with pytest.raises(ModelUnavailable, match=words) as caught:
            await pull("hf:me/Tiny-GGUF", folder=models)
    assert "\n" not in str(caught.value)


async def test_a_gated_file_of_a_repository_that_is_listed(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeHub(b"", status=403, error_code="GatedRepo") as gate:
        async with Hub(monkeypatch, listed("a.gguf"), moved={FILE: f"{gate.url}/x"}):
            with pytest.raises(ModelUnavailable, match=r"answered 403 No \(for one with conditions"):
                await pull("hf:me/Tiny-GGUF", folder=models)


async def test_a_hub_that_hangs(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "REACH_TIMEOUT_S", 0.2)
    async with Hub(monkeypatch, {}, silent=True) as hub:
        with anyio.fail_after(10), pytest.raises(ModelUnavailable, match=r"127.0.0.1 was not reached: .*timed out"):
            await pull("hf:me/Tiny-GGUF", folder=models)
        monkeypatch.setattr(hub_module, "REACH_TIMEOUT_S", 3.0)
        begun = time.monotonic()
        with anyio.move_on_after(0.2):
            await pull("hf:me/Tiny-GGUF", folder=models)
        assert time.monotonic() - begun < 3
        assert len(hub.heads) == 2


async def test_a_large_listing(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [f"part/{number}-of-many.bin" for number in range(5000)]
    async with Hub(monkeypatch, listed(*files, "a.gguf")):
        _, path = await pull("hf:me/Tiny-GGUF", folder=models)
    assert path.read_bytes() == DATA


@pytest.fixture
def fresh_client() -> Iterator[None]:
    """Our TLS context is made once per process."""
    tls_context.cache_clear()
    yield
    tls_context.cache_clear()


@pytest.mark.usefixtures("fresh_client")
@pytest.mark.parametrize("trusted", [True, False])
async def test_certificates_of_a_persons_own(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    certificates(tmp_path, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "site.pem")
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    async with Hub(monkeypatch, listed("a.gguf"), tls=context) as hub:
        if trusted:
            _, path = await pull("hf:me/Tiny-GGUF", folder=models)
            assert path.read_bytes() == DATA
        else:
            with pytest.raises(ModelUnavailable, match=r"localhost was not reached: .*certificate"):
                await pull("hf:me/Tiny-GGUF", folder=models)
            assert hub.heads == []


async def test_what_is_no_name_of_a_repository(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Hub(monkeypatch, {}) as hub:
        for reference in ("hf:me/a--b", "hf:me/..", "hf:a b/c"):
            with pytest.raises(UsageError, match="not a repository of the hub"):
                await pull(reference, folder=models)
        assert hub.heads == []
