"""Implements core.ports.SubAgentRunner: a sub-bot works in the sandbox of its boss, on its budget.

It has a record and a conversation of its own, sees nothing of its boss's, and gives back its answer. It has the tools
of its boss's run, which are open already, and no sub-bots.
"""

from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from stockade.core.actions import Observation, SubTask, ToolResult
from stockade.core.budget import Account, Budget
from stockade.core.events import RunFinished, RunStarted, SubRunFinished, SubRunStarted
from stockade.core.messages import ModelAnswer, ModelInfo, ModelRequest, Usage
from stockade.core.ports import AddEvent, Model, OnNetwork, OnText, Sandbox, Toolbox
from stockade.core.tools import ToolSpec
from stockade.loop.run import run
from stockade.loop.run_context import Bot, Dependencies
from stockade_sandbox.results import FolderLayer

DEFAULT_TURNS = 15
LEAST_TURNS = 2
"""One to act and one to finish."""


class _Borrowed:
    """Something of the boss: entered and left by it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class BorrowedModel(_Borrowed):
    """Implements core.ports.Model."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def info(self) -> ModelInfo:
        return self._model.info

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        return await self._model.ask(request, on_text)


class BorrowedSandbox(_Borrowed):
    """Implements core.ports.Sandbox. Its folders are reviewed with the boss's run, so it has no layers of its own."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.on_network: OnNetwork | None = None
        self.run, self.exec = sandbox.run, sandbox.exec

    @property
    def backend(self) -> str:
        return self._sandbox.backend

    @property
    def layers(self) -> tuple[FolderLayer, ...]:
        return ()

    @property
    def guarantees(self) -> tuple[str, ...]:
        return self._sandbox.guarantees


class BorrowedToolbox(_Borrowed):
    """Implements core.ports.Toolbox."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self.call = toolbox.call

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._toolbox.specs


@dataclass(frozen=True, slots=True)
class SubAgents:
    """`prompt` and `tools` are those of a sub-bot; `tools` its built-in actions, beside the toolboxes of `parts`."""

    boss: RunStarted
    parts: Dependencies
    prompt: str
    tools: tuple[str, ...]

    async def do(self, task: SubTask, account: Account, add: AddEvent) -> Observation:
        """The sub-bot's answer. Asked for more turns than are left, or too few, it is not begun."""
        left = self._turns_left(account)
        turns = min(task.max_turns or DEFAULT_TURNS, DEFAULT_TURNS if left is None else left)
        if task.max_turns is not None and left is not None and task.max_turns > left:
            return ToolResult(status="error", text=f"{task.max_turns} turns were asked for and only {left} are left")
        if turns < LEAST_TURNS:
            return ToolResult(status="error", text=f"{turns} turns are too few for a helper: do it yourself or finish")
        run_id, clock = await self._new_id(), self.parts.clock
        started = self.boss.model_copy(
            update={
                "at": clock.now(),
                "run_id": run_id,
                "task": task.task,
                "boss": self.boss.run_id,
                "budget": Budget(max_turns=turns, timeout_s=0.0, max_tokens=0, max_cost=0.0),
                "system_prompt": self.prompt,
                "actions": self.tools,
                "check": None,
                "used": Usage(),
            }
        )
        await add(SubRunStarted(at=clock.now(), run_id=run_id, task=task.task))
        finished = await self._run(started, account)
        ended = SubRunFinished(
            at=clock.now(), run_id=run_id, status=finished.status, turns=finished.turns, usage=finished.usage
        )
        account.shares.clear()  # from here on the boss's own record tells what it has used
        await add(ended)
        if finished.status != "done":
            why = f"{finished.status} ({finished.reason}) {finished.detail}".strip()
            return ToolResult(status="error", text=f"the helper came to no answer: {why}")
        return ToolResult(status="success", text=f"The helper says: {finished.answer}")

    async def _run(self, started: RunStarted, account: Account) -> RunFinished:
        parts = replace(
            self.parts,
            model=BorrowedModel(self.parts.model),
            sandbox=BorrowedSandbox(self.parts.sandbox),
            tools=self.tools,
            toolboxes=tuple(BorrowedToolbox(box) for box in self.parts.toolboxes),
            sub_agents=None,
            reviewer=None,
            snapshots=None,
            on_event=None,
            on_text=None,
            shared=account,
            bot=Bot(),
        )
        async with parts.store.driving(started.run_id):
            return await run(started, parts)

    async def _new_id(self) -> str:
        """`BOSS.1`, `BOSS.2`, ...: who its boss is, is seen."""
        number = 1
        while await self.parts.store.length(f"{self.boss.run_id}.{number}"):
            number += 1
        return f"{self.boss.run_id}.{number}"

    def _turns_left(self, account: Account) -> int | None:
        """Of the boss and all above it; None when nothing bounds them. One is kept for the boss's own end."""
        now = self.parts.clock.now()
        bounds = []
        above: Account | None = account
        while above is not None:
            if above.budget.max_turns:
                bounds.append(above.budget.max_turns - above.spent(now).turns - 1)
            above = above.parent
        return min(bounds, default=None)
