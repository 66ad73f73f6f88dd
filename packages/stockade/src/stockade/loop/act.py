"""One action: execute, observe; and the tools of a run: what is offered to the model, who does a call.

What an action could not do is for the bot; what broke is for the host.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from stockade.core.actions import (
    BUILT_IN_TOOLS,
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
    ToolResult,
    WriteFile,
)
from stockade.core.errors import ActionFailed, ToolsUnavailable, UsageError
from stockade.core.events import ToolsReady
from stockade.core.ports import Clock, Sandbox, Toolbox, UserPrompt
from stockade.core.tools import Offered, ToolSpec
from stockade.loop.file_actions import FileActions
from stockade.loop.record import Record
from stockade_sandbox.policy import Limits

MAX_TOOLS = 64
MAX_RESULT_CHARS = 1_000_000


@dataclass(frozen=True, slots=True)
class Tools:
    """`offered` to the model; `boxes` by the name of each tool that is no built-in action."""

    offered: tuple[Offered, ...]
    boxes: Mapping[str, Toolbox] = field(default_factory=dict)

    async def call(self, action: ToolCall, timeout_s: float | None) -> ToolResult:
        """What the tool returned, of a bounded size. ActionFailed when there is none of that name."""
        box = self.boxes.get(action.name)
        if box is None:
            raise ActionFailed(f"there is no tool {action.name!r} here any more")
        result = await box.call(action.name, action.arguments, timeout_s)
        if len(result.text) > MAX_RESULT_CHARS:
            return result.model_copy(update={"text": f"{result.text[:MAX_RESULT_CHARS]}\n[the rest was cut]"})
        return result


NO_TOOLS = Tools(())


@asynccontextmanager
async def ready(
    actions: Sequence[str], toolboxes: Sequence[Toolbox], record: Record, clock: Clock
) -> AsyncIterator[Tools]:
    """Every toolbox of the run, entered in order, beside its built-in `actions`; what they hold is on record before the
    model hears of it.

    ToolsUnavailable when one cannot be used, or when two tools have one name.
    """
    async with AsyncExitStack() as stack:
        boxes: dict[str, Toolbox] = {}
        specs: list[ToolSpec] = []
        for box in toolboxes:
            try:
                await stack.enter_async_context(box)
            except UsageError as error:
                raise ToolsUnavailable(error.message, error.hint) from error
            for spec in box.specs:
                if spec.name in boxes or spec.name in BUILT_IN_TOOLS:
                    raise ToolsUnavailable(f"there are two tools of the name {spec.name}", "leave one of them out")
                boxes[spec.name] = box
                specs.append(spec)
        if len(specs) > MAX_TOOLS:
            raise ToolsUnavailable(f"{len(specs)} tools are more than the {MAX_TOOLS} that a bot may have")
        if tuple(specs) != record.state.tools:
            await record.add(ToolsReady(at=clock.now(), tools=tuple(specs)))
        yield Tools((*actions, *specs), boxes)


Help = Callable[[SubTask], Awaitable[Observation]]
_DOCUMENTS = "read_document"
"""Takes what is no text, where the bot has it."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Does actions in one sandbox, as they were written. Without `tools`, `asker`, `help` only those of the sandbox.

    `help` does a task that the bot hands on.
    """

    sandbox: Sandbox
    limits: Limits | None = None
    tools: Tools = NO_TOOLS
    asker: UserPrompt | None = None
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
        limits = self.limits or Limits(command_timeout_s=0)
        bounds = (asked_s or limits.command_timeout_s or None, limits.most_seconds or None, left_s)
        return min((bound for bound in bounds if bound is not None), default=None)
