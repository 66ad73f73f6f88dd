"""Standard output and standard error, as whoever called us left them: closed, full, or without a reader."""

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def prepare() -> None:
    """A closed one is /dev/null, what cannot be spelled in the encoding is escaped, and stderr never fails."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (as long as the process)
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if isinstance(sys.stderr, io.TextIOWrapper):
        raw = io.BufferedWriter(_Unfailing(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(
            raw, encoding=sys.stderr.encoding, errors="backslashreplace", line_buffering=True, write_through=True
        )


class _Unfailing(io.FileIO):
    """A run goes on without its picture: what cannot be written is lost, and is no error of what was being done."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes
