"""What ends a call that does not end by itself, in processes of their own: it takes the alarm and ends the process."""

import subprocess
import sys

import pytest

_HEAD = """
import os, signal, sys, time
from stockade.plugins.wasm.inside.main import Watch, end_with
def late():
    os.write(1, b"late")
    os._exit(3)
watch = Watch()
"""


def ran(body: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", _HEAD + body], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_what_ends_in_time_goes_on_and_what_does_not_is_told_once() -> None:
    assert ran("for n in range(3): print(watch.within(60, late, lambda: n))") == (0, "0\n1\n2\n")
    assert ran("watch.within(0.05, late, lambda: time.sleep(60))") == (3, "late")
    assert ran("watch.within(0.05, late, lambda: [None for _ in iter(int, 1)])") == (3, "late")


def test_the_alarm_of_a_call_that_has_ended_is_not_the_next_ones() -> None:
    """One that went off between the end of the work and the timer's being turned off."""
    body = """
watch.within(60, late, lambda: None)
os.kill(os.getpid(), signal.SIGALRM)
time.sleep(0.2)
def next_call():
    os.kill(os.getpid(), signal.SIGALRM)
    time.sleep(0.2)
    return "on time"
print(watch.within(60, late, next_call))
"""
    assert ran(body) == (0, "on time\n")


def test_a_call_that_failed_leaves_no_alarm() -> None:
    body = """
try:
    watch.within(0.3, late, lambda: 1 / 0)
except ZeroDivisionError:
    time.sleep(0.6)
print("there")
"""
    assert ran(body) == (0, "there\n")


@pytest.mark.parametrize("how", ["pipe", "socket"])
def test_the_end_of_input_ends_a_call_that_runs(how: str) -> None:
    opened = {
        "pipe": "inner, outer = os.pipe()",
        "socket": "import socket; a, b = socket.socketpair(); inner, outer = a.fileno(), b.detach()",
    }
    body = f"""
{opened[how]}
end_with(inner)
time.sleep(0.1)
print("still there", flush=True)
def work():
    os.close(outer)
    time.sleep(60)
watch.within(50, late, work)
"""
    assert ran(body) == (0, "still there\n")
