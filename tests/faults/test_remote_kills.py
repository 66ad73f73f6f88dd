"""kill -9 of either of two machines, and a server that comes back: named, bounded, and nothing is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from stockade.core.errors import SandboxDied
from stockade_sandbox.backends.remote.http import HttpSandbox
from stockade_sandbox.policy import FolderRule, Policy
from tests.conformance.bench_bubblewrap import descendants
from tests.conformance.bench_remote import ROOT, TOKEN, serving
from tests.unit.sandboxes.remote.helpers import until

pytestmark = pytest.mark.anyio
CLIENT = """
import sys, anyio
from stockade_sandbox.policy import FolderRule, Policy
from stockade_sandbox.backends.remote.http import HttpSandbox

async def main(url, folder, token):
    policy = Policy(folders=(FolderRule(host=folder, mode="rw"),))
    async with HttpSandbox(policy, url, token) as box:
        print("open", flush=True)
        await box.run("touch begun; sleep 300")

anyio.run(main, sys.argv[1], sys.argv[2], open(sys.argv[3]).readline().strip())
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "layers").mkdir(mode=0o700)
    (tmp_path / "work").mkdir()
    return tmp_path


def policy(base: Path) -> Policy:
    return Policy(folders=(FolderRule(host=str(base / "work"), mode="rw"),))


def below(pid: int) -> set[int]:
    """Processes that the server started and that live."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in task.read_text().split():
                found |= {int(child), *below(int(child))}
    return found


def alive(pids: set[int]) -> Iterator[int]:
    for pid in pids:
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                yield pid


async def gone(pids: set[int]) -> None:
    await until(lambda: not list(alive(pids)), 60)


async def there(path: Path) -> None:
    await until(path.exists, 60)


def client(url: str, base: Path) -> "subprocess.Popen[bytes]":
    """Another process with a sandbox over there, which is open when this returns."""
    arguments = [url, str(base / "work"), str(base / "token")]
    process = subprocess.Popen([sys.executable, "-c", CLIENT, *arguments], stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.readline() == b"open\n"
    process.stdout.close()
    return process


async def test_a_killed_server_is_the_death_of_its_sandboxes(base: Path) -> None:
    with serving(base) as (process, url):
        async with HttpSandbox(policy(base), url, TOKEN, patience_s=1.0) as box:
            async with anyio.create_task_group() as group:

                async def fatal() -> None:
                    with pytest.raises(SandboxDied, match="is lost"):
                        await box.run("touch begun; sleep 300")

                group.start_soon(fatal)
                await there(base / "work" / "begun")
                started = below(process.pid)
                assert started
                os.kill(process.pid, signal.SIGKILL)
            with pytest.raises(SandboxDied):
                await box.run("echo after")
            await gone(started)


async def test_a_server_that_comes_back_says_that_the_sandbox_is_gone(base: Path) -> None:
    with serving(base) as (process, url):
        async with HttpSandbox(policy(base), url, TOKEN, patience_s=60.0, restarts=False) as box:
            assert (await box.run("echo here")).stdout == b"here\n"
            os.kill(process.pid, signal.SIGKILL)
            process.wait(60)
            with serving(base, port=int(url.rpartition(":")[2])) as (_, again):
                assert again == url
                with pytest.raises(SandboxDied, match="started anew"):
                    await box.run("echo after")


async def test_a_killed_client_leaves_nothing_over_there(base: Path) -> None:
    with serving(base, keep_s=0.5) as (process, url):
        other = client(url, base)
        await there(base / "work" / "begun")
        started = below(process.pid)
        other.kill()
        other.wait(60)
        await gone(started)
        assert not list((base / "layers").iterdir())
        async with HttpSandbox(policy(base), url, TOKEN) as box:
            assert (await box.run("ls")).stdout == b"begun\n"


async def test_a_server_that_stands_still_for_a_while_loses_nothing(base: Path) -> None:
    with serving(base) as (process, url):
        async with HttpSandbox(policy(base), url, TOKEN) as box:
            os.kill(process.pid, signal.SIGSTOP)
            found: list[bytes] = []

            async def waiting() -> None:
                found.append((await box.run("echo slow")).stdout)

            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(waiting)
                    await anyio.wait_all_tasks_blocked()
                    assert not found
                    os.kill(process.pid, signal.SIGCONT)
            finally:
                os.kill(process.pid, signal.SIGCONT)
            assert found == [b"slow\n"]
            assert (await box.run("echo here")).stdout == b"here\n"


def test_nothing_is_left_of_a_server_that_ends(base: Path) -> None:
    before = descendants()
    with serving(base) as (_, url):

        async def use() -> None:
            async with HttpSandbox(policy(base), url, TOKEN) as box:
                await box.run("sleep 300 & echo begun")

        anyio.run(use)
    assert url
    assert descendants() <= before
