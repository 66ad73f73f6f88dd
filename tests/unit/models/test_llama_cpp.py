from pathlib import Path

import pytest

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models import memory
from stockade.models.llama_cpp import EmbeddedServer
from stockade.models.runtime import runtime_folder
from stockade.models.settings import ModelSettings

from .test_gguf import gguf

pytestmark = pytest.mark.anyio


async def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf())
    with pytest.raises(UsageError, match="cannot write the log"):
        async with EmbeddedServer(tmp_path / "m.gguf", "m", ModelSettings(log_file=tmp_path)):
            pass


async def test_short_memory_is_said_before_anything_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf())
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    with pytest.raises(ModelUnavailable, match=r"m.gguf with a window of \d+ tokens needs about .* 1 MB are free"):
        async with EmbeddedServer(tmp_path / "m.gguf", "m"):
            pass
    assert [path.name for path in runtime_folder().iterdir()] == ["lock"]
