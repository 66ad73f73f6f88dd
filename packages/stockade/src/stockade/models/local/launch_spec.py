"""Whether a model fits (window, memory, conversations at once), and what a supervisor is told to start for it.

That is our worker around llama.cpp, or a stock `llama-server` with equal settings.
"""

import importlib.metadata
import os
import re
import shutil
import socket
import sys
from os.path import expanduser
from pathlib import Path
from typing import Any

from pydantic import Field

from stockade.core.data import Data
from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.local.gguf import GgufInfo
from stockade.models.settings import DEFAULT_WINDOW, ModelSettings, readable

MAX_SLOTS = 4
_OVERHEAD_BYTES = 300_000_000
# More than one slot only where this much is left for everything else.
_SPARE = 0.25


class NoRoom(ModelUnavailable):
    """A model does not fit into the memory that is free."""


def window_for(info: GgufInfo, wanted: int | None) -> int:
    """Tokens of one slot: what is wanted, else the smaller of the model's and 8192. UsageError beyond the model's."""
    if wanted is None:
        return min(info.context_length or DEFAULT_WINDOW, DEFAULT_WINDOW)
    if info.context_length and wanted > info.context_length:
        raise UsageError(
            f"a window of {wanted} tokens is more than the {info.context_length} that the model was made for",
            "ask for a smaller one",
        )
    return wanted


def needed_bytes(info: GgufInfo, window: int, slots: int) -> int:
    """The weights, the KV cache of every slot, and what llama.cpp computes in."""
    return info.size_bytes + info.kv_bytes_per_token * window * slots + _OVERHEAD_BYTES


def slots_for(info: GgufInfo, window: int, wanted: int | None) -> int:
    """What is wanted, else the most conversations (4, 2 or 1) that leave a quarter of the free memory alone."""
    if wanted is not None:
        return wanted
    available = available_bytes()
    for slots in (MAX_SLOTS, 2):
        if available is None or needed_bytes(info, window, slots) <= available * (1 - _SPARE):
            return slots
    return 1


def fits(size_bytes: int, free_bytes: int) -> bool:
    """Whether a file of this size can be loaded, roughly: what it needs for a conversation is not known yet."""
    return size_bytes + _OVERHEAD_BYTES <= free_bytes


def short_of(info: GgufInfo, window: int, slots: int) -> NoRoom | None:
    """Why it cannot be loaded now: the weights and the KV cache do not fit into the memory that is free."""
    available, needed = available_bytes(), needed_bytes(info, window, slots)
    if available is None or needed <= available:
        return None
    return NoRoom(
        f"{Path(info.path).name} with a window of {window} tokens needs about {readable(needed)} of memory, "
        f"{readable(available)} are free",
        "choose a smaller window or model, or end other programs",
    )


def available_bytes() -> int | None:
    """What the kernel thinks can be had without swapping; less where a control group of ours has a limit."""
    try:
        available = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    if available is None:
        return None
    limits = [
        left
        for folder, limit, used in (
            (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
            (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
        )
        if (left := _left(folder, limit, used)) is not None
    ]
    return min([int(available[1]) * 1024, *limits])


def _left(folder: Path, limit: str, used: str) -> int | None:
    """What the group may still take. Files that it has read count as used, and are let go of when room is wanted."""
    try:
        left = int((folder / limit).read_text()) - int((folder / used).read_text())
        cached = re.findall(r"^(?:in)?active_file (\d+)$", (folder / "memory.stat").read_text(), re.MULTILINE)
        return max(0, left + sum(map(int, cached)))
    except (OSError, ValueError):  # no such group, or no limit ("max")
        return None


# The server parses model files and hostile schemas: it gets no keys. Prefixes end with "_".
_ENVIRONMENT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV",
                "LC_", "GGML_", "OMP_", "GOMP_", "CUDA_", "HIP_", "VK_")  # fmt: skip
# Spinning OpenMP threads cost most of the speed on a busy machine: beside two busy loops on two cores, a 1.5B model
# wrote 2.7 tokens a second, and 4.6 with this; on a quiet machine 10.5 to 11.3, and 10.2.
_SPIN = {"GOMP_SPINCOUNT": "1000"}
# For prompts that lost their slot to another conversation; llama.cpp's own default is 8 GB.
_CACHE_RAM_MIB = 512


class Load(Data):
    """How a model is to be loaded and served. `window` is that of one slot; `port` 0 is any."""

    path: str
    alias: str
    window: int
    slots: int
    threads: int
    gpu_layers: int = -1
    more: dict[str, Any] = Field(default_factory=dict)
    check_tensors: bool = False
    host: str = "127.0.0.1"
    port: int = 0
    api_key: str = ""


def clean_environment() -> dict[str, str]:
    """Ours without anything that could be a secret."""
    return {
        name: value
        for name, value in os.environ.items()
        if any(name == known or (known.endswith("_") and name.startswith(known)) for known in _ENVIRONMENT)
    }


def embedded_build() -> str:
    """The build of llama.cpp that comes with us."""
    return f"xllamacpp {importlib.metadata.version('xllamacpp')}"


def binary_build(binary: Path) -> str:
    """A stock llama-server, as it is now."""
    status = binary.stat()
    return f"{binary} {status.st_size} {status.st_mtime_ns}"


def stock_server(settings: ModelSettings, *, on_path: bool = False) -> Path | None:
    """The stock llama-server that is set, else with `on_path` the one there; None: ours.

    UsageError when the one that is set is no program.
    """
    if settings.llama_server in (None, "off"):
        result = shutil.which("llama-server") if on_path and settings.llama_server is None else None
        return Path(result).resolve() if result else None
    path = Path(expanduser(str(settings.llama_server))).absolute()
    if not path.is_file() or not os.access(path, os.X_OK):
        raise UsageError(f"--llama-server {path}: there is no such program", "give the path of one, or `off`")
    return path.resolve()


def launch_spec(load: Load, binary: Path | None = None) -> dict[str, Any]:
    """Our worker, or `binary`; a llamafile is its own. For supervisor.py: `argv` and `environment` are the process's,
    `told` is its first line, `health` the port where one that says nothing is asked; `facts` are for whoever looks.
    """
    spec: dict[str, Any] = {
        "api_key": load.api_key,
        "environment": {name: value for name, value in _SPIN.items() if name not in os.environ},
        "facts": {
            **load.model_dump(include={"path", "alias", "window", "slots", "threads", "host"}),
            "asked_port": load.port,
            "build": binary_build(binary) if binary else embedded_build(),
        },
    }
    if binary is None:
        # -P: a module in the current folder must not be imported instead of ours.
        spec["argv"] = [sys.executable, "-P", "-m", "stockade.models.local.worker"]
        spec["told"] = {**load.model_dump(), "cache_ram_mib": _CACHE_RAM_MIB}
        return spec
    port = load.port or free_port()
    spec["health"] = port
    # The key is not an argument: those are seen by everybody on the machine. What not every build knows is a variable,
    # because an unknown variable is no error.
    spec["environment"] |= {
        "LLAMA_API_KEY": load.api_key, "LLAMA_ARG_CACHE_RAM": str(_CACHE_RAM_MIB), "LLAMA_ARG_UI": "0",
        "LLAMA_ARG_JINJA": "1", "LLAMA_ARG_ENDPOINT_SLOTS": "1", "LLAMA_ARG_OFFLINE": "1",
    }  # fmt: skip
    # A llamafile begins as a shell script does, on purpose: `sh` starts it where the kernel does not know its format.
    itself = os.path.realpath(binary) == load.path
    spec["argv"] = [
        *(["/bin/sh", load.path, "--server"] if itself else [str(binary), "--model", load.path, "--alias", load.alias]),
        "--ctx-size", str(load.window * load.slots), "--parallel", str(load.slots),
        "--threads", str(load.threads), "--host", load.host, "--port", str(port), "--no-warmup",
        *(["--gpu-layers", str(load.gpu_layers)] if load.gpu_layers >= 0 else []),
        *(["--check-tensors"] if load.check_tensors else []),
        *as_flags(load.more),
    ]  # fmt: skip
    return spec


def as_flags(more: dict[str, Any]) -> list[str]:
    """The command line of llama-server for these (core.model_options.LoadOptions.load_more), which has their names."""
    valued = {name: value for name, value in more.items() if name not in ("mmap", "mlock")}
    argv = [word for name, value in valued.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return argv + ["--no-mmap"] * (more.get("mmap") is False) + ["--mlock"] * bool(more.get("mlock"))


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def usable_cores() -> int:
    """Physical cores that this process may use, no more than its control group's share: one thread each is best."""
    allowed = os.sched_getaffinity(0) if sys.platform == "linux" else set(range(os.cpu_count() or 1))
    cores = {_siblings(cpu) for cpu in allowed}
    return max(1, min(len(cores), _quota() or len(cores)))


def _siblings(cpu: int) -> str:
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


def _quota() -> int | None:
    """Whole cores of the control group's share of time; None without a limit."""
    group = Path("/sys/fs/cgroup")
    try:
        if (group / "cpu.max").exists():
            share, period = (group / "cpu.max").read_text().split()
        else:
            share = (group / "cpu" / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu" / "cpu.cfs_period_us").read_text()
        return max(1, -(-int(share) // int(period))) if int(share) > 0 else None
    except (OSError, ValueError):
        return None
