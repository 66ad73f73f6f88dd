"""What is installed holds the sandbox's programs, and not the sources of the tests."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = {
    "sandbox": (
        "stockade_sandbox/agent/agent-x86_64",
        "stockade_sandbox/agent/driver.bash",
        "stockade_sandbox/launcher/launch-x86_64",
        "stockade_sandbox/py.typed",
    ),
    "stockade": (
        "stockade/py.typed",
        "stockade/plugins/wasm/wit/llama-cpp-tool/tool.wit",
        "stockade/plugins/wasm/wit/llama-cpp-tool/tool.c",
        "stockade/plugins/wasm/wit/stockade-tool/tool.wit",
    ),
}


@pytest.mark.parametrize("name", NEEDED)
def test_a_wheel_has_what_is_needed(name: str, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT / "packages" / name, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for needed in NEEDED[name]:
            assert archive.read(needed) == (ROOT / "packages" / name / "src" / needed).read_bytes(), needed
    assert not [path for path in names if path.startswith("tests") or "__pycache__" in path]
