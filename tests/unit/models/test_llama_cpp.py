from pathlib import Path

import pytest

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models import llama_cpp
from stockade.models.gguf import GgufInfo
from stockade.models.llama_cpp import EmbeddedServer, check_memory, last_words, window_for
from stockade.models.settings import ModelSettings

from .test_gguf import gguf

INFO = GgufInfo(path="/x/m.gguf", size_bytes=1_000_000, architecture="llama", context_length=32768)


def test_the_window() -> None:
    assert window_for(INFO, None) == 8192
    assert window_for(INFO, 16384) == 16384
    assert window_for(INFO.model_copy(update={"context_length": 2048}), None) == 2048
    assert window_for(INFO.model_copy(update={"context_length": None}), 99999) == 99999
    with pytest.raises(UsageError, match="more than the 32768"):
        window_for(INFO, 40000)


def test_memory_is_checked_before_loading() -> None:
    check_memory(INFO, 8192, 1)
    with pytest.raises(ModelUnavailable, match=r"m.gguf with a window of 8192 tokens needs about .* GB of memory"):
        check_memory(INFO.model_copy(update={"kv_bytes_per_token": 1 << 40}), 8192, 1)


def test_the_line_that_says_why() -> None:
    log = "0.00.001 I loading\n0.00.002 E gguf_init: bad\x1b[0m  magic\n0.00.003 E srv: failed\n0.00.004 I bye\n"
    assert last_words(log) == "gguf_init: bad[0m magic"
    assert last_words("one\n\ntwo\n") == "two"
    assert last_words("") == ""


def test_the_worker_gets_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("GGML_SOMETHING", "1")
    found = llama_cpp._environment()
    assert "OPENAI_API_KEY" not in found
    assert found["GGML_SOMETHING"] == "1"


@pytest.mark.anyio
async def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf())
    with pytest.raises(UsageError, match="cannot write the log"):
        async with EmbeddedServer(tmp_path / "m.gguf", "m", ModelSettings(log_file=tmp_path)):
            pass
