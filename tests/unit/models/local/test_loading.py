"""Load parameters in both tongues: flags of a stock server, fields of the embedded one."""

from pathlib import Path
from typing import Any

import pytest
import xllamacpp

from stockade.core.errors import UsageError
from stockade.core.model_options import LoadOptions
from stockade.models.local.launch_spec import as_flags
from stockade.models.local.worker import set_fields
from stockade.runtime.models import model_settings
from stockade.runtime.spec import RunSpec

ALL: dict[str, Any] = {
    "threads_batch": 3, "batch_size": 256, "ubatch_size": 128, "mmap": False, "mlock": True, "cache_type_k": "q8_0",
    "cache_type_v": "bf16", "rope_freq_base": 10000.0, "rope_freq_scale": 0.5, "main_gpu": 1, "split_mode": "row",
    "tensor_split": "3,1", "numa": "isolate", "lora": "/l.gguf",
}  # fmt: skip


def test_every_parameter_is_known() -> None:
    assert LoadOptions.model_validate({**ALL, "ctx_size": 512, "threads": 2, "gpu_layers": 0}).load_more() == ALL
    assert set(ALL) == set(LoadOptions.model_fields) - {"ctx_size", "threads", "gpu_layers"}


def test_flags() -> None:
    flags = as_flags(ALL)
    assert flags[:2] == ["--threads-batch", "3"]
    assert flags[-2:] == ["--no-mmap", "--mlock"]
    assert flags[flags.index("--cache-type-k") + 1] == "q8_0"
    assert as_flags({}) == []
    assert as_flags({"mmap": True, "mlock": False}) == []


def test_fields() -> None:
    params = xllamacpp.CommonParams()
    set_fields(params, ALL, xllamacpp)
    assert (params.n_batch, params.n_ubatch, params.cpuparams_batch.n_threads) == (256, 128, 3)
    assert params.cache_type_k.name == "GGML_TYPE_Q8_0"
    assert params.load_mode.name == "LLAMA_LOAD_MODE_MLOCK"
    assert params.split_mode.name == "LLAMA_SPLIT_MODE_ROW"
    assert list(params.tensor_split)[:3] == [3.0, 1.0, 0.0]
    assert params.numa.name == "GGML_NUMA_STRATEGY_ISOLATE"
    assert params.lora_adapters[0].path == "/l.gguf"


@pytest.mark.parametrize(
    ("given", "mode"),
    [({"mmap": True}, "MMAP"), ({"mmap": False}, "NONE"), ({"mlock": True}, "MMAP_MLOCK"), ({"mlock": False}, "MMAP")],
)
def test_how_a_file_is_read(given: dict[str, bool], mode: str) -> None:
    params = xllamacpp.CommonParams()
    set_fields(params, given, xllamacpp)
    assert params.load_mode.name == f"LLAMA_LOAD_MODE_{mode}"


@pytest.mark.parametrize("given", [{"cache_type_k": "q9"}, {"numa": "x"}, {"tensor_split": "a"}])
def test_what_a_build_does_not_know_is_told(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"knows no|could not convert"):
        set_fields(xllamacpp.CommonParams(), given, xllamacpp)


def test_a_lora_that_is_not_there_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--lora"):
        model_settings(RunSpec(lora=str(tmp_path / "none.gguf")))


def test_a_run_with_a_seed_has_a_server_of_its_own() -> None:
    assert model_settings(RunSpec(seed=7)).alone
    assert model_settings(RunSpec(seed=0)).alone
    assert not model_settings(RunSpec()).alone
