"""What is installed holds the sandbox's programs, and not the sources of the tests."""

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = {
    "sandbox": (
        "stockade_sandbox/agent/driver.bash",
        "stockade_sandbox/py.typed",
    ),
    "stockade": (
        "stockade/py.typed",
        "stockade/plugins/wasm/wit/llama-cpp-tool/tool.wit",
        "stockade/plugins/wasm/wit/llama-cpp-tool/tool.c",
        "stockade/plugins/wasm/wit/stockade-tool/tool.wit",
    ),
}


PROGRAMS = ("stockade_sandbox/agent/agent-", "stockade_sandbox/launcher/launch-")


def wheel_of(name: str, folder: Path, machine: str = "", *, packages: Path = ROOT / "packages") -> Path:
    """Built for `machine`, or for this one."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    environment = {**os.environ, "STOCKADE_WHEEL_MACHINE": machine}
    subprocess.run(build, cwd=packages / name, check=True, capture_output=True, env=environment)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.mark.parametrize("name", NEEDED)
def test_a_wheel_has_what_is_needed(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel_of(name, tmp_path)) as archive:
        names = archive.namelist()
        for needed in NEEDED[name]:
            assert archive.read(needed) == (ROOT / "packages" / name / "src" / needed).read_bytes(), needed
    assert not [path for path in names if path.startswith("tests") or "__pycache__" in path]


@pytest.mark.parametrize("name", NEEDED)
def test_the_same_sources_give_the_same_bytes(name: str, tmp_path: Path) -> None:
    """Elsewhere, at another time, and where nobody else may read them."""
    copy = tmp_path / "elsewhere" / name
    shutil.copytree(ROOT / "packages" / name, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for path in copy.rglob("*"):
        path.chmod(path.stat().st_mode & ~0o077)
        os.utime(path, (10**9, 10**9))
    here = wheel_of(name, tmp_path / "here").read_bytes()
    assert wheel_of(name, tmp_path / "there", packages=copy.parent).read_bytes() == here


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_wheel_of_the_sandbox_is_one_machines(machine: str, tmp_path: Path) -> None:
    """It holds that machine's programs and no other's, and pip takes it there alone."""
    wheel = wheel_of("sandbox", tmp_path, machine)
    assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{machine}.musllinux_1_1_{machine}.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.startswith(PROGRAMS)}
        assert held == {program + machine for program in PROGRAMS}
        for name in held:
            assert archive.read(name) == (ROOT / "packages/sandbox/src" / name).read_bytes()
            assert archive.getinfo(name).external_attr >> 16 & 0o111
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--target",
        str(tmp_path / "t"),
        str(wheel),
    ]
    done = subprocess.run(install, check=False, capture_output=True, text=True)
    assert (done.returncode == 0) is (machine == platform.machine()), done.stderr
    if machine != platform.machine():
        assert "is not a supported wheel on this platform" in done.stderr
