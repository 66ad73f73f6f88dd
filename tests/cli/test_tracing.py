"""`OTEL_*` in the environment of every program: a run is never refused for it."""

import os
import subprocess
import sys

import pytest

from tests.cli.conftest import COUNT, DONE, PATIENCE_S, Stage

NO_EXTRA = """\
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


@pytest.mark.parametrize(
    ("variables", "way_out"),
    [
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
            "'opentelemetry-sdk>=1.40'",
        ),
        ({"OTEL_TRACES_EXPORTER": "jaeger"}, "otlp, console or none"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "use http/protobuf"),
    ],
    ids=["not installed", "exporter", "protocol"],
)
def test_spans_that_cannot_be_had_are_one_warning(stage: Stage, variables: dict[str, str], way_out: str) -> None:
    (stage.tmp_path / "sitecustomize.py").write_text(NO_EXTRA)
    done = subprocess.run(
        [sys.executable, "-m", "stockade", "run", "count", "--folder", str(stage.demo), "--quiet", "--discard",
         "--model", stage.script(COUNT, DONE, DONE)],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S, stdin=subprocess.DEVNULL,
        env={**stage.environment(), **variables, "PYTHONPATH": os.pathsep.join([str(stage.tmp_path), *sys.path[1:]])},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "3 lines\n"), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("stockade: no spans are sent: ")
    assert line.endswith(way_out)
