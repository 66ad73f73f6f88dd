"""What is installed holds the sandbox's programs, and not the sources of the tests."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEEDED = (
    "stockade/sandboxes/agent/agent-x86_64",
    "stockade/sandboxes/agent/driver.bash",
    "stockade/sandboxes/launcher/launch-x86_64",
    "stockade/py.typed",
    "stockade/plugins/wasm/wit/llama-cpp-tool/tool.wit",
    "stockade/plugins/wasm/wit/llama-cpp-tool/tool.c",
    "stockade/plugins/wasm/wit/stockade-tool/tool.wit",
)


def test_a_wheel_has_the_programs_of_the_sandbox(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for name in NEEDED:
            assert archive.read(name) == (ROOT / "src" / name).read_bytes(), name
    assert not [name for name in names if name.startswith("tests") or "__pycache__" in name]
