"""Runs one client process beside the server and takes its figures."""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Measured
from bench.processes import cpu_clock
from bench.server import Request

ROOT = Path(__file__).resolve().parents[1]


def source_path(checkout: Path) -> str:
    """PYTHONPATH of a checkout: its packages, or the one folder that older ones have."""
    return os.pathsep.join(map(str, sorted(checkout.glob("packages/*/src")))) or str(checkout / "src")


TIMEOUT_S = 300.0
_AS_PID = 'OPENAI_BASE_URL="$0/$$/v1"; export OPENAI_BASE_URL; exec "$@"'
"""exec keeps the pid: the client's own is in its address before it begins."""


class BenchFailed(Exception):
    """A client did not do its work; says which and what it wrote."""


@dataclass(frozen=True)
class Contender:
    """A command that works until its server says it is done. `{home}` in `argv` is a folder of its own, empty."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]


@contextmanager
def server() -> Iterator[str]:
    """The address of a fake server that lives as long as the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.server"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        port = process.stdout.readline().strip()
        yield f"http://127.0.0.1:{port}"
        process.stdin.close()


def measure(contender: Contender, turns: int, address: str, run: str) -> Measured:
    """One process from its start to its end. BenchFailed when it fails, or asks more or less than it should."""
    with tempfile.TemporaryDirectory(prefix="stockade-bench-") as home:
        argv = [word.replace("{home}", home) for word in contender.argv]
        environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": home, "OPENAI_API_KEY": "none"}
        with open(f"{home}/words", "w+") as words:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _AS_PID, f"{address}/{run}/{turns}", *argv],
                stdin=subprocess.DEVNULL, stdout=words, stderr=words, cwd=home,
                env={**environment, **contender.environment},
            )  # fmt: skip
            status, own_s, children_s = finish(process)
            words.seek(0)
            said = words.read()[-2000:]
    with urllib.request.urlopen(f"{address}/{run}", timeout=10) as response:
        requests = [Request(**item) for item in json.load(response)]
    if status or len(requests) != turns + 1:
        raise BenchFailed(f"{contender.name}: status {status}, {len(requests)} requests, {turns + 1} wanted\n{said}")
    return Measured(turns, requests, own_s, children_s + requests[-1].below_s)


def finish(process: "subprocess.Popen[bytes]") -> tuple[int, float, float]:
    """Waits for the end. Exit status, the process's own CPU, and that of its waited-for children, in seconds.

    Its CPU clock can be read until it is reaped; wait4 gives the sum with the children.
    """
    ended = os.pidfd_open(process.pid)
    try:
        if not select.select([ended], [], [], TIMEOUT_S)[0]:
            process.kill()
        os.waitid(os.P_PIDFD, ended, os.WEXITED | os.WNOWAIT)
    finally:
        os.close(ended)
    own_s = time.clock_gettime(cpu_clock(process.pid))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, own_s, max(0.0, usage.ru_utime + usage.ru_stime - own_s)
