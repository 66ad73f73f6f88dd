"""Schemathesis against the real server: each operation with what fits its description and what does not, and ways
through them by the links that the description has, so that a run that was begun is read, followed, decided on.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.conftest import PATIENCE_S, Stage

HERE = Path(__file__)
SEED = "1"


@pytest.mark.parametrize(("phase", "links"), [("fuzzing", 0), ("stateful", 5)])
def test_answers_are_as_described_whatever_is_asked(phase: str, links: int, stage: Stage) -> None:
    """`links`: how many of them it must come through at least; all of them would take an hour."""
    token = stage.token(phase, "read", "run", "approve")
    tried = subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"), "--config-file", HERE.with_name("schema.toml"), "run",
            f"{stage.url}/openapi.json", "--header", f"Authorization: Bearer {token}", "--phases", phase,
            "--seed", SEED,
        ],
        cwd=HERE.parents[2], env={**stage.environment(), "PYTHONPATH": str(HERE.parents[2])}, capture_output=True,
        text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert tried.returncode == 0, tried.stdout + tried.stderr
    covered = re.search(r"(\d+) covered", tried.stdout)
    assert int(covered[1] if covered else 0) >= links, tried.stdout
    if links:
        with stage.client(token) as client:
            assert client.get("/v1/runs").json()["runs"]
    log = (stage.path / "stderr").read_text()
    assert "this is a bug" not in log
