"""Help for models of 4 B parameters or fewer, as one hook (docs/small-models.md).

It refuses a command once that surely does something else than what was meant, with the command that does it, and sends
a finish back once for each thing that is plainly not done. All of it is facts, on record under the rule's name, a
bounded number of times a task; it is silent on work that is right. What the bot does a second time is done as it is.
"""

from stockade.core.actions import Action, Finish, Refused, Shell
from stockade.core.messages import Sampling
from stockade.extend import DRY, Hook, HookContext, Refuse, SendBack, warmer
from stockade.plugins.small_models import before, finish

MAX_REFUSALS = 3
MAX_SENT_BACK = 4
LEAST_TURNS = 2
"""What a bot that is sent back needs: one turn to act, one to end."""
WARMER = 0.6


class SmallModels(Hook):
    """See the module."""

    name = "small_models"

    async def before_action(self, ctx: HookContext, action: Action) -> Refuse | None:
        if not isinstance(action, Shell) or ctx.count("refusal") >= MAX_REFUSALS:
            return None
        refused = [one for one in ctx.state.done if isinstance(one.observation, Refused)]
        if any(one.step.action == action for one in refused):
            return None
        found = await before.objection(ctx, action.command)
        return Refuse(found[1], rule=found[0]) if found is not None else None

    async def before_finish(self, ctx: HookContext, finish_: Finish) -> SendBack | None:
        left = ctx.turns_left()
        if ctx.state.checked or ctx.count("message") >= MAX_SENT_BACK or (left is not None and left < LEAST_TURNS):
            return None
        found = await finish.objection(ctx, finish_)
        if found is None:
            return None
        return SendBack(found[1], rule=found[0])

    def sampling(self, ctx: HookContext, sampling: Sampling) -> Sampling:
        """A small model copies its last answer again, whatever it was told: drawn warmer it does not."""
        seen = ctx.state.done[-1].observation if ctx.state.done else None
        again = isinstance(seen, Refused) and seen.rule == before.AGAIN
        said = ctx.state.injected[-1] if ctx.state.injected else None
        again = again or (said is not None and said.turn == ctx.state.turns and said.rule in finish.WARMER_AFTER)
        return warmer(sampling, WARMER, DRY) if again else sampling
