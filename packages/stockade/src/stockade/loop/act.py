"""One action: execute, observe. What an action could not do is for the bot; what broke is for the host."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from stockade.core.actions import (
    Action,
    Answered,
    AskUser,
    EditFile,
    Failed,
    InvalidCall,
    Observation,
    ReadFile,
    Shell,
    SubTask,
    ToolCall,
    WriteFile,
)
from stockade.core.errors import ActionFailed
from stockade.core.ports import Asker, Sandbox
from stockade.loop.file_actions import FileActions
from stockade.loop.tools import NO_TOOLS, Tools

Help = Callable[[SubTask], Awaitable[Observation]]
_DOCUMENTS = "read_document"
"""Takes what is no text, where the bot has it."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Does actions in one sandbox, as they were written. Without `tools`, `asker`, `help` only those of the sandbox.

    `help` does a task that the bot hands on.
    """

    sandbox: Sandbox
    command_timeout_s: float | None = None
    tools: Tools = NO_TOOLS
    asker: Asker | None = None
    help: Help | None = None

    async def do(self, action: Action, seconds_left: float | None) -> Observation:
        """What came of it. Raises only what ends the run: SandboxDied and other SandboxFailed."""
        try:
            match action:
                case Shell():
                    return await self.sandbox.run(action.command, self._timeout(action.timeout_s, seconds_left))
                case ReadFile() | WriteFile() | EditFile():
                    documents = _DOCUMENTS if _DOCUMENTS in self.tools.boxes else None
                    return await FileActions(self.sandbox, documents).do(action)
                case ToolCall():
                    return await self.tools.call(action, self._timeout(None, seconds_left))
                case AskUser():
                    return await self._ask(action)
                case InvalidCall():
                    return Failed(message=action.problem)
                case SubTask() if self.help is not None:
                    return await self.help(action)
                case _:
                    return Failed(message=f"this bot cannot do {action.tool}")
        except ActionFailed as error:
            return Failed(message=error.message)

    async def _ask(self, action: AskUser) -> Observation:
        answer = await self.asker.ask(action.question) if self.asker is not None else None
        if answer is None:
            raise ActionFailed("nobody is there to answer: decide yourself, or finish and say what you need to know")
        return Answered(text=answer)

    def _timeout(self, asked_s: float | None, left_s: float | None) -> float | None:
        bounds = [bound for bound in (asked_s, self.command_timeout_s or None, left_s) if bound is not None]
        return min(bounds, default=None)
