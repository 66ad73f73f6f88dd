"""No value of any flag, argument or variable of any command is answered by a trace."""

import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import Stage
from tests.support.scale import scaled

ROOT = Path(__file__).resolve().parents[2]


def test_no_value_is_answered_by_a_trace(stage: Stage) -> None:
    """By the real commands, in processes of their own: a part of all that there are, in `make test-long` more."""
    work = stage.tmp_path / "work"
    work.mkdir()
    count = scaled(140)
    command = [sys.executable, "-m", "tests.support.odd_values", "1", str(count)]
    environment = {**stage.environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    assert done.stderr.split()[-1] == str(count + count // 4)
