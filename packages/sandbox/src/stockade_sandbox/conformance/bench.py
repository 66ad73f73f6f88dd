"""What the sandbox suite needs of a backend, and asks of every one."""

from contextlib import AbstractAsyncContextManager
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


async def output_of(sandbox: Sandbox, command: str, timeout_s: float | None = 30) -> str:
    return (await sandbox.run(command, timeout_s)).output.decode()
