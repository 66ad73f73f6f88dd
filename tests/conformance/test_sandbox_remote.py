"""The sandbox suite, and that of programs, on a sandbox of another process, over HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stockade_sandbox.conformance.programs import ProgramConformance
from stockade_sandbox.conformance.sandbox import SandboxConformance, fill
from tests.conformance.bench_remote import RemoteBench, serving


class TestRemote(SandboxConformance, ProgramConformance):
    limits_of = "remote"

    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[RemoteBench]:
        layers = tmp_path / "layers"
        layers.mkdir(mode=0o700)
        with serving(tmp_path) as (process, url):
            yield RemoteBench(fill(tmp_path / "folder"), layers, process, url)
