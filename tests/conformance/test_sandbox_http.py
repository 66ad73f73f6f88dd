"""The sandbox suite, and that of programs, on a sandbox of another process, over HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stockade_sandbox.conformance.programs import ProgramConformance
from stockade_sandbox.conformance.sandbox import SandboxConformance, fill
from tests.conformance.bench_http import HttpBench, serving


class TestHttp(SandboxConformance, ProgramConformance):
    limits_of = "remote"

    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[HttpBench]:
        layers = tmp_path / "layers"
        layers.mkdir(mode=0o700)
        with serving(tmp_path) as (process, url):
            yield HttpBench(fill(tmp_path / "folder"), layers, process, url)
