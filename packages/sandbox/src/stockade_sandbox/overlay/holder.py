"""Whose sandbox a layer was, so that none still writes when the layer is restored."""

import json
import os
import select
import signal
from contextlib import suppress
from pathlib import Path

from stockade_sandbox.errors import SandboxFailed
from stockade_sandbox.processes import start_time

HOLDER = "sandbox"
_END_S = 10.0


def note_holder(run_dir: Path, pid: int | None) -> None:
    """Which process the sandbox of this run hangs on, for `await_gone` of another process."""
    if pid is not None and run_dir.is_dir():
        (run_dir / HOLDER).write_text(json.dumps({"pid": pid, "start": start_time(pid)}))


def forget_holder(run_dir: Path) -> None:
    (run_dir / HOLDER).unlink(missing_ok=True)


def await_gone(run_dir: Path) -> None:
    """Returns when the sandbox of a killed run has ended, and all that was in it; ends it when it has not. Blocks.

    SandboxFailed when it does not go: nothing may be restored under its hands.
    """
    try:
        noted = json.loads((run_dir / HOLDER).read_text())
        pid, start = int(noted["pid"]), int(noted["start"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return
    with suppress(ProcessLookupError, OverflowError):
        fd = os.pidfd_open(pid)
        try:
            if start_time(pid) == start and not _ended(fd, 0.2):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                if not _ended(fd, _END_S):
                    raise SandboxFailed(f"the sandbox of this run is still there (process {pid})", "end it by hand")
        finally:
            os.close(fd)
    forget_holder(run_dir)


def _ended(pidfd: int, patience_s: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(patience_s * 1000))
