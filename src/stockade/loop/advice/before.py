"""Actions that are surely not meant so: asked about once, before they are done.

A small model acts on files it has never looked at, and gives `write_file` a command where its output was meant. Told
so afterwards it goes on from what it has spoiled; told so before, with the file's text where that is what it lacks, it
does it right (docs/ability.md). The same command a second time is done: the bot may know better. The same text for a
file is done the fourth time only: what it takes the place of is gone then.
"""

from collections.abc import Sequence

from stockade.core.actions import Action, Refused, Shell, WriteFile
from stockade.core.ports import Sandbox
from stockade.loop.advice import commands, logs, tables, writing
from stockade.loop.advice.said import INSTEAD
from stockade.loop.state import Done

MOST_WRITES = 3


async def doubt(action: Action, task: str, done: Sequence[Done], shown: Sequence[str], sandbox: Sandbox) -> str | None:
    """Why `action` is not done yet, in words for the bot; None when it is.

    `shown`: texts that the bot was given beside the outcomes of what it has `done`. Raises SandboxDied.
    """
    before = sum(isinstance(entry.observation, Refused) and entry.step.action == action for entry in done)
    if before >= (MOST_WRITES if isinstance(action, WriteFile) else 1):
        return None
    match action:
        case Shell(command=command) if INSTEAD not in command:
            return (
                commands.doubt(command, task)
                or await tables.doubt(command, task, sandbox)
                or await logs.doubt(command, task, sandbox)
            )
        case WriteFile():
            return await writing.doubt(action, task, done, shown, sandbox)
        case _:
            return None
