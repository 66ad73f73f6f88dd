"""Any member of a sandbox's chain, killed at any time, takes with it what hangs on it; in the end nothing is left.

A failing one names its seed.
"""

import os
import random
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from stockade_sandbox.limits.cgroups import places, sweep
from stockade_sandbox.processes import descendants
from tests.support.scale import scaled
from tests.unit.sandboxes.test_bubblewrap_killed import HOLDER, await_ends, in_groups_of

KILLS = scaled(12)


def _below(pid: int) -> set[int]:
    return set(descendants(pid)) - {pid}


@pytest.mark.parametrize("seed", range(KILLS))
def test_whoever_is_killed_nothing_is_left(seed: int) -> None:
    chance = random.Random(seed)
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"begun\n"
        if chance.random() < 0.5:
            holder.stdout.readline()  # ready, or ended by an error of its own
        threading.Event().wait(chance.random() * 0.08)
        inside = _below(holder.pid)
        victim = chance.choice(sorted([holder.pid, *inside]))
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        threading.Event().wait(chance.random() * 0.02)
        with suppress(OSError):
            holder.send_signal(signal.SIGSTOP)
            inside |= _below(holder.pid)
        inside |= {int(pid) for pid in in_groups_of(holder.pid)}
        holder.kill()
        holder.wait()
        assert await_ends(inside) == set(), f"seed {seed}, killed {victim}"
        assert await_ends({int(pid) for pid in in_groups_of(holder.pid)}) == set(), f"seed {seed}"
    sweep()
    left = [str(folder) for place in places() for folder in Path(place.path).glob(f"stockade-{holder.pid}-*")]
    assert left == [], f"seed {seed}"
