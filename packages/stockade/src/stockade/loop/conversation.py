"""A run that goes on in the sandbox that is up: the user has something to say to the bot's last word.

Each answer is the end of the run on record, and what the user says next its resumption, as in another process. So a
crash in between loses nothing: `runs resume` goes on from there, with a new shell.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio

from stockade.core.actions import Unknown
from stockade.core.errors import SandboxDied, SandboxFailed, UsageError
from stockade.core.events import (
    ActionFinished,
    ChangesApplied,
    ChangesUndone,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
)
from stockade.core.messages import Image
from stockade.core.ports import Clock, Sandbox
from stockade.loop.ending import FORESEEN, INTERRUPTED, Ending, close, failed
from stockade.loop.pause import Pause
from stockade.loop.record import Record
from stockade_sandbox.port import Freezable, Interruptible

if TYPE_CHECKING:
    from stockade.loop.run_context import Dependencies

Next = Callable[[RunFinished], Awaitable[Sequence[RunEvent]]]
"""Shows the user how the bot has ended; what goes on record then, and is asked again until that is a RunResumed;
nothing: the run is over."""
Do = Callable[[RunStarted], Awaitable[Ending]]
DECIDED: dict[type[RunEvent], str] = {
    ChangesApplied: "Your changes were accepted: they are in the user's folder now.",
    ChangesUndone: "The user took what was applied out of their folder again; here it is still as you left it.",
}
"""What became of its changes, in words for a bot whose sandbox is up."""
_WHY = "the user interrupted this command; the shell is as it was before it"


@dataclass(slots=True)
class Conversation:
    """`still`: nothing in the sandbox runs while the user is asked, where it can be made to stand still: what is
    reviewed is what is there.
    """

    next: Next
    still: bool = False
    scope: anyio.CancelScope | None = None
    """Of the task that is being done."""
    frozen: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def interrupt(self, pause: Pause, sandbox: Sandbox) -> None:
        """What the bot does ends, a command with what it has written by now; the sandbox and its shell stay."""
        pause.stop("interrupted")
        with suppress(SandboxDied):
            if isinstance(sandbox, Interruptible) and await sandbox.interrupt(_WHY):
                return
        if self.scope is not None:
            self.scope.cancel()

    async def hold(self, sandbox: Sandbox) -> bool:
        """Whether it stands still now."""
        if self.still and isinstance(sandbox, Freezable):
            with suppress(UsageError, SandboxFailed):
                await self.frozen.enter_async_context(sandbox.frozen())
                return True
        return False


async def go_on(talk: Conversation | None) -> None:
    """Nothing stands still any more, if it did."""
    if talk is not None:
        await talk.frozen.aclose()


async def lead(started: RunStarted, parts: "Dependencies", record: Record, do: Do) -> Ending:
    """Task after task, until the user has no other; how the last one ended. `do` does one to its ending."""
    if (talk := parts.conversation) is None:
        return await do(started)
    while True:
        ending = await _done(talk, started, parts.clock, record, do)
        held = await talk.hold(parts.sandbox)
        finished = await close(record, parts.reviewer, parts.clock, ending, sealed=held)
        while events := await talk.next(finished):
            await record.add(*events)
            if isinstance(events[-1], RunResumed):
                break
        else:
            return ending
        await go_on(talk)
        parts.pause.stopped = None
        started = effective(started, events[-1])


async def _done(talk: Conversation, started: RunStarted, clock: Clock, record: Record, do: Do) -> Ending:
    """A failure of the sandbox ends all of it, any other is said and the user may go on."""
    with anyio.CancelScope() as talk.scope:
        try:
            return await do(started)
        except SandboxFailed:
            raise
        except FORESEEN as error:
            return failed(error)
        finally:
            talk.scope = None
    if (flight := record.state.in_flight) is not None:
        cut = ActionFinished(at=clock.now(), turn=flight.turn, step=flight.step, observation=Unknown())
        await record.add(cut)
    return INTERRUPTED


def follow_up(
    started: RunStarted, hooks: Sequence[str], task: str, version: str, at: float, images: tuple[Image, ...] = ()
) -> RunResumed:
    """The user's next task in the same sandbox, with a budget of its own and the check that the run has."""
    return RunResumed(
        at=at, version=version, task=task, model=started.model, sandbox=started.sandbox, budget=started.budget,
        check=started.check, hooks=tuple(hooks), live=True, images=images, network=started.policy.network,
    )  # fmt: skip


def effective(started: RunStarted, resumed: RunResumed) -> RunStarted:
    """What holds for the rest of the run."""
    policy = started.policy if resumed.network is None else replace(started.policy, network=resumed.network)
    schema = started.output_schema if resumed.output_schema is None else resumed.output_schema or None
    changed = {"budget": resumed.budget, "check": resumed.check, "model": resumed.model, "policy": policy,
               "output_schema": schema}  # fmt: skip
    return started.model_copy(update={**changed, "task": resumed.task or started.task})
