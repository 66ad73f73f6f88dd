"""What is started in a sandbox is written down by its guard, and changes nothing for what runs there."""

import os
import signal
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.backends.bubblewrap.trace import Trace
from stockade_sandbox.errors import SandboxDied
from stockade_sandbox.policy import FolderRule, Policy
from stockade_sandbox.processes import descendants, start_time
from stockade_sandbox.results import ProgramStart

pytestmark = pytest.mark.anyio
SIGNALS = """\
import os, signal, time
signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
os.kill(os.getpid(), signal.SIGUSR1)
if not (child := os.fork()):
    time.sleep(60)
for number in (signal.SIGTSTP, signal.SIGSTOP):
    os.kill(child, number)
    print(os.waitpid(child, os.WUNTRACED)[1] >> 8 == number)
    os.kill(child, signal.SIGCONT)
    print(os.waitpid(child, os.WCONTINUED)[1] == 0xFFFF)
os.kill(child, signal.SIGKILL)
print(os.waitpid(child, 0)[1])
if not (child := os.fork()):
    os.kill(os.getpid(), signal.SIGSEGV)
print(os.waitpid(child, 0)[1])
"""


@asynccontextmanager
async def traced(tmp_path: Path, policy: Policy | None = None) -> AsyncIterator[BubblewrapSandbox]:
    policy = policy or Policy()
    base = tmp_path / "run"
    base.mkdir()
    sandbox = BubblewrapSandbox(policy, prepare_layers(policy, base), base)
    sandbox.tells_programs = True
    async with sandbox:
        sandbox.started_programs()
        yield sandbox


async def test_each_program_is_told_with_its_words_however_it_was_started(tmp_path: Path) -> None:
    async with traced(tmp_path) as box:
        script = "#!/usr/bin/env python3\nimport os\nos.execv('/usr/bin/env', ['name of its own', 'true', ''])\n"
        await box.exec(["sh", "-c", 'cat > /tmp/s; chmod +x /tmp/s; exec sh -c "$@"', "sh", "exit"], script.encode())
        found, more = box.started_programs()
        assert [(Path(one.program).name, one.argv[0], more) for one in found][-2:] == [
            ("chmod", "chmod", 0),
            ("dash", "sh", 0),
        ]
        await box.exec(["sh", "-c", "/tmp/s; no-such; (setsid sleep 0 &)"])
        found, _ = box.started_programs()
        words = [one.argv for one in found]
        assert words[:3] == [
            ("sh", "-c", "/tmp/s; no-such; (setsid sleep 0 &)"),
            ("/usr/bin/env", "python3", "/tmp/s"),
            ("python3", "/tmp/s"),
        ]
        assert ("name of its own", "true", "") in words
        assert ("true", "") in words
        assert not [one for one in words if "no-such" in one]
        with anyio.fail_after(60):
            while ("sleep", "0") not in words:
                words += [one.argv for one in box.started_programs()[0]]
                await anyio.lowlevel.checkpoint()
        await box.run("true; /bin/echo x")
        assert [(one.program, one.argv) for one in box.started_programs()[0]] == [("/usr/bin/echo", ("/bin/echo", "x"))]


async def test_signals_jobs_and_statuses_are_as_ever(tmp_path: Path) -> None:
    async with traced(tmp_path) as box:
        done = await box.exec(["python3", "-c", SIGNALS], timeout_s=60)
        assert done.stdout.decode().split() == ["handled", "True", "True", "True", "True", "9", "11"], done.stderr
        jobs = await box.exec(["bash", "-c", "set -m; (sleep 1; exit 3) & fg; echo $?; timeout 0.2 sleep 9; echo $?"])
        assert jobs.stdout.decode().split()[-2:] == ["3", "124"]
        late = await box.run("sleep 60", timeout_s=0.5)
        assert (late.exit_code, late.timed_out) == (124, True)
        assert (await box.exec(["false"])).exit_code == 1


async def test_nothing_moves_while_it_is_frozen(tmp_path: Path) -> None:
    """Though each process stands still for a moment by itself whenever it starts another."""
    folder = tmp_path / "demo"
    folder.mkdir()
    policy = Policy(folders=(FolderRule(host=str(folder), mode="rw"),))
    async with traced(tmp_path, policy) as box:
        for name in "abcd":
            await box.run(f"(while :; do /bin/echo x >> {name}; done) &")
        await box.run("sleep 100 & kill -STOP $!; echo $! > stopped")

        def sizes() -> dict[str, int]:
            return {path.name: path.stat().st_size for path in folder.iterdir()}

        for _ in range(10):
            before = await anyio.to_thread.run_sync(sizes)
            with anyio.fail_after(60):
                while any(size == before.get(name) for name, size in sizes().items() if name in "abcd"):
                    await anyio.lowlevel.checkpoint()
            async with box.frozen():
                still = sizes()
                await anyio.sleep(0.2)
                assert sizes() == still
        state = await box.exec(["sh", "-c", "cut -d' ' -f3 /proc/$(cat stopped)/stat"])
        assert state.stdout.strip() in (b"t", b"T"), "what was stopped before stays so"


async def ask_on(box: BubblewrapSandbox) -> None:
    """For ever: a command may come through before the kernel has ended what was killed."""
    while True:
        await box.run("true")


async def test_nothing_outlives_a_guard_that_is_killed(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        box = await stack.enter_async_context(traced(tmp_path))
        await box.run("sleep 1000 & setsid sleep 1000 &")
        guard = box._guard()
        assert guard is not None
        inside = list(descendants(guard))
        assert len(inside) > 5
        os.kill(guard, signal.SIGKILL)
        with pytest.raises(SandboxDied):
            await ask_on(box)
    assert not [one for one in inside if start_time(one, zombies=False) is not None]


async def test_what_is_too_much_is_counted(tmp_path: Path) -> None:
    async with traced(tmp_path) as box:
        many = "i=0; while [ $i -lt 4500 ]; do /bin/true $0; i=$((i+1)); done"
        await box.exec(["sh", "-c", many, "x" * 5000], timeout_s=200)
        found, more = box.started_programs()
        assert len(found) + more == 4501
        assert more > 0
        assert {len(one.argv[1]) for one in found[1:]} == {4096 - len("/bin/true") - 1}
        await box.exec(["true", "x" * 5000])
        assert box.started_programs() == ([], 1)


def test_an_entry_that_is_written_halfway_is_read_when_it_is_whole() -> None:
    fd = os.memfd_create("trace")
    trace = Trace(fd)
    assert trace.news() == ((), 0)
    agent, program = (
        struct.pack("=IIQ", len(words), 1, 5 * 10**9) + words
        for words in (b"/a\0/proc/self/fd/4\0007\0", b"/bin/x\0/bin/x\0a b\0")
    )
    os.pwrite(fd, struct.pack("=Q", 2) + agent + bytes(16) + program[16:], 0)
    assert trace.news() == ([], 1)
    os.pwrite(fd, program[:16], 8 + len(agent))
    assert trace.news() == ([ProgramStart(at=5.0, program="/bin/x", argv=("/bin/x", "a b"))], 0)
    os.close(fd)
