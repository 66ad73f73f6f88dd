"""The Shell bot's hook: its own goal, prompt and sampling from files in its folder; told when it repeats itself.

It lives until its budget is used up or somebody stops it: this hook never ends its run, refuses an action or takes a
tool away (docs/shell.md).
"""

from stockade.core.events import Autonomy, OwnRules
from stockade.core.messages import Sampling
from stockade.loop import own_files
from stockade.loop.hooks import AddMessage, Hook, HookContext
from stockade.loop.loop_detection import rounds

SAY_AFTER = 2
"""Equal rounds in a row after which it is told, and sampled warmer."""
_WARMER_STEP, _MOST_WARM, _LEAST_WARM = 0.15, 1.5, 0.7
_PENALTY_STEP, _MOST_PENALTY, _PENALIZED_TOKENS = 0.25, 2.0, 1024


class ShellBotRules(Hook):
    """`may`: what it may set itself. `folder`: where its own files are, inside."""

    name = "shell_bot"

    def __init__(self, may: Autonomy, folder: str) -> None:
        self.may, self.folder = may, folder

    async def before_turn(self, ctx: HookContext) -> AddMessage | None:
        turn = ctx.state.turns + 1
        files = own_files.OwnFiles(ctx.sandbox, self.folder, self.may, ctx.record.context.window)
        found = await files.read(turn, ctx.clock.now(), ctx.state.own)
        if not _same(found, ctx.state.own):
            await ctx.add(found)
        count = rounds(ctx.state.done)
        told = any(one.source == self.name and one.turn + 1 >= turn for one in ctx.state.injected[-2:])
        if count < SAY_AFTER or told:
            return None
        return AddMessage(f"The same action has given the same result {count} times in a row. Do something else now.")

    def sampling(self, ctx: HookContext, sampling: Sampling) -> Sampling:
        """What it has set itself, unless its answers cannot be read with that; warmer while it repeats itself."""
        state = ctx.state
        if state.own is not None and not state.unreadable:
            sampling = own_files.over(sampling, state.own.sampling)
        count = rounds(state.done)
        if count < SAY_AFTER:
            return sampling
        warm = max(sampling.temperature or 0.0, _LEAST_WARM) + _WARMER_STEP * count
        penalty = (sampling.presence_penalty or 0.0) + _PENALTY_STEP * count
        other = {
            "temperature": max(sampling.temperature or 0.0, min(_MOST_WARM, warm)),
            "presence_penalty": min(_MOST_PENALTY, penalty),
            "repeat_last_n": _PENALIZED_TOKENS,
            "seed": None,
        }
        return sampling.model_copy(update=other)


def _same(now: OwnRules, before: OwnRules | None) -> bool:
    last = before or OwnRules(at=now.at, turn=now.turn)
    return now == last.model_copy(update={"at": now.at, "turn": now.turn})
