"""A sandbox backend: bubblewrap, for a site where nothing may have a network, whatever somebody types."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from stockade.extend import (
    Backend,
    CommandOutput,
    ExecResult,
    FolderLayer,
    OnNetwork,
    OnProgress,
    Policy,
    PolicyNotEnforceable,
    Sandbox,
    open_sandbox,
    sandbox_on,
)


class OfflineSandbox:
    """Another sandbox under a name of its own, with one rule more."""

    backend = "offline"

    def __init__(self, inner: Sandbox) -> None:
        self._inner = inner

    @property
    def on_network(self) -> OnNetwork | None:
        return self._inner.on_network

    @on_network.setter
    def on_network(self, value: OnNetwork | None) -> None:
        self._inner.on_network = value

    @property
    def layers(self) -> tuple[FolderLayer, ...]:
        return self._inner.layers

    @property
    def guarantees(self) -> tuple[str, ...]:
        return (*self._inner.guarantees, "network: refused for every run on this site")

    @property
    def host_pid(self) -> int | None:
        """Of the process that holds it, where there is one: what a killed run leaves is found by it."""
        pid: int | None = getattr(self._inner, "host_pid", None)
        return pid

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)

    async def run(self, command: str, timeout_s: float | None = None) -> CommandOutput:
        return await self._inner.run(command, timeout_s)

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        return await self._inner.exec(argv, stdin, timeout_s, max_output_bytes)


def prepare(policy: Policy, base: Path, on_progress: OnProgress | None) -> Sandbox:
    return OfflineSandbox(open_sandbox(_offline(policy), "bubblewrap", base, on_progress))


def reopen(policy: Policy, layers: Sequence[FolderLayer], base: Path) -> Sandbox:
    return OfflineSandbox(sandbox_on(_offline(policy), "bubblewrap", base, layers))


def _offline(policy: Policy) -> Policy:
    if policy.network.mode != "none":
        raise PolicyNotEnforceable("network", "this site has no network for bots", backends=("bubblewrap",))
    return policy


OFFLINE = Backend(prepare, reopen)
