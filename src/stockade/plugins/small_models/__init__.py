"""Help for models of 4 B parameters or fewer, as one hook."""

from stockade.core.actions import Observation, Step
from stockade.loop.hooks import AddWords, Hook, HookContext

ASK = "Is the task done? If not, what is still to do?"
"""Behind every observation: else a small model thinks its first words again (docs/small-models.md)."""


class SmallModels(Hook):
    """Only adds words, refuses an action once, or sends a finish back; each a bounded number of times."""

    name = "small_models"

    async def after_action(self, ctx: HookContext, step: Step, observation: Observation) -> AddWords | None:
        return AddWords(ASK, rule="ask")
