"""What the person is told while a model is fetched or loaded."""

from collections.abc import Callable

OnProgress = Callable[[str, int, int], None]
"""(text, done_bytes, total_bytes); total is 0 where there is nothing to count. From the event loop; must not block."""

OnBytes = Callable[[int, int], None]
"""(done_bytes, total_bytes) of one file."""


def silent(_text: str, _done: int, _total: int) -> None:
    """For callers who do not want to hear."""


def readable(size: int) -> str:
    """`98 MB`, `1.1 GB`: decimal units, as hubs and disks print them."""
    return f"{size / 1e9:.1f} GB" if size >= 1_000_000_000 else f"{max(1, round(size / 1e6))} MB"
