"""What the sandbox suite needs of a backend, and asks of every one."""

import os
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Protocol

from stockade_sandbox.policy import Policy
from stockade_sandbox.port import OnNetwork, Sandbox


class Bench(Protocol):
    """A backend under test. `folder` is a host folder to give away; `traces` is what runs leave on the host."""

    folder: Path

    def make(self, policy: Policy, on_network: OnNetwork | None = None) -> AbstractAsyncContextManager[Sandbox]:
        """With a proxy for which every name is on this machine's loopback, and only `good.test` may be."""
        ...

    def kill(self, sandbox: Sandbox) -> None: ...

    def traces(self) -> set[str]: ...


def descriptors() -> set[str]:
    """The open ones of this process, each with what it leads to."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.add(f"descriptor {name} {os.readlink(f'/proc/self/fd/{name}')}")
    return found


async def output_of(sandbox: Sandbox, command: str, timeout_s: float | None = 30) -> str:
    return (await sandbox.run(command, timeout_s)).output.decode()
