"""Implements core.ports.SubAgentRunner: a sub-bot works in the sandbox of its boss, on its budget.

It has a record and a conversation of its own, sees nothing of its boss's, and gives back its answer. It has the tools
of its boss's run, which are open already, and no sub-bots.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, cast, runtime_checkable

import anyio

from stockade.core.actions import Observation, SubTask, ToolResult
from stockade.core.budget import Account, Budget, Spent
from stockade.core.events import RunFinished, RunStarted, SubRunFinished, SubRunStarted
from stockade.core.messages import Usage
from stockade.core.ports import AddEvent, Model, Sandbox
from stockade.loop.run import run
from stockade.loop.run_context import Bot, Dependencies
from stockade_sandbox.port import Shells

T = TypeVar("T")
DEFAULT_TURNS = 15
LEAST_TURNS = 2
"""One to act and one to finish."""
NAME = "helper"
"""Of one that its boss gave no name."""
UNBOUNDED = Budget(max_turns=0, timeout_s=0.0)


@runtime_checkable
class HasFast(Protocol):
    """A model with a faster one beside it."""

    fast: Model | None


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


def borrowed_sandbox(sandbox: Sandbox, **own: object) -> Sandbox:
    """Its folders are reviewed with the boss's run, so it has no layers of its own."""
    return borrowed(sandbox, layers=(), on_network=None, host_pid=None, **own)


@dataclass(frozen=True, slots=True)
class SubAgents:
    """`prompt` and `tools` are those of a sub-bot; `tools` its built-in actions, beside the toolboxes of `parts`."""

    boss: RunStarted
    parts: Dependencies
    prompt: str
    tools: tuple[str, ...]

    async def do(self, task: SubTask, account: Account, add: AddEvent) -> Observation:
        """What the sub-bots say. Asked for more turns than are left, or too few, none is begun."""
        words = (task.task, *task.in_parallel)
        left = self._turns_left(account)
        share = None if left is None else left // len(words)
        turns = min(task.max_turns or DEFAULT_TURNS, DEFAULT_TURNS if share is None else share)
        if task.max_turns is not None and share is not None and task.max_turns > share:
            each = " for each" if task.in_parallel else ""
            return ToolResult(
                status="error", text=f"{task.max_turns} turns were asked for and only {share} are left{each}"
            )
        if turns < LEAST_TURNS:
            return ToolResult(status="error", text=f"{turns} turns are too few for a helper: do it yourself or finish")
        model = self.boss.options.get(f"{task.model}_model") if task.model else self.boss.model
        if not model:
            return ToolResult(status="error", text=f"there is no {task.model} model in this run: do without")
        asked = self.parts.model
        if task.model == "fast" and isinstance(asked, HasFast) and asked.fast is not None:
            asked = asked.fast
        begun = []
        for number, run_id in enumerate(await self._new_ids(len(words))):
            name = f"{task.name or NAME}-{number + 1}" if task.in_parallel else task.name or NAME
            begun.append(self._started(run_id, words[number], name, str(model), turns, smart=task.model == "smart"))
        helpers = _Helpers(self.parts, self.tools, account, add, asked)
        results = await helpers.side_by_side(begun) if self._may_at_once(begun) else await helpers.in_turn(begun)
        done = all(one.status == "done" for one in results)
        told = [_told(one, begun[number].bot if task.in_parallel else "") for number, one in enumerate(results)]
        return ToolResult(status="success" if done else "error", text="\n\n".join(told))

    def _started(self, run_id: str, task: str, name: str, model: str, turns: int, *, smart: bool) -> RunStarted:
        return self.boss.model_copy(
            update={
                "at": self.parts.clock.now(),
                "run_id": run_id,
                "task": task,
                "boss": self.boss.run_id,
                "bot": name,
                "model": model,
                "sampling": self.boss.sampling.model_copy(update={"smart": smart or None}),
                "budget": Budget(max_turns=turns, timeout_s=0.0, max_tokens=0, max_cost=0.0),
                "system_prompt": self.prompt,
                "actions": self.tools,
                "check": (),
                "protect": (),
                "output_schema": None,
                "used": Usage(),
            }
        )

    def _may_at_once(self, begun: Sequence[RunStarted]) -> bool:
        """Each needs a shell of its own, and nobody can be asked two things at once."""
        asks = self.parts.approver is not None or "ask_user" in self.tools
        return len(begun) > 1 and not asks and isinstance(self.parts.sandbox, Shells)

    async def _new_ids(self, count: int) -> list[str]:
        """`BOSS.1`, `BOSS.2`, ...: who its boss is, is seen."""
        number, found = 1, list[str]()
        while len(found) < count:
            if not await self.parts.store.length(f"{self.boss.run_id}.{number}"):
                found.append(f"{self.boss.run_id}.{number}")
            number += 1
        return found

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


@dataclass(frozen=True, slots=True)
class _Helpers:
    """Drives them, on the boss's `account` and with its parts."""

    parts: Dependencies
    tools: tuple[str, ...]
    account: Account
    add: AddEvent
    model: Model
    adding: anyio.Lock = field(default_factory=anyio.Lock)

    async def in_turn(self, begun: Sequence[RunStarted]) -> list[RunFinished]:
        return [await self._one(started, borrowed_sandbox(self.parts.sandbox)) for started in begun]

    async def side_by_side(self, begun: Sequence[RunStarted]) -> list[RunFinished]:
        """Each in a shell of its own, of the same sandbox."""
        found: dict[str, RunFinished] = {}

        async def one(started: RunStarted) -> None:
            assert isinstance(self.parts.sandbox, Shells)
            async with self.parts.sandbox.shell() as shell:
                own = borrowed_sandbox(self.parts.sandbox, run=shell.run, exec=shell.exec)
                found[started.run_id] = await self._one(started, own)

        try:
            async with anyio.create_task_group() as group:
                for started in begun:
                    group.start_soon(one, started)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [found[started.run_id] for started in begun]

    async def _one(self, started: RunStarted, sandbox: Sandbox) -> RunFinished:
        account, clock = Account(UNBOUNDED, lambda _: Spent(), self.account), self.parts.clock
        await self._add(SubRunStarted(at=clock.now(), run_id=started.run_id, task=started.task))
        parts = replace(
            self.parts,
            model=borrowed(self.model),
            sandbox=sandbox,
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
            ended = await run(started, parts)
        self.account.shares.remove(account)  # from here on the boss's own record tells what it has used
        await self._add(
            SubRunFinished(
                at=clock.now(), run_id=started.run_id, status=ended.status, turns=ended.turns, usage=ended.usage
            )
        )
        return ended

    async def _add(self, event: SubRunStarted | SubRunFinished) -> None:
        async with self.adding:
            await self.add(event)


def _told(finished: RunFinished, name: str) -> str:
    """`name`: of one among several."""
    if finished.status != "done":
        why = f"{finished.status} ({finished.reason}) {finished.detail}".strip()
        return f"{name or 'the helper'} came to no answer: {why}"
    return f"{name or 'The helper'} says: {finished.answer}"
