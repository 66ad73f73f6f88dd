import os
from pathlib import Path

import pytest

from stockade.models.local.launch_spec import (
    Load,
    binary_build,
    clean_environment,
    free_port,
    launch_spec,
    usable_cores,
)

LOAD = Load(path="/m.gguf", alias="m", window=1024, slots=2, threads=3, api_key="secret", port=0)


def test_the_server_gets_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("GGML_SOMETHING", "1")
    found = clean_environment()
    assert "OPENAI_API_KEY" not in found
    assert found["GGML_SOMETHING"] == "1"


def test_no_order_shows_the_key_to_the_machine(tmp_path: Path) -> None:
    binary = tmp_path / "llama-server"
    binary.write_text("")
    for order in (launch_spec(LOAD), launch_spec(LOAD, binary)):
        assert not [word for word in order["argv"] if "secret" in word]
        assert "secret" not in str(order["facts"])


def test_a_stock_server_gets_the_same_settings(tmp_path: Path) -> None:
    binary = tmp_path / "llama-server"
    binary.write_text("")
    order = launch_spec(LOAD.model_copy(update={"check_tensors": True, "gpu_layers": 7}), binary)
    words = " ".join(order["argv"])
    for part in ("--ctx-size 2048", "--parallel 2", "--threads 3", "--check-tensors", "--gpu-layers 7", "127.0.0.1"):
        assert part in words
    assert order["environment"]["LLAMA_API_KEY"] == "secret"
    assert f"--port {order['health']}" in words
    assert order["facts"]["build"] == binary_build(binary)


def test_spinning_threads_are_the_users_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    assert launch_spec(LOAD)["environment"] == {"GOMP_SPINCOUNT": "1000"}
    monkeypatch.setenv("GOMP_SPINCOUNT", "5")
    assert launch_spec(LOAD)["environment"] == {}


def test_cores_and_ports() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
    assert 0 < free_port() < 65536
