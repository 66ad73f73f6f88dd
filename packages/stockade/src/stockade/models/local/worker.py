"""The embedded server process: `python -P -m stockade.models.local.worker`, a child of its supervisor.

Its first line on stdin is the JSON of launch_spec.Load; stdin then is its lifeline: when it closes, the process ends,
so nothing is left when the supervisor is killed. It answers with one JSON line on stdout, `{"port": N}` or
`{"error": "..."}`. What llama.cpp prints goes to stderr.
"""

import json
import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any

_LOG_S, _TAIL_BYTES = 2.0, 1 << 14
_FIELDS = {
    "batch_size": "n_batch", "ubatch_size": "n_ubatch", "rope_freq_base": "rope_freq_base",
    "rope_freq_scale": "rope_freq_scale", "main_gpu": "main_gpu",
}  # fmt: skip


def _watch_lifeline() -> None:
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)


def main() -> None:
    """Serve until the lifeline closes."""
    # Nothing but the one line may reach the parent's pipe, so what prints to stdout is sent to stderr.
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.buffer.readline() or b"{}")
    threading.Thread(target=_watch_lifeline, daemon=True).start()
    try:
        server = _start(settings)
    except (RuntimeError, ValueError, TypeError, KeyError) as error:
        if isinstance(error, RuntimeError):
            _wait_for_log()
        print(json.dumps({"error": str(error)}), file=report, flush=True)
        # Not a return: the finalisers of a half-made server have hung.
        os._exit(1)
    port = int(server.listening_address.rpartition(":")[2])
    print(json.dumps({"port": port}), file=report, flush=True)
    report.close()
    threading.Event().wait()


def _wait_for_log() -> None:
    """Until an error stands at the end of the log, which llama.cpp writes from a thread of its own, or it has none."""
    end = time.monotonic() + _LOG_S
    with suppress(OSError):  # not a file
        while time.monotonic() < end:
            tail = os.pread(2, _TAIL_BYTES, max(0, os.fstat(2).st_size - _TAIL_BYTES))
            if b" E " in tail:
                return
            time.sleep(0.02)


def _start(settings: dict[str, object]):  # type: ignore[no-untyped-def]
    # The supervisor has set GOMP_SPINCOUNT, which libgomp reads once, when this loads it.
    import xllamacpp  # noqa: PLC0415 - a hundred megabytes, and not before the lifeline is watched

    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.model_alias = {settings["alias"]}
    params.n_ctx = int(settings["window"]) * int(settings["slots"])  # type: ignore[call-overload]
    params.n_parallel = settings["slots"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.n_gpu_layers = settings["gpu_layers"]
    params.check_tensors = settings["check_tensors"]
    params.cache_ram_mib = settings["cache_ram_mib"]
    set_fields(params, dict(settings["more"]), xllamacpp)  # type: ignore[call-overload]
    # The first question pages the weights in as well as a warm-up would; fitting only moves layers between devices.
    params.warmup = False
    params.fit_params = any("GPU" in str(device.get("type")) for device in xllamacpp.get_device_info())
    params.use_jinja = True
    params.ui = False
    params.endpoint_props = False
    params.endpoint_slots = True
    params.hostnames = [settings["host"]]
    params.port = settings["port"]
    params.api_keys = [settings["api_key"]]
    return xllamacpp.Server(params)


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
        flags = [word for word in ("MMAP", "MLOCK") if more.get(word.lower(), word == "MMAP")]
        params.load_mode = _member(type(params.load_mode), f"LLAMA_LOAD_MODE_{'_'.join(flags) or 'NONE'}")


def _member(kind: Any, name: str) -> Any:
    members = {member.name.lower(): member for member in kind}
    if name.lower() not in members:
        raise ValueError(f"this build knows no {name}")
    return members[name.lower()]


if __name__ == "__main__":
    main()
