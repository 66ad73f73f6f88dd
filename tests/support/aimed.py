"""Kills that aim: a command stops itself at a named step, and is killed there.

The steps are audit events (sys.audit): Python's own, as `os.remove`, and ours, which name themselves as the first
argument of a `stockade.step`. Nothing in the product knows of this.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_AIM = """
import os, signal, sys

wanted, left = sys.argv[1], int(sys.argv[2])

def aim(event, arguments):
    global left
    if event == wanted or (event == "stockade.step" and arguments[0] == wanted):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGSTOP)

sys.argv[:3] = ["stockade"]
sys.addaudithook(aim)
from stockade.cli import main
main()
"""

_TRACE = """
import sys

out = open(sys.argv[1], "a", buffering=1)

def note(event, arguments):
    if event == "stockade.step":
        out.write(f"{arguments[0]}\\n")

sys.argv[:2] = ["stockade"]
sys.addaudithook(note)
from stockade.cli import main
main()
"""

_OVERLAID = (
    'mount -t overlay overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" "$2" && shift 2 && exec "$@"'
)


def aimed(step: str, time: int) -> tuple[str, ...]:
    """What Python is given in place of `-m stockade.cli`, for a command that stops itself at a step."""
    return ("-c", _AIM, step, str(time))


def traced(steps: Path) -> tuple[str, ...]:
    """The same for a command that writes the name of each step to a file, a line each."""
    return ("-c", _TRACE, str(steps))


def killed_at(step: str, time: int, argv: Sequence[str], env: Mapping[str, str], within: Sequence[str] = ()) -> bool:
    """Run a command of Stockade that is killed when it comes to `step` for the `time`-th time, from 0. Whether it did.

    `within`: the argv of what must exec the command, as what `overlaid` gives.
    """
    process = subprocess.Popen(
        [*within, sys.executable, *aimed(step, time), *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(env),
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        process.returncode = os.waitstatus_to_exitcode(status)
        return False
    process.send_signal(signal.SIGKILL)
    process.wait()
    return True


def overlaid(folder: Path, state: Path) -> tuple[str, ...]:
    """Before an argv: it sees an overlay at `state`, as inside a container, where layers can only be copies.

    What is written there is kept in `folder`, from one command to the next.
    """
    for name in ("lower", "upper", "work"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    state.mkdir(parents=True, exist_ok=True)
    return ("unshare", "--mount", "--propagation=private", "sh", "-ec", _OVERLAID, "sh", str(folder), str(state))
