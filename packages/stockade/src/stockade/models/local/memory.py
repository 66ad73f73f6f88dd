"""Whether a model fits: its window, its memory, and how many conversations it can hold at once."""

import re
from pathlib import Path

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.models.local.gguf import GgufInfo
from stockade.models.settings import DEFAULT_WINDOW, readable

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
