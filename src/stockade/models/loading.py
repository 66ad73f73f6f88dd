"""Load parameters beyond the ordinary ones, in both tongues: a stock server's flags, and the embedded one's fields."""

from typing import Any

_FLAGS = {
    "threads_batch": "--threads-batch", "batch_size": "--batch-size", "ubatch_size": "--ubatch-size",
    "cache_type_k": "--cache-type-k", "cache_type_v": "--cache-type-v", "rope_freq_base": "--rope-freq-base",
    "rope_freq_scale": "--rope-freq-scale", "main_gpu": "--main-gpu", "split_mode": "--split-mode",
    "tensor_split": "--tensor-split", "numa": "--numa", "lora": "--lora",
}  # fmt: skip
_FIELDS = {
    "batch_size": "n_batch", "ubatch_size": "n_ubatch", "rope_freq_base": "rope_freq_base",
    "rope_freq_scale": "rope_freq_scale", "main_gpu": "main_gpu",
}  # fmt: skip


def as_flags(more: dict[str, Any]) -> list[str]:
    """The command line of llama-server for these (core.model_options.LoadOptions.load_more)."""
    argv = [word for name, flag in _FLAGS.items() if name in more for word in (flag, str(more[name]))]
    if more.get("mmap") is False:
        argv.append("--no-mmap")
    if more.get("mlock"):
        argv.append("--mlock")
    return argv


def set_fields(params: Any, more: dict[str, Any], library: Any) -> None:
    """The same on xllamacpp's CommonParams; `library` is that module. ValueError for what it does not have."""
    for name, field in _FIELDS.items():
        if name in more:
            setattr(params, field, more[name])
    if "threads_batch" in more:
        params.cpuparams_batch.n_threads = more["threads_batch"]
    for name in ("cache_type_k", "cache_type_v"):
        if name in more:
            setattr(params, name, _member(library.ggml_type, f"GGML_TYPE_{more[name]}"))
    if "split_mode" in more:
        params.split_mode = _member(library.llama_split_mode, f"LLAMA_SPLIT_MODE_{more['split_mode']}")
    if "numa" in more:
        params.numa = _member(library.ggml_numa_strategy, f"GGML_NUMA_STRATEGY_{more['numa']}")
    if "tensor_split" in more:
        shares = [float(share) for share in str(more["tensor_split"]).replace("/", ",").split(",")]
        params.tensor_split = (shares + [0.0] * len(params.tensor_split))[: len(params.tensor_split)]
    if "lora" in more:
        adapter = library.CommonAdapterLoraInfo()
        adapter.path, adapter.scale = more["lora"], 1.0
        params.lora_adapters = [adapter]
    if more.keys() & {"mmap", "mlock"}:
        words = [word for word in ("MMAP", "MLOCK") if more.get(word.lower(), word == "MMAP")]
        params.load_mode = _member(type(params.load_mode), f"LLAMA_LOAD_MODE_{'_'.join(words) or 'NONE'}")


def _member(kind: Any, name: str) -> Any:
    found = {member.name.lower(): member for member in kind}
    if name.lower() not in found:
        raise ValueError(f"this build knows no {name}")
    return found[name.lower()]
