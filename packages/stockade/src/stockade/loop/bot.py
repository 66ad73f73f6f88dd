"""The bot port: what drives a run once its sandbox and its model are there.

Hooks watch one loop; a bot is more: it runs the loop of run.py once (the plain Bot), several times, or not at all. All
that it does goes on record before it takes effect, as everything else in a run.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from stockade.core.events import RunEvent, RunStarted
from stockade.core.messages import ModelAnswer, ModelRequest
from stockade.core.policy import Policy
from stockade.core.ports import OnProgress
from stockade.loop.ending import Ending
from stockade.loop.hooks import Hook

if TYPE_CHECKING:  # it has the run's parts, and one of them is the bot
    from stockade.loop.run_context import RunContext


@dataclass(frozen=True, slots=True)
class Setup:
    """A run that is about to begin, as its bot has it. `started` is its first event as it will be on record, the prompt
    of the bot's role in it. `ask`: a question to the model, the fast one where there is one; secrets are hidden from
    it. `note` and `on_progress` are for the user.
    """

    started: RunStarted
    ask: Callable[[ModelRequest], Awaitable[ModelAnswer]]
    note: Callable[[str], None]
    on_progress: OnProgress


class Bot:
    """Drives a run. This one is the plain loop; a bot that is more overrides what it needs. One object may drive many
    runs, also at once, unless its maker says otherwise. What it was made with and needs later it puts on record in
    `begin`: a run that goes on is driven by the bot of that name as it is registered.
    """

    loops: ClassVar[bool] = True
    """Whether it runs the loop: one that never does has no tools and no hooks, and its files are in no snapshots."""

    def policy(self, policy: Policy) -> Policy:
        """What its sandbox has, beside what the user gave."""
        return policy

    async def begin(self, setup: Setup) -> RunStarted:
        """The first event of a new run as it shall be. UsageError, and the run does not begin."""
        return setup.started

    def at_once(self, started: RunStarted) -> int:
        """How many questions it asks at the same time: a local server keeps a place for each."""
        return 1

    def check_resume(self, started: RunStarted, changed: Collection[str], *, done: bool) -> None:
        """UsageError where the run cannot go on. `changed`: of `task`, `check`, `model` ... what is another one from
        now on; `done`: it came to its end.
        """

    def facts(self, events: Sequence[RunEvent]) -> dict[str, Any]:
        """What the last line of --json tells beside the run's end. Blocks."""
        return {}

    def told(self, started: RunStarted) -> tuple[str, ...]:
        """Paragraphs for the opening of its prompt, behind its role; `started` has no prompt yet."""
        return ()

    def hooks(self, started: RunStarted) -> tuple[Hook, ...]:
        """Its own, beside those of every run; their names are on record."""
        return ()

    async def run(self, ctx: "RunContext") -> Ending:
        """From the start, or from where the record ends, to the run's ending.

        Keeps to `ctx.account` and to the person's pause. Raised may be what core.errors has: the run ends by its name.
        """
        return await ctx.loop()
