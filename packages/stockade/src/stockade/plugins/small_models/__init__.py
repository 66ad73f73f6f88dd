"""Help for models of 4 B parameters or fewer, as one hook (docs/small-models.md).

It refuses a command once that surely does something else than what was meant, with the command that does it. All of it
is facts, on record under the rule's name, a bounded number of times a task; it is silent on work that is right. What
the bot does a second time is done as it is.

Told afterwards a small model goes on from what it has spoiled; told before, it runs what is proposed.
"""

from stockade.core.actions import Action, Refused, Shell
from stockade.extend import Hook, HookContext, Refuse
from stockade.plugins.small_models.counts import miscount
from stockade.plugins.small_models.separator import separator
from stockade.plugins.small_models.task import Task

MAX_REFUSALS = 3


class SmallModels(Hook):
    """See the module."""

    name = "small_models"

    async def before_action(self, ctx: HookContext, action: Action) -> Refuse | None:
        if not isinstance(action, Shell) or ctx.count("refusal") >= MAX_REFUSALS:
            return None
        refused = [one for one in ctx.state.done if isinstance(one.observation, Refused)]
        if any(one.step.action == action for one in refused):
            return None
        found = await separator(ctx, action.command) or miscount(Task(ctx.started.task), action.command)
        return Refuse(f"{found[1]} Run this instead: {found[2]}", rule=found[0]) if found is not None else None
