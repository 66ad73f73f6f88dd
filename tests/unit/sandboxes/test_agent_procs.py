"""The agent's view of /proc, compiled alone, with a process that ends in the middle of a look."""

import subprocess
from pathlib import Path

import pytest

from stockade_sandbox.agent.binary import FOLDER

_AGENT = FOLDER / "agent"


@pytest.mark.parametrize("read", [1, 2], ids=["before the walk", "amid the walk"])
def test_an_orphan_is_known_although_its_parent_ends_while_it_is_looked_at(tmp_path: Path, read: int) -> None:
    built = tmp_path / "descends"
    sources = [Path(__file__).parent / "descends.c", _AGENT / "procs.c", _AGENT / "text.c"]
    wraps = ["-Wl,--wrap=open", "-Wl,--wrap=close"]
    subprocess.run(
        ["musl-gcc", "-std=gnu11", "-D_GNU_SOURCE", "-static", f"-I{_AGENT}", *wraps, "-o", built, *sources], check=True
    )
    done = subprocess.run([built, str(read)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("yes no\n", "")
