"""The C programs that are shipped: their bytes are those of the sources, and nothing else is run."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from stockade.core.errors import SandboxFailed
from stockade_sandbox.agent import binary
from stockade_sandbox.agent.session import AgentConfig
from tests.support.toolchains import zig
from tests.unit.sandboxes.session_support import NAMESPACE, agent

PROGRAMS = ("agent/agent", "launcher/launch")
QEMU = "qemu-aarch64"


def built(program: str, target: Path, compiler: str) -> bytes:
    script = binary.FOLDER / Path(program).parent / "build.sh"
    environment = {"PATH": os.environ["PATH"], "HOME": str(Path.home()), "CC": compiler}
    done = subprocess.run(["sh", script, target], check=False, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target.read_bytes()


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_shipped_is_what_the_sources_make(program: str, tmp_path: Path) -> None:
    assert shutil.which("musl-gcc"), "install musl-tools"
    shipped = binary.program_bytes(program, "x86_64")
    assert built(program, tmp_path / "built", "musl-gcc") == shipped, "run `make agent`, then mend SHA256 in binary.py"
    assert len(shipped) < 68_000


def test_of_aarch64_too(tmp_path: Path) -> None:
    """One after the other: the compiler makes its C library for the first of them."""
    for program in PROGRAMS:
        shipped = binary.program_bytes(program, "aarch64")
        assert built(program, tmp_path / "built", zig()) == shipped, "run `make agent`, then mend SHA256 in binary.py"
        assert len(shipped) < 68_000


@pytest.mark.anyio
async def test_the_agent_of_aarch64_keeps_a_shell_on_an_emulator() -> None:
    """As process one of a namespace, with this machine's bash: what it starts runs without the emulator."""
    assert shutil.which(QEMU), "install qemu-user"
    config = AgentConfig(cwd="/tmp", grace_s=0.2, timeout_s=20, streams="separate")
    async with agent(config, (*NAMESPACE, QEMU), machine="aarch64") as (session, _):
        first = await session.run("cd /usr; x=3; echo out; echo error >&2; (exit 7)")
        assert (first.stdout, first.stderr, first.exit_code, first.cwd) == (b"out\n", b"error\n", 7, "/usr")
        late = await session.run("echo $x; sleep 60", timeout_s=0.5)
        assert (late.stdout, late.exit_code, late.timed_out) == (b"3\n", 124, True)
        assert (await session.run("exit 5")).exit_code == 5
        assert (await session.run("echo $x; pwd")).stdout == b"3\n/usr\n"
        program = await session.exec(["/usr/bin/wc", "-c"], stdin=b"x" * 300_000)
        assert program.stdout == b"300000\n"
        missing = await session.exec(["/no/such/program"])
        assert missing.exit_code == 127


def test_the_launcher_of_aarch64_runs_its_operations_on_an_emulator(tmp_path: Path) -> None:
    """Those that the emulator knows; mounting is not among them."""
    program, target = tmp_path / "launch", tmp_path / "made"
    program.write_bytes(binary.program_bytes("launcher/launch", "aarch64"))
    program.chmod(0o755)
    words = ["calm", "dir", str(target), "750", "0", "0", "file", str(target / "text"), "words", "try", str(target)]
    done = subprocess.run([QEMU, program, *words, "exec", "/bin/echo", "there"], capture_output=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (b"there\n", b"", 0)
    assert (target / "text").read_text() == "words"
    failed = subprocess.run([QEMU, program, "nonsense"], capture_output=True, text=True, check=False)
    assert (failed.stderr, failed.returncode) == ("launch: operation nonsense: Function not implemented\n", 125)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_changed_program_is_not_run(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(binary.SHA256, f"{program}-{platform.machine()}", "0" * 64)
    with pytest.raises(SandboxFailed, match="was changed") as caught:
        binary.program_bytes(program)
    assert "make agent" in str(caught.value)


def test_a_machine_that_none_is_shipped_for() -> None:
    with pytest.raises(SandboxFailed, match="no agent/agent-riscv64 is shipped") as caught:
        binary.agent_memfd("riscv64")
    assert "aarch64 and x86_64" in str(caught.value)


def test_a_program_in_memory_cannot_be_written() -> None:
    descriptor = binary.agent_memfd()
    try:
        with pytest.raises(PermissionError):
            os.write(descriptor, b"x")
        assert os.pread(descriptor, 4, 0) == b"\x7fELF"
    finally:
        os.close(descriptor)
