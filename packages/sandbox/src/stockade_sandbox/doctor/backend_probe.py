"""The sandboxes besides the default one: which of them work here, tried live."""

from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import anyio.to_thread

from stockade_sandbox.doctor.probe import differences, finding, private_place, report_channel, try_escapes
from stockade_sandbox.errors import StockadeError
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import Backend
from stockade_sandbox.results import Finding

_START_S = 60.0
_TRIED = "started one and ran a command in it"


def other_backends(backends: Mapping[str, Callable[[], Backend]]) -> list[Finding]:
    """Findings of each, none of them required. They are tried at the same time, for some seconds."""
    return anyio.run(_all, backends)


async def _all(backends: Mapping[str, Callable[[], Backend]]) -> list[Finding]:
    found: dict[str, list[Finding]] = {}

    async def one(name: str, find: Callable[[], Backend], base: Path) -> None:
        found[name] = await _try(name, find, base)

    with private_place() as folder:
        async with anyio.create_task_group() as group:
            for name, find in backends.items():
                group.start_soon(one, name, find, Path(folder, name))
        return [finding for name in backends for finding in found[name]]


async def _try(name: str, find: Callable[[], Backend], base: Path) -> list[Finding]:
    def found(cause: str | None = None, hint: str | None = None) -> Finding:
        return finding("sandbox", _TRIED, cause, hint, backend=name, required=False)

    try:
        with anyio.move_on_after(_START_S):
            # looking for an engine asks its client, which takes its time
            backend = await anyio.to_thread.run_sync(find)
            async with await anyio.to_thread.run_sync(backend.prepare, Policy(), base, None) as sandbox:
                result = await sandbox.run("ls / && test -w /tmp", timeout_s=20)
                if result.exit_code:
                    return [found(f"`ls /` ended with status {result.exit_code} in it")]
                memory = await anyio.to_thread.run_sync(backend.bounds_memory)
                nature = differences(name, memory, own_kernel=backend.own_kernel)
                shell = await report_channel(sandbox)
                return [found(), *nature, shell, *await try_escapes(sandbox, required=False)]
    except StockadeError as error:
        return [found(error.message, error.hint)]
    return [found("it did not answer in time")]
