import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.core.ports import Model
from stockade.models import auto
from stockade.models.auto import choose_model
from stockade.models.local import launch_spec
from stockade.models.local.embedded import EmbeddedModel
from stockade.models.local.folder import list_models, model_info
from stockade.models.local.gguf import read_gguf
from stockade.models.settings import ModelSettings
from stockade.runtime.models import open_model
from tests.support.fake_openai import FakeOpenAI

from .local.test_gguf import KEYS, gguf, key, text

pytestmark = pytest.mark.anyio


@pytest.fixture
def nobody() -> dict[str, str]:
    """All local servers at an address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    variables = ("LLAMA_SERVER_URL", "OLLAMA_HOST", "VLLM_BASE_URL", "LM_STUDIO_API_BASE")
    return dict.fromkeys(variables, f"http://127.0.0.1:{port}")


async def test_scripted(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"content": "x"}')
    model, name, note = await open_model(f"scripted/{tmp_path}/s.jsonl")
    assert isinstance(model, Model)
    assert (name, note) == (f"scripted/{tmp_path}/s.jsonl", None)


async def test_servers_are_not_asked_before_they_are_entered() -> None:
    model, name, _ = await open_model("openai/a/b", environment={"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})
    assert (name, model.info.name, model.info.provider, model.info.local) == ("openai/a/b", "a/b", "openai", True)


async def test_a_window_that_is_not_ours_to_set_is_said() -> None:
    said: list[str] = []
    await open_model("ollama/m", ModelSettings(ctx_size=16384), lambda text, *_: said.append(text), {})
    assert said == ["--ctx-size is for models that we load: the window of ollama/m is its server's"]


async def test_unknown_embedded() -> None:
    with pytest.raises(UsageError, match=r"no embedded model 'x'.*smollm2"):
        await open_model("embedded/x")


async def test_a_broken_file_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="cannot read the model file"):
        await open_model(f"gguf/{tmp_path}/none.gguf")
    (tmp_path / "m.gguf").write_bytes(gguf()[:-1])
    with pytest.raises(ModelUnavailable, match="cut short"):
        await open_model(f"gguf/{tmp_path}/m.gguf")


async def test_auto_takes_a_server_that_runs(nobody: dict[str, str], tmp_path: Path) -> None:
    async with FakeOpenAI(models=[{"id": "qwen3:8b"}]) as server:
        host = {"OLLAMA_HOST": server.base_url.removesuffix("/v1")}
        model, name, note = await open_model("auto", ModelSettings(folder=tmp_path), None, nobody | host)
    assert name == "ollama/qwen3:8b"
    assert model.info.provider == "ollama"
    assert note
    assert "a stronger one: stockade model use" in note


@pytest.mark.parametrize("models", [[], [{"id": 3}], [{"id": "\x1b[31m"}], [{"name": "x"}]])
async def test_auto_passes_over_what_is_no_model_server(
    nobody: dict[str, str], tmp_path: Path, models: list[dict[str, object]]
) -> None:
    async with FakeOpenAI(models=models) as server:
        found = await choose_model(ModelSettings(folder=tmp_path), nobody | {"LLAMA_SERVER_URL": server.base_url})
    assert found.spec == "embedded/qwen2.5-coder-1.5b"


async def test_auto_takes_the_largest_that_is_here(nobody: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "small.gguf").write_bytes(gguf())
    (tmp_path / "sub" / "large.gguf").write_bytes(gguf(weights=5000))
    (tmp_path / "larger-but-broken.gguf").write_bytes(bytes(20_000))
    found = await choose_model(ModelSettings(folder=tmp_path), nobody)
    assert found.spec == f"gguf/{tmp_path}/sub/large.gguf"
    assert "most capable of the models on this machine" in (found.note or "")


async def test_auto_passes_over_what_does_not_fit_and_says_so(
    nobody: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, weights in (("small", 1000), ("large", 50_000), ("larger", 60_000)):
        (tmp_path / f"{name}.gguf").write_bytes(gguf(weights=weights))
    needed = launch_spec.needed_bytes(read_gguf(tmp_path / "small.gguf"), 2048, 1)
    monkeypatch.setattr(launch_spec, "available_bytes", lambda: needed)
    found = await choose_model(ModelSettings(folder=tmp_path), nobody)
    assert found.spec == f"gguf/{tmp_path}/small.gguf"
    assert "that can run now (larger.gguf with a window of 2048 tokens needs about 30" in (found.note or "")
    assert "are free; and 1 more); a stronger one" in (found.note or "")


async def test_auto_takes_what_is_in_memory_already(
    nobody: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.gguf").write_bytes(gguf())
    (tmp_path / "large.gguf").write_bytes(gguf(weights=5000))
    monkeypatch.setattr(launch_spec, "available_bytes", lambda: 1)
    monkeypatch.setattr(auto, "_loaded_now", lambda: {os.path.realpath(tmp_path / "large.gguf")})
    found = await choose_model(ModelSettings(folder=tmp_path), nobody)
    assert found.spec == f"gguf/{tmp_path}/large.gguf"


async def test_auto_passes_over_what_has_no_such_window(nobody: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "large.gguf").write_bytes(gguf(weights=5000))
    (tmp_path / "wide.gguf").write_bytes(gguf(KEYS[:1]))
    found = await choose_model(ModelSettings(folder=tmp_path, ctx_size=4096), nobody)
    assert found.spec == f"gguf/{tmp_path}/wide.gguf"
    assert "large.gguf: a window of 4096 tokens is more than the 2048" in (found.note or "")


@pytest.mark.parametrize("name", ["nomic-embed-text", "bge-m3", "Qwen3-Reranker-4B", "whisper-large", "all-MiniLM"])
async def test_auto_passes_over_what_gives_no_answers(nobody: dict[str, str], tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.gguf").write_bytes(gguf(weights=5000))
    (tmp_path / "plain-name.gguf").write_bytes(gguf([key("general.architecture", 8, text("nomic-bert-moe"))]))
    assert (await choose_model(ModelSettings(folder=tmp_path), nobody)).spec == "embedded/qwen2.5-coder-1.5b"


async def test_nothing_is_fetched_that_cannot_be_loaded(
    nobody: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "available_bytes", lambda: 1_000_000_000)
    with pytest.raises(ModelUnavailable, match=r"takes more than the 1\.0 GB.*end other programs"):
        await choose_model(ModelSettings(folder=tmp_path), nobody)


async def test_auto_takes_a_model_that_answers(nobody: dict[str, str], tmp_path: Path) -> None:
    async with FakeOpenAI(models=[{"id": "nomic-embed-text:latest"}, {"id": "qwen3:8b"}]) as server:
        host = {"OLLAMA_HOST": server.base_url.removesuffix("/v1")}
        assert (await choose_model(ModelSettings(folder=tmp_path), nobody | host)).spec == "ollama/qwen3:8b"
    async with FakeOpenAI(models=[{"id": "mxbai-embed-large"}]) as server:
        host = {"OLLAMA_HOST": server.base_url.removesuffix("/v1")}
        assert (await choose_model(ModelSettings(folder=tmp_path), nobody | host)).spec.startswith("embedded/")


@pytest.mark.parametrize(
    ("loaded", "pulled", "spec"),
    [
        (["nomic-embed-text:latest", "llama3:8b"], ["qwen3:8b", "llama3:8b"], "ollama/llama3:8b"),
        (["nomic-embed-text:latest"], ["gpt-oss:120b-cloud", "glm-4.6:cloud", "qwen3:8b"], "ollama/qwen3:8b"),
        ([], ["odd", "qwen3:8b"], "ollama/qwen3:8b"),
    ],
)
async def test_auto_prefers_what_ollama_has_loaded(
    nobody: dict[str, str], tmp_path: Path, loaded: list[str], pulled: list[str], spec: str
) -> None:
    family = {"odd": {"family": "bert"}}
    tags = [{"name": name, "size": 1, "details": family.get(name, {"family": "llama"})} for name in pulled]
    routes = {"/api/ps": {"models": [{"name": name} for name in loaded]}, "/api/tags": {"models": tags}}
    async with FakeOpenAI(models=[{"id": name} for name in pulled], routes=routes) as server:
        found = await choose_model(ModelSettings(folder=tmp_path), nobody | {"OLLAMA_HOST": server.url})
    assert found.spec == spec


async def test_auto_takes_what_a_router_has_loaded(nobody: dict[str, str], tmp_path: Path) -> None:
    models = [{"id": "a", "status": {"value": "unloaded"}}, {"id": "b", "status": {"value": "loaded"}}]
    async with FakeOpenAI(models=models) as server:
        found = await choose_model(ModelSettings(folder=tmp_path), nobody | {"LLAMA_SERVER_URL": server.url})
    assert found.spec == "llama-server/b"


@pytest.mark.parametrize(
    ("variable", "path", "rows", "spec"),
    [
        ("LLAMA_SERVER_URL", "/v1/models", [{"id": "/srv/embeddings and more/qwen.gguf"}], "llama-server/qwen.gguf"),
        ("LLAMA_SERVER_URL", "/v1/models", [{"id": "~/m.gguf"}], "llama-server/m.gguf"),
        (
            "LLAMA_SERVER_URL",
            "/v1/models",
            [{"id": "ggml-org/Gemma-3:Q4 größer"}],
            "llama-server/ggml-org/Gemma-3:Q4 größer",
        ),
        ("VLLM_BASE_URL", "/v1/models", [{"id": "/models/qwen"}], "vllm//models/qwen"),
        (
            "LM_STUDIO_API_BASE",
            "/api/v0/models",
            [
                {"id": "first", "type": "embeddings", "state": "loaded"},
                {"id": "second", "type": "llm", "state": "not-loaded"},
                {"id": "my-embedding-chat", "type": "llm", "state": "loaded"},
            ],
            "lm-studio/my-embedding-chat",
        ),
    ],
)
async def test_auto_takes_what_a_local_server_has_whatever_it_is_called(
    nobody: dict[str, str], tmp_path: Path, variable: str, path: str, rows: list[dict[str, str]], spec: str
) -> None:
    async with FakeOpenAI(models=[], routes={path: {"data": rows}}) as server:
        around = nobody | {variable: server.url}
        model, name, _ = await open_model("auto", ModelSettings(folder=tmp_path), None, around)
    assert name == spec
    assert not isinstance(model, EmbeddedModel)


async def test_a_name_without_a_provider_is_looked_for_on_the_servers(nobody: dict[str, str], tmp_path: Path) -> None:
    names = ("qwen3:8b", "hf.co/a/B-GGUF:Q4_K_M", "Qwen/Qwen3-8B")
    async with FakeOpenAI(models=[{"id": name} for name in names]) as server:
        around = nobody | {"OLLAMA_HOST": server.url}
        for wanted in names:
            _, name, note = await open_model(wanted, ModelSettings(folder=tmp_path), None, around)
            assert name == f"ollama/{wanted}"
            assert note == f"using ollama/{wanted}, which its server calls {wanted}"
        with pytest.raises(UsageError, match="not a model: 'qwen4'"):
            await open_model("qwen4", ModelSettings(folder=tmp_path), None, around)
    async with FakeOpenAI(models=[{"id": "/models/x.gguf"}]) as server:
        _, name, _ = await open_model("/models/x.gguf", environment=nobody | {"LLAMA_SERVER_URL": server.url})
        assert name == "llama-server/x.gguf"
    with pytest.raises(UsageError, match=r"gguf//no/x\.gguf is the file, llama-server//no/x\.gguf a server's model"):
        await open_model("/no/x.gguf", environment=nobody)


async def test_auto_takes_the_file_of_most_parameters(nobody: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "long-file.gguf").write_bytes(gguf(weights=9000))
    (tmp_path / "capable.gguf").write_bytes(gguf(tensors=3, weights=1000))
    found = await choose_model(ModelSettings(folder=tmp_path), nobody)
    assert found.spec == f"gguf/{tmp_path}/capable.gguf"


async def test_auto_ends_at_ours(nobody: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "smollm2-135m-instruct-q4_1.gguf").write_bytes(gguf())
    found = await choose_model(ModelSettings(folder=tmp_path), nobody)
    assert found.spec == "embedded/qwen2.5-coder-1.5b"
    assert "fetched once (1.1 GB, Apache-2.0); a stronger one" in (found.note or "")


def test_the_list(tmp_path: Path) -> None:
    assert [(entry.name, entry.here) for entry in list_models(tmp_path / "none")] == [
        ("embedded/qwen2.5-coder-1.5b", False),
        ("embedded/smollm2", False),
    ]
    (tmp_path / "mine.gguf").write_bytes(gguf())
    (tmp_path / "broken.gguf").write_bytes(b"x")
    *_, broken, mine = list_models(tmp_path)
    assert "does not begin with GGUF" in broken.problem
    assert (mine.name, mine.window, mine.quantisation, mine.licence) == (
        f"gguf/{tmp_path}/mine.gguf", 2048, "Q4_K_M", "mit",
    )  # fmt: skip


def test_info(tmp_path: Path) -> None:
    (tmp_path / "mine.gguf").write_bytes(gguf(KEYS))
    assert model_info(f"gguf/{tmp_path}/mine.gguf").architecture == "llama"
    assert model_info("embedded/smollm2", tmp_path).window == 8192
    with pytest.raises(UsageError, match="nothing is known"):
        model_info("ollama/x")


@pytest.mark.parametrize(
    ("spec", "unwanted"),
    [
        (
            "scripted//nowhere.jsonl",
            ["h11", "httpx2", "stockade.models.local.server", "stockade.models.anthropic"],
        ),
        ("openai/x", ["stockade.models.local.server", "stockade.models.anthropic"]),
        ("anthropic/x", ["stockade.models.local.server", "stockade.models.openai"]),
    ],
)
def test_only_the_provider_that_was_named_is_imported(spec: str, unwanted: list[str]) -> None:
    code = (
        "import anyio, sys\nfrom stockade.core.errors import StockadeError\n"
        "from stockade.runtime.models import open_model\n"
        f"keys = {{'OPENAI_API_KEY': 'k', 'ANTHROPIC_API_KEY': 'k'}}\n"
        f"try:\n    anyio.run(open_model, {spec!r}, None, None, keys)\nexcept StockadeError:\n    pass\n"
        f"print([name for name in {unwanted!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
