"""Implements core.ports.SubAgentRunner: a sub-bot works in the sandbox of its boss, on its budget.

It has a record and a conversation of its own, sees nothing of its boss's, and gives back its answer. It has the tools
of its boss's run, which are open already, and no sub-bots.
"""

from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from stockade.core.actions import Observation, SubTask, ToolResult
from stockade.core.budget import Account, Budget
from stockade.core.events import RunFinished, RunStarted, SubRunFinished, SubRunStarted
from stockade.core.messages import Usage
from stockade.core.ports import AddEvent, Model, Sandbox
from stockade.loop.run import run
from stockade.loop.run_context import Bot, Dependencies

T = TypeVar("T")
DEFAULT_TURNS = 15
LEAST_TURNS = 2
"""One to act and one to finish."""
NAME = "helper"
"""Of one that its boss gave no name."""


class _Borrowed:
    """Something of the boss, which enters and leaves it; `own` are attributes that the borrower has for itself."""

    def __init__(self, lent: object, **own: object) -> None:
        self._lent = lent
        vars(self).update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lent, name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def borrowed(lent: T, **own: object) -> T:
    """A part of a run that is entered already, as one that can be entered."""
    return cast(T, _Borrowed(lent, **own))


def borrowed_sandbox(sandbox: Sandbox) -> Sandbox:
    """Its folders are reviewed with the boss's run, so it has no layers of its own."""
    return borrowed(sandbox, layers=(), on_network=None, host_pid=None)


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
        model = self.boss.options.get(f"{task.model}_model") if task.model else self.boss.model
        if not model:
            return ToolResult(status="error", text=f"there is no {task.model} model in this run: do without")
        run_id, clock = await self._new_id(), self.parts.clock
        started = self.boss.model_copy(
            update={
                "at": clock.now(),
                "run_id": run_id,
                "task": task.task,
                "boss": self.boss.run_id,
                "bot": task.name or NAME,
                "model": str(model),
                "sampling": self.boss.sampling.model_copy(update={"smart": task.model == "smart" or None}),
                "budget": Budget(max_turns=turns, timeout_s=0.0, max_tokens=0, max_cost=0.0),
                "system_prompt": self.prompt,
                "actions": self.tools,
                "check": (),
                "protect": (),
                "output_schema": None,
                "used": Usage(),
            }
        )
        await add(SubRunStarted(at=clock.now(), run_id=run_id, task=task.task))
        fast = getattr(self.parts.model, "fast", None) if task.model == "fast" else None
        finished = await self._run(started, account, borrowed(fast or self.parts.model))
        ended = SubRunFinished(
            at=clock.now(), run_id=run_id, status=finished.status, turns=finished.turns, usage=finished.usage
        )
        account.shares.clear()  # from here on the boss's own record tells what it has used
        await add(ended)
        if finished.status != "done":
            why = f"{finished.status} ({finished.reason}) {finished.detail}".strip()
            return ToolResult(status="error", text=f"the helper came to no answer: {why}")
        return ToolResult(status="success", text=f"The helper says: {finished.answer}")

    async def _run(self, started: RunStarted, account: Account, model: Model) -> RunFinished:
        parts = replace(
            self.parts,
            model=model,
            sandbox=borrowed_sandbox(self.parts.sandbox),
            tools=self.tools,
            toolboxes=tuple(borrowed(box) for box in self.parts.toolboxes),
            sub_agents=None,
            network=None,
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
