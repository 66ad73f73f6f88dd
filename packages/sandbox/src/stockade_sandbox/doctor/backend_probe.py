"""The sandboxes besides the default one: which of them work here, tried live, and what killed ones left behind."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from stockade_sandbox.backends.containers import container, gvisor
from stockade_sandbox.backends.containers.engines import EngineName, find_engine
from stockade_sandbox.backends.containers.gvisor import find_runsc
from stockade_sandbox.doctor.probe import differences, private_place, try_escapes
from stockade_sandbox.errors import StockadeError
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import Backend, Sandbox
from stockade_sandbox.results import Finding

_START_S = 60.0
_TRIED = "started one and ran a command in it"
T = TypeVar("T")
_ENGINES: tuple[EngineName, ...] = ("docker", "podman")


def other_backends(backends: Mapping[str, Callable[[], Backend]]) -> list[Finding]:
    """Findings of each, none of them required. They are tried at the same time, for some seconds."""
    return anyio.run(_all, backends)


async def _all(backends: Mapping[str, Callable[[], Backend]]) -> list[Finding]:
    found: dict[str, list[Finding]] = {}

    async def one(name: str, find: Callable[[], Backend], base: Path) -> None:
        found[name] = await _try(name, lambda: find().prepare(Policy(), base, None))

    with private_place() as folder:
        async with anyio.create_task_group() as group:
            for name, find in backends.items():
                group.start_soon(one, name, find, Path(folder, name))
        return [finding for name in backends for finding in found[name]]


async def _try(name: str, make: Callable[[], Sandbox]) -> list[Finding]:
    def finding(cause: str | None = None, hint: str | None = None) -> Finding:
        return Finding(
            backend=name, name="sandbox", tried=_TRIED, held=cause is None, required=False, cause=cause, way_out=hint
        )

    try:
        with anyio.move_on_after(_START_S):
            # looking for an engine asks its client, which takes its time
            async with await anyio.to_thread.run_sync(make) as sandbox:
                result = await sandbox.run("ls / && test -w /tmp", timeout_s=20)
                if result.exit_code:
                    return [finding(f"`ls /` ended with status {result.exit_code} in it")]
                engine = next((one for one in _ENGINES if one == name), None)
                memory = engine is None or "memory" in (await anyio.to_thread.run_sync(find_engine, engine)).totals
                return [finding(), *differences(name, memory), *await try_escapes(sandbox, required=False)]
    except StockadeError as error:
        return [finding(error.message, error.hint)]
    return [finding("it did not answer in time")]


def sweep_others() -> list[str]:
    """Removes the containers, bundles and mounts of stockades that are gone; what was removed, a name each."""
    removed: list[str] = []
    for name in _ENGINES:
        if (engine := _here(partial(find_engine, name))) is not None:
            removed += container.sweep(engine)
    if (found := _here(find_runsc)) is not None:
        removed += gvisor.sweep(found[0])
    return removed


def _here(find: Callable[[], T]) -> T | None:
    """None where it is not installed: then it left nothing either."""
    try:
        return find()
    except StockadeError:
        return None
