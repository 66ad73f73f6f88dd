"""A server of commands in a mount namespace of its own: mounts what it is told, then forks a process a command.

`python -m tests.support.world_server UID MOUNTS` where MOUNTS is JSON: a list of argvs. A line of stdin is one command
of the user UID (tests/support/worlds.py writes them), a line of stdout its status; one that was
stopped is held until the next line, and killed. The fork saves the half second in which
Python would load the same modules again. When stdin ends so does the server, and with it and what it started every
mount.

Steps are audit events (sys.audit): Python's own, as `os.rename`, and those of the product, which name themselves as the
first argument of a `stockade.step`. Nothing in the product knows of this.
"""

import ctypes
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

from stockade.cli import main

_WARM = (
    "anyio._backends._asyncio", "pygments.lexers", "rich.syntax", "tree_sitter_bash", "stockade.answers.action_codec",
    "stockade.approval.approver", "stockade.runtime.resume", "stockade.runtime.sandboxes", "stockade.cli.begin",
    "stockade.cli.run", "stockade.cli.runs", "stockade.loop.run", "stockade.models.scripted",
    "stockade_sandbox.backends.bubblewrap.sandbox", "stockade_sandbox.overlay.apply", "stockade.store.sqlite",
)  # fmt: skip
_PR_SET_PDEATHSIG = 1
_CHANGING = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.symlink", "os.link", "os.chmod", "os.chown")


def _name(event: str, arguments: tuple[Any, ...]) -> str | None:
    if event == "stockade.step":
        return str(arguments[0])
    return event if event in _CHANGING else None


def _stop_at(step: str, left: int, end: signal.Signals) -> None:
    def aim(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if _name(event, arguments) != step:
            return
        left -= 1
        if left < 0:
            os.kill(os.getpid(), end)
            while True:  # another thread may be the one that the signal meets first
                time.sleep(1)

    sys.addaudithook(aim)


def _trace(path: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        name = _name(event, arguments)
        if name is not None:
            os.write(file, f"{name}\n".encode())

    sys.addaudithook(note)


def _become(order: dict[str, Any], uid: int) -> None:
    """In the child: the command, from here to its end."""
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # one that is held when the server is killed
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(order["out"], flags, 0o600), 1)
    os.dup2(os.open(order["err"], flags, 0o600), 2)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    sys.argv = ["stockade", *order["argv"]]
    if order["trace"]:
        _trace(order["trace"])
    if order["step"]:
        _stop_at(order["step"], order["time"], signal.SIGSTOP if order["hold"] else signal.SIGKILL)
    status = 1
    try:
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # to take Python apart costs more than the command does


def serve(uid: int, mounts: list[list[str]]) -> None:
    for argv in mounts:
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    for name in _WARM:
        importlib.import_module(name)
    gc.freeze()
    print("ready", flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become(json.loads(line), uid)
        _, status = os.waitpid(pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):  # held until the next line
            print(-os.WSTOPSIG(status), flush=True)
            sys.stdin.readline()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        else:
            print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]), json.loads(sys.argv[2]))
