"""What servers that run here say of their models, as Ollama, LM Studio, vLLM and llama.cpp say it, or do not."""

import json
from pathlib import Path

import anyio
import pytest

from stockade.core.errors import ModelUnavailable
from stockade.models import servers
from stockade.models.local.embedded import EmbeddedModel
from stockade.models.openai import OpenAIModel
from stockade.models.providers import PROVIDERS
from stockade.models.settings import ModelSettings
from stockade.runtime.models import open_model
from stockade.testing.conformance.model import question
from tests.support.fake_openai import FakeOpenAI, Reply, says

from .local.test_gguf import gguf

pytestmark = pytest.mark.anyio
NOBODY = "http://127.0.0.1:1"
WHERE = {provider: PROVIDERS[provider].url_variables[0] for provider in servers.LOCAL}
NOWHERE = dict.fromkeys(WHERE.values(), NOBODY)
PATH = "/models/Qwen3-8B Q4.gguf"
LLAMA_CPP = {"id": PATH, "object": "model", "meta": {"n_ctx": 4096, "n_params": 8_190_735_360, "size": 5_000_000_000}}


def of_ollama(name: str, parameters: str = "8.2B", family: str = "qwen3", **more: object) -> dict[str, object]:
    return {"name": name, "size": 5_200_000_000, "details": {"family": family, "parameter_size": parameters}, **more}


async def test_ollama() -> None:
    tags = [of_ollama("nomic-embed-text:latest", "137M", "nomic-bert"), of_ollama("llama3.2:3b", "3.2B"),
            of_ollama("gpt-oss:120b-cloud"), of_ollama("hf.co/a/B-GGUF:Q4_K_M"), of_ollama("qwen3:8b")]  # fmt: skip
    routes = {"/api/tags": {"models": tags}, "/api/ps": {"models": [{**of_ollama("qwen3:8b"), "context_length": 8192}]}}
    async with FakeOpenAI(models=[], routes=routes) as server:
        told = await servers.ask_server("ollama", {"OLLAMA_HOST": server.url})
    assert (told.problem, told.running, told.named, told.url) == ("", True, True, server.url)
    first = told.models[0]
    assert (first.spec, first.loaded, first.window, first.parameters) == ("ollama/qwen3:8b", True, 8192, 8_200_000_000)
    assert [model.spec for model in servers.usable(told)] == [
        "ollama/qwen3:8b", "ollama/llama3.2:3b", "ollama/hf.co/a/B-GGUF:Q4_K_M",
    ]  # fmt: skip


async def test_llama_server_calls_its_model_by_a_path() -> None:
    async with FakeOpenAI(models=[LLAMA_CPP]) as server:
        (model,) = (await servers.ask_server("llama-server", {"LLAMA_SERVER_URL": server.url})).models
    assert (model.spec, model.id, model.window) == ("llama-server/Qwen3-8B Q4.gguf", PATH, 4096)
    async with FakeOpenAI(models=[LLAMA_CPP, {"id": "/models/other.gguf"}]) as router:
        told = await servers.ask_server("llama-server", {"LLAMA_SERVER_URL": router.url})
    assert [model.spec for model in told.models] == [f"llama-server/{PATH}", "llama-server//models/other.gguf"]


@pytest.mark.parametrize(
    ("routes", "models", "status", "problem"),
    [
        ({}, [], 401, "it refused the key (401)"),
        ({}, [], 503, "it is still loading its model (503)"),
        ({}, [], 404, "is no model server (404)"),
        ({"/v1/models": ["a"]}, [], 200, "is no model server (200)"),
        ({"/v1/models": {"data": None}}, [], 200, "it has no model"),
        ({"/v1/models": {"data": [3, {"id": "\x1b[2J"}, {"id": ""}]}}, [], 200, "it has no model"),
    ],
)
async def test_why_it_tells_of_none(
    routes: dict[str, object], models: list[dict[str, object]], status: int, problem: str
) -> None:
    async with FakeOpenAI(models=models, routes=routes, get_status=status) as server:
        told = await servers.ask_server("vllm", {"VLLM_BASE_URL": server.url})
    assert told.running
    assert not told.models
    assert problem in told.problem
    assert "\n" not in servers.shown(told)


async def test_one_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "ANSWER_S", 0.2)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        told = await servers.ask_servers(NOWHERE | {"VLLM_BASE_URL": f"http://127.0.0.1:{port}"})
    assert [one.problem for one in told if one.provider == "vllm"] == ["it did not answer within 0.2 s"]
    assert [one.running for one in told] == [False, True, False, False]


async def test_an_address_that_is_none_is_a_problem_of_that_server_alone() -> None:
    told = await servers.ask_servers(NOWHERE | {"OLLAMA_HOST": "ftp://x"})
    assert "OLLAMA_HOST is no address" in told[-1].problem
    assert len(told) == len(servers.LOCAL)


async def test_a_path_that_a_running_server_has_is_asked_there(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf())
    async with FakeOpenAI([says("hello")], models=[{"id": PATH}, {"id": str(file)}]) as server:
        where = {"LLAMA_SERVER_URL": server.url}
        for path in (PATH, str(file)):
            model, name, _ = await open_model(f"llama-server/{path}", environment=where)
            assert isinstance(model, OpenAIModel)
            assert (name, model.info.name) == (f"llama-server/{path}", path)
        program = tmp_path / "llama-server"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        asked = len(server.asked)
        settings = ModelSettings(llama_server=str(program))
        assert isinstance((await open_model(f"llama-server/{file}", settings, None, where))[0], EmbeddedModel)
        assert len(server.asked) == asked


async def test_a_name_as_a_server_has_it() -> None:
    async with FakeOpenAI(models=[LLAMA_CPP]) as server:
        where = NOWHERE | {"LLAMA_SERVER_URL": server.url}
        for name in (PATH, "Qwen3-8B Q4.gguf"):
            assert await servers.find_id(name, where) == "llama-server/Qwen3-8B Q4.gguf"
        assert await servers.find_id("Qwen3", where) is None


async def test_anthropic_and_openai_are_asked_with_their_keys() -> None:
    async with FakeOpenAI(
        models=[{"id": "claude-x"}], routes={"/v1/models?limit=1000": {"data": [{"id": "y"}]}}
    ) as one:
        keys = {"ANTHROPIC_BASE_URL": one.url, "ANTHROPIC_API_KEY": "sk-ant", "OPENAI_BASE_URL": one.base_url,
                "OPENAI_API_KEY": "sk-o", "AZURE_OPENAI_API_KEY": "no address"}  # fmt: skip
        assert servers.keys_found(keys) == {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
        assert [one.spec for one in (await servers.ask_server("anthropic", keys)).models] == ["anthropic/y"]
        assert [one.spec for one in (await servers.ask_server("openai", keys)).models] == ["openai/claude-x"]
    first, second = one.asked
    assert (first.headers["x-api-key"], first.headers["anthropic-version"]) == ("sk-ant", "2023-06-01")
    assert second.headers["authorization"] == "Bearer sk-o"


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("qwen3:8", "qwen3:8b"),
        ("GPT-5-MINI", "gpt-5-mini"),
        ("claude-sonet-4", "claude-sonnet-4"),
        ("Q8", "a/q8"),
        ("zzz", None),
    ],
)
def test_the_nearest_name(typed: str, near: str | None) -> None:
    assert servers.nearest(typed, ["qwen3:8b", "gpt-5-mini", "claude-sonnet-4", "a/q8"]) == near


@pytest.mark.parametrize(
    ("provider", "variable", "listing", "typed", "hint"),
    [
        ("ollama", "OLLAMA_HOST", [{"id": "llama3.2:3b"}, {"id": "qwen3:8b"}], "qwen3:8",
         "did you mean ollama/qwen3:8b?"),
        ("openai", "OPENAI_BASE_URL", [{"id": "gpt-5-mini"}], "gpt-5-mni", "did you mean openai/gpt-5-mini?"),
        ("openai", "OPENAI_BASE_URL", [{"id": f"m{n}"} for n in range(7)], "other", "it has m0, m1, m2, m3, m4, ..."),
        ("openai", "OPENAI_BASE_URL", [], "other", "name one that the server lists"),
        ("openai", "OPENAI_BASE_URL", [{"id": "models/gemini-9"}], "gemini-8", "did you mean openai/gemini-9?"),
        ("anthropic", "ANTHROPIC_BASE_URL", [{"id": "claude-sonnet-4"}], "claude-sonet-4",
         "did you mean anthropic/claude-sonnet-4?"),
    ],
)  # fmt: skip
async def test_a_model_that_is_not_there_is_told_with_the_nearest(
    provider: str, variable: str, listing: list[dict[str, object]], typed: str, hint: str
) -> None:
    body = {"error": {"message": f"The model `{typed}` does not exist", "type": "not_found_error"}}
    routes = {"/v1/models?limit=1000": {"data": listing}}
    refused = Reply(status=404, body=json.dumps(body).encode())
    async with FakeOpenAI(otherwise=lambda: refused, models=listing, routes=routes) as server:
        where = server.base_url if provider == "openai" else server.url
        model, _, _ = await open_model(f"{provider}/{typed}", environment={variable: where})
        async with model:
            with pytest.raises(ModelUnavailable) as caught:
                await model.ask(question())
    assert f"has no model '{typed}' (404): The model `{typed}` does not exist" in caught.value.message
    assert caught.value.hint == hint
