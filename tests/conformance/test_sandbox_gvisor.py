"""The sandbox suite on gVisor."""

from pathlib import Path

import pytest

from stockade_sandbox.conformance.sandbox import SandboxConformance, fill
from tests.conformance.bench_gvisor import GVisorBench
from tests.support.engines import need


class TestGVisor(SandboxConformance):
    limits_of = "gvisor"

    @pytest.fixture
    def bench(self, tmp_path: Path) -> GVisorBench:
        need("runsc")
        base = tmp_path / "layers"
        base.mkdir(mode=0o700)
        return GVisorBench(fill(tmp_path / "folder"), base)
