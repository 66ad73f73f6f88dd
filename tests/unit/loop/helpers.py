"""A run of the real loop on fakes."""

import subprocess
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from anyio import to_thread

from stockade.answers.json_schema import JsonAnswers
from stockade.core.budget import Budget
from stockade.core.errors import ActionFailed, StockadeError
from stockade.core.events import RunEvent, RunFinished, RunStarted
from stockade.core.messages import ModelAnswer, Sampling
from stockade.core.ports import Approver, Clock, ExecResult, Model
from stockade.loop.builtin_hooks import Approval, BudgetLimits, Check, PlainWords, UnreadableAnswers
from stockade.loop.loop_detection import LoopDetection
from stockade.loop.run import Dependencies, run
from stockade.testing import FixedClock, MemorySandbox, MemoryStore, ScriptedModel
from stockade_sandbox.policy import Policy

HOOKS = (UnreadableAnswers(), BudgetLimits(), LoopDetection(), Check(), PlainWords())
TOOLS = ("shell", "read_file", "write_file", "edit_file", "finish")


def started(task: str = "do it", check: str | None = None, budget: Budget | None = None) -> RunStarted:
    return RunStarted(
        at=1_000_000.0,
        version="0",
        run_id="r1",
        task=task,
        bot="writing",
        model="scripted/x",
        answers="json",
        sandbox="memory",
        policy=Policy(),
        budget=budget or Budget(),
        sampling=Sampling(temperature=0.0),
        system_prompt="You are a bot.",
        check=check,
    )


class Bench:
    """Everything a test looks at after a run."""

    def __init__(
        self,
        answers: Iterable[str | ModelAnswer | StockadeError],
        sandbox: MemorySandbox | None = None,
        window: int | None = None,
        clock: Clock | None = None,
        approver: Approver | None = None,
        model: Model | None = None,
    ) -> None:
        self.script = ScriptedModel(answers, window)
        self.sandbox = sandbox or MemorySandbox()
        self.store = MemoryStore()
        self.shown: list[RunEvent] = []
        self.parts = Dependencies(
            model=model or self.script,
            protocol=JsonAnswers(),
            sandbox=self.sandbox,
            store=self.store,
            clock=clock or FixedClock(),
            tools=TOOLS,
            approver=approver,
            hooks=(*HOOKS, *([Approval(approver)] if approver is not None else [])),
            on_event=self.shown.append,
        )

    async def run(self, first: RunStarted | None = None) -> RunFinished:
        finished = await run(first or started(), self.parts)
        events = await self.store.events("r1")
        assert events == self.shown
        assert events[-1] == finished
        return finished

    def types(self) -> list[str]:
        return [event.type for event in self.shown]


class HereSandbox(MemorySandbox):
    """Runs programs in a folder of this machine; its shell says nothing and does nothing."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    async def exec(
        self, argv: Iterable[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        run: Callable[..., subprocess.CompletedProcess[bytes]] = subprocess.run
        call = partial(run, list(argv), input=stdin, cwd=self.folder, capture_output=True, check=False)
        done = await to_thread.run_sync(call)  # one that does not read its input is no error
        cut = max(0, len(done.stdout) - max_output_bytes)
        out = done.stdout[:max_output_bytes]
        return ExecResult(exit_code=done.returncode, stdout=out, stderr=done.stderr, truncated_bytes=cut)


class DeafSandbox(MemorySandbox):
    """Cannot run anything beside its shell."""

    async def exec(
        self, argv: Iterable[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        raise ActionFailed("no")
