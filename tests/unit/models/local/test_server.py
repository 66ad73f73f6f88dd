from pathlib import Path

import pytest

from stockade.core.errors import ModelUnavailable
from stockade.models.local import launch_spec
from stockade.models.local.server import EmbeddedServer
from stockade.models.local.server_lease import runtime_folder
from stockade.models.settings import ModelSettings

from .test_gguf import gguf, key, text

pytestmark = pytest.mark.anyio


async def test_short_memory_is_said_before_anything_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf())
    monkeypatch.setattr(launch_spec, "available_bytes", lambda: 1000)
    with pytest.raises(ModelUnavailable, match=r"m.gguf with a window of \d+ tokens needs about .* 1 MB are free"):
        async with EmbeddedServer(tmp_path / "m.gguf", "m"):
            pass
    assert [path.name for path in runtime_folder().iterdir()] == ["lock"]


ADAPTER = [key("general.type", 8, text("adapter")), key("adapter.type", 8, text("lora"))]


@pytest.mark.parametrize(
    ("adapter", "said"),
    [
        (b"hello", "not a usable LoRA adapter: .*/l.gguf: it does not begin with GGUF"),
        (gguf(), "not a LoRA adapter: .*/l.gguf is a model"),
        (
            gguf([key("general.architecture", 8, text("qwen2")), *ADAPTER]),
            "l.gguf is for qwen2 models, .*m.gguf is llama",
        ),
    ],
)
async def test_a_bad_adapter_is_named_and_not_the_model(tmp_path: Path, adapter: bytes, said: str) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf())
    (tmp_path / "l.gguf").write_bytes(adapter)
    with pytest.raises(ModelUnavailable, match=said) as caught:
        async with EmbeddedServer(tmp_path / "m.gguf", "m", ModelSettings(more={"lora": str(tmp_path / "l.gguf")})):
            pass
    assert "--lora" in str(caught.value)


async def test_one_that_llama_cpp_refuses_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf())
    server = EmbeddedServer(tmp_path / "m.gguf", "m", ModelSettings(more={"lora": "/l.gguf"}))
    refused = server._unloadable("failed to apply lora adapter: LoRA tensor 'w' has unexpected suffix")
    assert refused.message.startswith("the LoRA adapter /l.gguf cannot be loaded: failed to apply")
    assert str(server._unloadable("tensor 'w' has wrong shape")).startswith(f"{tmp_path}/m.gguf cannot be loaded")
