from pathlib import Path

import pytest

from stockade.core.errors import UsageError
from stockade.models.local import launch_spec
from stockade.models.local.gguf import GgufInfo
from stockade.models.local.launch_spec import available_bytes, short_of, slots_for, window_for

INFO = GgufInfo(path="/x/m.gguf", size_bytes=1_000_000, architecture="llama", context_length=32768)


def test_the_window() -> None:
    assert window_for(INFO, None) == 8192
    assert window_for(INFO, 16384) == 16384
    assert window_for(INFO.model_copy(update={"context_length": 2048}), None) == 2048
    assert window_for(INFO.model_copy(update={"context_length": None}), 99999) == 99999
    with pytest.raises(UsageError, match="more than the 32768"):
        window_for(INFO, 40000)


def test_memory_is_checked_before_loading() -> None:
    assert short_of(INFO, 8192, 1) is None
    short = short_of(INFO.model_copy(update={"kv_bytes_per_token": 1 << 40}), 8192, 1)
    assert short is not None
    assert short.message.startswith("m.gguf with a window of 8192 tokens needs about ")
    assert "of memory" in short.message


def test_as_many_slots_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    info = INFO.model_copy(update={"kv_bytes_per_token": 100_000})
    for free, slots in ((10e9, 4), (3e9, 2), (1.2e9, 1), (0, 1)):
        monkeypatch.setattr(launch_spec, "available_bytes", lambda free=free: int(free))
        assert slots_for(info, 8192, None) == slots
    assert slots_for(info, 8192, 3) == 3


def test_what_is_free_here() -> None:
    assert (available_bytes() or 1) > 0


def test_files_that_a_control_group_has_read_leave_room(tmp_path: Path) -> None:
    for name, said in (("max", "1000"), ("current", "900"), ("stat", "anon 50\ninactive_file 300\nactive_file 200\n")):
        (tmp_path / f"memory.{name}").write_text(said)
    assert launch_spec._left(tmp_path, "memory.max", "memory.current") == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert launch_spec._left(tmp_path, "memory.max", "memory.current") is None
