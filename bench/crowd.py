"""Many sandboxes at once: they start, each answers, what they hold of memory, and that nothing is left of them."""

import os
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

from bench.processes import descendants
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox
from stockade_sandbox.policy import Policy

AT_ONCE = 8
"""Starts that overlap. More would only wait for the processors."""


@dataclass(frozen=True)
class Crowd:
    """Memory in MB: of the sandboxes' processes, what this process grew by, and what the machine has less.

    `available_mb` holds page tables and stacks in the kernel too, but also what others on the machine did meanwhile.
    """

    count: int
    start_s: float
    answered: int
    answer_s: float
    processes: int
    sandboxes_mb: float
    host_mb: float
    available_mb: float
    end_s: float
    left: int

    @property
    def each_mb(self) -> float:
        return (self.sandboxes_mb + self.host_mb) / self.count


def pss_bytes(pid: int) -> int:
    """A process's memory, with a page shared by n counted as an n-th; 0 for one that is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


async def measure(count: int, base: Path) -> Crowd:
    """`count` sandboxes without folders, ready at the same time. Raises what the first that cannot start raises."""
    others, host, available = descendants(os.getpid()), pss_bytes(os.getpid()), _available_bytes()
    sandboxes = [BubblewrapSandbox(Policy(), (), base / str(number)) for number in range(count)]
    answers: list[bytes] = []
    slots = anyio.Semaphore(AT_ONCE)
    begun = time.perf_counter()
    async with AsyncExitStack() as stack:

        async def start(sandbox: BubblewrapSandbox) -> None:
            async with slots:
                await stack.enter_async_context(sandbox)

        async def ask(number: int, sandbox: BubblewrapSandbox) -> None:
            answers.append((await sandbox.run(f"echo $(({number} * 2))")).stdout)

        async with anyio.create_task_group() as group:
            for sandbox in sandboxes:
                group.start_soon(start, sandbox)
        started = time.perf_counter()
        async with anyio.create_task_group() as group:
            for number, sandbox in enumerate(sandboxes):
                group.start_soon(ask, number, sandbox)
        answered = time.perf_counter()
        held = descendants(os.getpid()) - others
        inside = sum(map(pss_bytes, held))
        grown, less = pss_bytes(os.getpid()) - host, available - _available_bytes()
        ending = time.perf_counter()
    wanted = {f"{number * 2}\n".encode() for number in range(count)}
    return Crowd(
        count=count,
        start_s=started - begun,
        answered=len(wanted & set(answers)),
        answer_s=answered - started,
        processes=len(held),
        sandboxes_mb=inside / 1e6,
        host_mb=grown / 1e6,
        available_mb=less / 1e6,
        end_s=time.perf_counter() - ending,
        left=len(descendants(os.getpid()) - others),
    )
