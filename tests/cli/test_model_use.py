"""`stockade model use` and `model list` with servers that run: by name, by a list on a real terminal, and off one."""

import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest

from stockade.models import servers
from stockade.models.providers import PROVIDERS
from stockade.testing import say
from tests.cli.conftest import PATIENCE_S, Stage
from tests.support.fake_openai import FakeOpenAI, fails, says
from tests.support.tmux import Screen

pytestmark = pytest.mark.anyio
PATH = "/models/qwen.gguf"
OLLAMA = {"/api/tags": {"models": [{"name": "qwen3:8b", "size": 1}, {"name": "llama3.2:3b", "size": 1}]}}


@pytest.fixture(autouse=True)
def _nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in servers.LOCAL:
        monkeypatch.setenv(PROVIDERS[provider].url_variables[0], "http://127.0.0.1:1")


def written(stage: Stage) -> dict[str, object]:
    return tomllib.loads((stage.home / ".config/stockade/config.toml").read_text())


async def test_by_name_as_a_server_has_it_and_then_a_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeOpenAI(models=[{"id": PATH, "meta": {"n_ctx": 8192}}],
                          otherwise=lambda: says(say("finish", answer="3 lines"))) as server:  # fmt: skip
        monkeypatch.setenv("LLAMA_SERVER_URL", server.url)
        call = partial(anyio.to_thread.run_sync, stage.call)
        used = await call("model", "use", PATH)
        assert (used.status, used.out.split(",")[0]) == (0, "model = llama-server/qwen.gguf"), used.err
        used = await call("model", "use", f"llama-server/{PATH}")
        assert (used.status, used.err) == (0, "")
        assert written(stage) == {"model": f"llama-server/{PATH}"}
        ran = await call("run", "count", "--folder", str(stage.demo), "--no-input", "-o", "answers=json")
        assert (ran.status, ran.out) == (0, "3 lines\n"), ran.err
        assert {one.body["model"] for one in server.questions if "messages" in one.body} == {PATH}


async def test_off_a_terminal_and_what_no_server_has(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeOpenAI(models=[], routes=OLLAMA) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
        call = partial(anyio.to_thread.run_sync, stage.call)
        asked = await call("model", "use")
        assert asked.status == 2
        for words in ("ollama/qwen3:8b", "openai/NAME", "OPENAI_API_KEY", "hint: stockade model use PROVIDER/NAME"):
            assert words in asked.err
        wrong = await call("model", "use", "ollama/qwen3:8bb")
        assert (wrong.status, wrong.err.splitlines()[-1]) == (2, "hint: did you mean ollama/qwen3:8b?")
        assert not (stage.home / ".config/stockade/config.toml").exists()
        listed = await call("model", "list")
        assert "ollama/llama3.2:3b" in listed.out
        assert "vllm at http://127.0.0.1:1: Connection refused" in listed.out


@pytest.fixture
def screen(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Screen]]:
    opened: list[Screen] = []
    yield opened
    for one in opened:
        one.close()


async def test_picked_on_a_terminal(stage: Stage, screen: list[Screen], monkeypatch: pytest.MonkeyPatch) -> None:
    """Words make the list shorter, nonsense asks again, a key is asked with; what is chosen is written."""
    hosted = FakeOpenAI(models=[{"id": "gpt-big"}, {"id": "gpt-small"}])
    async with FakeOpenAI([fails(500)], models=[], routes=OLLAMA) as server, hosted:
        where = {"OLLAMA_HOST": server.url, "OPENAI_BASE_URL": hosted.base_url, "OPENAI_API_KEY": "sk-x"}

        def pick() -> tuple[int, str]:
            at = Screen(stage.tmp_path, ["model", "use"], Path(stage.demo), stage.environment() | where, PATIENCE_S,
                        (80, 24))  # fmt: skip
            screen.append(at)
            at.until("1  ollama/qwen3:8b", "2  ollama/llama3.2:3b", "openai/NAME", "no change):")
            at.type("nonsense\r")
            at.until("not a model: 'nonsense'", "no change):")
            at.type("openai\r")
            at.until("1  openai/gpt-big", "2  openai/gpt-small", "no change):")
            at.type("2\r")
            return at.status(), at.text

        status, text = await anyio.to_thread.run_sync(pick)
    assert status == 0, text
    assert written(stage) == {"model": "openai/gpt-small"}
