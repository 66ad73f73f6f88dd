"""The bot port: what drives a run once its sandbox and its model are there.

Hooks watch one loop; a bot is more: it runs the loop of run.py once (the plain Bot), several times, or not at all. All
that it does goes on record before it takes effect, as everything else in a run.
"""

from typing import TYPE_CHECKING

from stockade.core.events import RunStarted
from stockade.loop.ending import Ending
from stockade.loop.hooks import Hook

if TYPE_CHECKING:  # it has the run's parts, and one of them is the bot
    from stockade.loop.run_context import RunContext


class Bot:
    """Drives a run. This one is the plain loop; a bot that is more overrides what it needs. One object may drive many
    runs, also at once, unless its maker says otherwise.
    """

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
