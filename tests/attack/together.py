"""Many attempts in one sandbox: those that leave it as it was but for files in the folder, which are put back.

A sandbox each would take minutes on backends that start slowly.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import anyio.to_thread
import pytest

from stockade.core.errors import StockadeError
from stockade.core.ports import Sandbox
from stockade_sandbox.overlay import Review
from stockade_sandbox.policy import FolderRule, Policy
from tests.attack.attempts import AREAS
from tests.attack.attempts.attempt import Attempt
from tests.attack.runner import HELD, LIMITS, THROUGH, Backend, by_the_host, fired, put_probe, tried
from tests.attack.scene import Scene
from tests.support.once import made_once

_ALONE = ("resources", "left for the host")
_TIDY = "chattr -i stuck; find . -mindepth 1 ! -name live.sock -delete; printf x > victim.txt"


def can_share(area: str) -> bool:
    """What fills the machine, or is judged by a review of the whole folder, has a sandbox of its own."""
    return area not in _ALONE


SHARING = tuple(attempt for area, attempts in AREAS.items() if can_share(area) for attempt in attempts)
ALONE = tuple(attempt for area, attempts in AREAS.items() if not can_share(area) for attempt in attempts)


async def attacked_together(attempts: Sequence[Attempt], stage: Scene, base: Path, backend: Backend) -> dict[str, str]:
    """What came of each, by name: HELD, THROUGH, or what broke. A sandbox that one ends is followed by another."""
    results: dict[str, str] = {}
    policy = Policy(folders=(FolderRule(host=str(stage.folder), mode="overlay"),), limits=LIMITS)
    while left := [attempt for attempt in attempts if attempt.name not in results]:
        number = len(results)
        sandbox = backend.make(policy, base / str(number))
        try:
            async with sandbox:
                await put_probe(sandbox)
                for attempt in left:
                    results[attempt.name] = f"the sandbox ended at {attempt.name}"
                    results[attempt.name] = await _result(attempt, stage, sandbox)
        except StockadeError as error:
            if len(results) == number:
                raise
            results[list(results)[-1]] = f"broke: {error}"
        finally:
            for layer in sandbox.layers:
                if layer.strategy != "direct":
                    Review().discard(layer)
    return results


def told_once(factory: pytest.TempPathFactory, name: str, stage: Scene, backend: Backend) -> dict[str, str]:
    """What came of all that share a sandbox, which one of pytest's processes tries for all of them."""

    def attack(folder: Path) -> None:
        found = anyio.run(attacked_together, SHARING, stage, folder / "layers", backend)
        (folder / "told.json").write_text(json.dumps(found))

    told: dict[str, str] = json.loads((made_once(factory, f"attacked-{name}", attack) / "told.json").read_text())
    return told


async def _result(attempt: Attempt, stage: Scene, sandbox: Sandbox) -> str:
    if attempt.before:
        await anyio.to_thread.run_sync(by_the_host, attempt.before, stage)
    try:
        output = await tried(attempt, stage, sandbox)
    except AssertionError as error:
        return f"broke: {error}"
    through = await anyio.to_thread.run_sync(fired, attempt, output, stage)
    await sandbox.exec(["/bin/bash", "-c", _TIDY])
    return THROUGH if through else HELD
