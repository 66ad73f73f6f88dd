"""What the person is told while a model is fetched or loaded."""

from collections.abc import Callable

from stockade.core.data import Data


class Progress(Data):
    """One line of news. `total_bytes` is 0 where there is nothing to count."""

    text: str
    done_bytes: int = 0
    total_bytes: int = 0


OnProgress = Callable[[Progress], None]
"""Called from the event loop; must not block."""

OnBytes = Callable[[int, int], None]
"""(done_bytes, total_bytes) of one file."""


def silent(_: Progress) -> None:
    """For callers who do not want to hear."""


def readable(size: int) -> str:
    """`98 MB`, `1.1 GB`: decimal units, as hubs and disks print them."""
    return f"{size / 1e9:.1f} GB" if size >= 1_000_000_000 else f"{max(1, round(size / 1e6))} MB"
