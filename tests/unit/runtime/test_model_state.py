"""Whether a model would answer now, without starting one."""

from pathlib import Path

import pytest

from stockade.models import servers
from stockade.models.local import catalogue
from stockade.models.providers import PROVIDERS
from stockade.runtime.model_state import model_state
from tests.support.fake_openai import FakeOpenAI
from tests.unit.models.local.test_gguf import gguf
from tests.unit.models.test_servers import NOBODY, of_ollama

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for provider in servers.LOCAL:
        monkeypatch.setenv(PROVIDERS[provider].url_variables[0], NOBODY)
    monkeypatch.setenv("STOCKADE_MODELS", str(tmp_path))


async def state(spec: str) -> str:
    return (await model_state(spec)).state


async def test_an_embedded_one_is_here_or_not(tmp_path: Path) -> None:
    name = next(iter(catalogue.CATALOGUE))
    found = await model_state(f"embedded/{name}")
    assert (found.state, found.detail) == ("absent", f"stockade model pull embedded/{name}")
    assert found.window
    for file in ("made.gguf", catalogue.CATALOGUE[name].file):
        (tmp_path / file).write_bytes(gguf())
    assert await state(f"embedded/{name}") == "here"
    assert await state(f"gguf/{tmp_path}/made.gguf") == "here"


async def test_one_of_a_server_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = [of_ollama("llama3.2:3b", "3.2B"), of_ollama("qwen3:8b")]
    routes = {"/api/tags": {"models": tags}, "/api/ps": {"models": [of_ollama("qwen3:8b")]}}
    assert await state("ollama/qwen3:8b") == "unreachable"
    async with FakeOpenAI(models=[], routes=routes) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        found = await model_state("ollama/qwen3:8b")
        assert (found.state, found.parameters, server.url in found.detail) == ("loaded", 8_200_000_000, True)
        assert await state("ollama/llama3.2:3b") == "here"
        assert await state("ollama/other") == "absent"


async def test_auto_is_the_one_that_it_would_be_now() -> None:
    found = await model_state("auto")
    assert (found.name, found.state) == ("auto", "absent")
    assert found.detail.startswith("embedded/")


async def test_one_elsewhere_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    found = await model_state("openai/gpt")
    assert (found.state, found.detail) == ("unknown", "OPENAI_API_KEY is not set")
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    found = await model_state("openai/gpt")
    assert (found.state, found.detail) == ("hosted", "OPENAI_API_KEY is set")


@pytest.mark.parametrize("spec", ["scripted/x", "nothing", "nobody/x", "embedded/none", "gguf//none"])
async def test_what_nobody_knows(spec: str) -> None:
    assert await state(spec) == "unknown"
