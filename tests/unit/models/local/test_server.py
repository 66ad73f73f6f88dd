from pathlib import Path

import pytest

from stockade.core.errors import ModelUnavailable
from stockade.models.local import launch_spec
from stockade.models.local.server import EmbeddedServer
from stockade.models.local.server_lease import runtime_folder
from stockade.models.settings import ModelSettings

from .test_gguf import gguf

pytestmark = pytest.mark.anyio


async def test_short_memory_is_said_before_anything_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf())
    monkeypatch.setattr(launch_spec, "available_bytes", lambda: 1000)
    with pytest.raises(ModelUnavailable, match=r"m.gguf with a window of \d+ tokens needs about .* 1 MB are free"):
        async with EmbeddedServer(tmp_path / "m.gguf", "m"):
            pass
    assert [path.name for path in runtime_folder().iterdir()] == ["lock"]


async def test_an_adapter_that_is_no_file_of_weights_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf())
    (tmp_path / "l.gguf").write_bytes(b"hello")
    with pytest.raises(ModelUnavailable, match=r"not a usable model file: .*/l\.gguf: it does not begin with GGUF"):
        async with EmbeddedServer(tmp_path / "m.gguf", "m", ModelSettings(more={"lora": str(tmp_path / "l.gguf")})):
            pass


async def test_an_adapter_that_llama_cpp_refuses_is_named_and_not_the_model(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf())
    server = EmbeddedServer(tmp_path / "m.gguf", "m", ModelSettings(more={"lora": "/l.gguf"}))
    refused = server._unloadable("failed to apply lora adapter: LoRA tensor 'w' has unexpected suffix")
    assert refused.message.startswith("the LoRA adapter /l.gguf cannot be loaded: failed to apply")
    assert str(server._unloadable("tensor 'w' has wrong shape")).startswith(f"{tmp_path}/m.gguf cannot be loaded")
