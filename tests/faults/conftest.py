"""A stage for runs that are killed: like that of tests/cli, without a terminal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import PATIENCE_S, Stage


@pytest.fixture
def stage(tmp_path: Path, _own_home: Path) -> Iterator[Stage]:
    demo = tmp_path / "demo"
    demo.mkdir()
    (demo / "data.csv").write_text("a\n")
    stage = Stage(tmp_path, demo, _own_home)
    yield stage
    for process in stage.running:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE_S)
    assert not [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(tmp_path) in line]
