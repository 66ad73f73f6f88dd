"""Checks of a run in fresh sandboxes: its policy again, on new layers that hold what the bot wrote."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
from anyio import to_thread

from stockade.core.errors import UsageError
from stockade.core.events import RunStarted
from stockade.loop.verdict import Judge, argv_of
from stockade.paths import run_dir
from stockade.runtime.records import new_run_id
from stockade.runtime.sandboxes import backend_of, is_far, is_known, prepare_sandbox
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.overlay.restore import restore
from stockade_sandbox.port import OnNetwork
from stockade_sandbox.results import ExecResult, FolderLayer


def judge_of(started: RunStarted) -> Judge | None:
    """None where no second sandbox can be had on the same files: on another machine, and for a program's own kind.

    UsageError where paths cannot be protected.
    """
    written = [rule for rule in started.policy.folders if rule.mode == "rw"]
    if started.protect and (written or not started.policy.folders):
        what = (
            "--protect needs a folder of which the original stays: the folder is given rw"
            if written
            else ("--protect needs a folder")
        )
        raise UsageError(what, "give it as overlay: --folder PATH")
    far = is_far(started.sandbox, started.policy)
    if not is_known(started.sandbox) or far or not backend_of(started.sandbox).sealed:
        if started.protect:
            raise UsageError(f"--protect cannot be held by the sandbox {started.sandbox}", "use --sandbox bubblewrap")
        return None
    return _Judge(started).judge


@dataclass(frozen=True, slots=True)
class _Judge:
    started: RunStarted

    async def judge(
        self, command: str, layers: Sequence[FolderLayer], names: Sequence[str | None], on_network: OnNetwork | None,
        limit_s: float | None,
    ) -> ExecResult:  # fmt: skip
        """Implements loop.verdict.Judge. What the check itself writes is thrown away."""
        policy = self.started.policy
        folders = tuple(replace(one, mode="overlay") if one.mode == "rw" else one for one in policy.folders)
        base = run_dir(f"check-{new_run_id()}")
        try:
            box = await prepare_sandbox(replace(policy, folders=folders), self.started.sandbox, base)
            await to_thread.run_sync(self._fill, box.layers, layers, names)
            box.on_network = on_network
            async with box:
                return await box.exec(argv_of(command), b"", limit_s, policy.limits.output_bytes)
        finally:
            with anyio.CancelScope(shield=True):
                if base.exists():
                    await to_thread.run_sync(remove_tree, base)

    def _fill(self, fresh: Sequence[FolderLayer], layers: Sequence[FolderLayer], names: Sequence[str | None]) -> None:
        """Only the working folder, the first, has protected paths."""
        for number, (new, old, name) in enumerate(zip(fresh, layers, names, strict=True)):
            if name is not None and old.layer is not None:
                restore(new, name, Path(old.layer), () if number else self.started.protect)
