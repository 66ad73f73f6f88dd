"""The sandboxes besides the default one: which of them work here, tried live, and what killed ones left behind."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio

from stockade.core.errors import StockadeError
from stockade.core.policy import Policy
from stockade.core.ports import Sandbox
from stockade.sandboxes import container, gvisor
from stockade.sandboxes.container import ContainerSandbox
from stockade.sandboxes.engines import EngineName, find_engine
from stockade.sandboxes.gvisor import GVisorSandbox, find_runsc
from stockade.sandboxes.probe import Finding, private_place

_START_S = 60.0
_TRIED = "started one and ran a command in it"
T = TypeVar("T")
_ENGINES: tuple[EngineName, ...] = ("docker", "podman")


def other_backends() -> list[Finding]:
    """A finding for each, none of them required. Takes about two seconds where they are all here."""
    with private_place() as folder:
        base = Path(folder)
        makers: dict[str, Callable[[], Sandbox]] = {
            "docker": lambda: ContainerSandbox.prepared(Policy(), base / "docker", "docker"),
            "podman": lambda: ContainerSandbox.prepared(Policy(), base / "podman", "podman"),
            "gvisor": lambda: GVisorSandbox.prepared(Policy(), base / "gvisor"),
        }
        return [anyio.run(_try, name, make) for name, make in makers.items()]


async def _try(name: str, make: Callable[[], Sandbox]) -> Finding:
    cause, hint = "it did not answer in time", None
    try:
        with anyio.move_on_after(_START_S):
            async with make() as sandbox:
                result = await sandbox.run("ls / && test -w /tmp", timeout_s=20)
                if result.exit_code == 0:
                    return Finding(name=f"--sandbox {name}", tried=_TRIED, held=True, required=False)
                cause = f"`ls /` ended with status {result.exit_code} in it"
    except StockadeError as error:
        cause, hint = error.message, error.hint
    return Finding(name=f"--sandbox {name}", tried=_TRIED, held=False, required=False, cause=cause, way_out=hint)


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
