"""What a run can go on from, put on record with what came of each action: its files and its exported variables."""

import re
from dataclasses import dataclass

from stockade.core.actions import Action, CommandOutput, Failed, Observation, ReadFile, Refused, Shell
from stockade.core.events import Checkpoint
from stockade.core.ports import Clock, Keeper, Sandbox
from stockade.loop.state import RunState

EXPORTS = "(s=$?; export -p; exit $s)"
"""Leaves `$?` as it was: a bot may look at it in its next command."""
_MAY_EXPORT = re.compile(r"\b(export|declare|typeset|source|unset|eval|set|allexport)\b|(^|[;&|\n({])[ \t]*\.\s")


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Made after each action that may have left something; without a `keeper` there are none."""

    sandbox: Sandbox
    clock: Clock
    keeper: Keeper | None = None

    async def after(self, action: Action, observation: Observation, state: RunState) -> list[Checkpoint]:
        """None or one, for the same commit as the observation: durable together or not at all.

        Raises SandboxFailed when what was written cannot be kept: then the action is not on record as done either.
        """
        if self.keeper is None or isinstance(action, ReadFile) or isinstance(observation, Refused | Failed):
            return []
        last = state.checkpoint
        files = await self.keeper.keep()
        exports = last.exports if last else None
        if isinstance(action, Shell) and isinstance(observation, CommandOutput) and _MAY_EXPORT.search(action.command):
            exports = await self._exports() or exports
        if files == (last.files if last else (None,) * len(files)) and exports == (last.exports if last else None):
            return []
        return [Checkpoint(at=self.clock.now(), turn=state.turns, files=files, exports=exports)]

    async def _exports(self) -> str | None:
        """None when they cannot be had, or are too long to be kept whole."""
        output = await self.sandbox.run(EXPORTS)
        if output.shell_event is not None or output.timed_out or output.truncated_bytes:
            return None
        return output.stdout.decode(errors="surrogateescape").encode(errors="replace").decode() or None
