"""A sandbox of another process, reached over HTTP on loopback, under the conformance suite."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from stockade_sandbox.backends.remote.http import HttpSandbox
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import OnNetwork, Sandbox
from tests.conformance.bench_bubblewrap import BubblewrapBench, descendants

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-that-is-long-enough-for-a-test-and-known-to-both"
OTHER_TOKEN = "another-token-that-is-long-enough-and-somebody-elses"


@contextmanager
def serving(base: Path, keep_s: float = 60.0, port: int = 0) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """The process and its address."""
    token = base / "token"
    token.write_text(f"{TOKEN}\n{OTHER_TOKEN}\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.remote_server", str(base), str(token), str(keep_s), str(port)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, process_group=0,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().decode().strip()
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


class RemoteBench(BubblewrapBench):
    """`base` holds the folder, the copies and the server's layers."""

    def __init__(self, folder: Path, base: Path, process: "subprocess.Popen[bytes]", url: str) -> None:
        super().__init__(folder, base)
        self._process, self._url = process, url

    @asynccontextmanager
    async def make(self, policy: Policy, on_network: OnNetwork | None = None) -> AsyncIterator[Sandbox]:
        sandbox = HttpSandbox(policy, self._url, TOKEN, restarts=False)
        sandbox.on_network = on_network
        async with sandbox:
            yield sandbox

    def kill(self, sandbox: Sandbox) -> None:
        """All that runs in the server's sandbox, from outside: children of the server, not the server."""
        below = descendants(self._process.pid)
        for what in (signal.SIGSTOP, signal.SIGKILL):  # all at once: none reports that another has ended
            for pid in below:
                with suppress(ProcessLookupError):
                    os.kill(pid, what)
