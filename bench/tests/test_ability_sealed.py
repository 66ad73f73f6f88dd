"""A peer runs in a folder at /workspace, also where the machine has no such folder, and can change nothing else."""

import subprocess
from pathlib import Path

from bench.ability.arms import sealed


def test_a_peer_can_write_in_its_folder_and_nowhere_else(tmp_path: Path) -> None:
    script = "pwd; echo x > made; echo x > /etc/made || echo refused"
    done = subprocess.run(
        sealed(tmp_path, ["/bin/sh", "-c", script]), capture_output=True, text=True, check=False, timeout=30
    )
    assert done.stdout == "/workspace\nrefused\n", done.stderr
    assert (tmp_path / "made").read_text() == "x\n"
