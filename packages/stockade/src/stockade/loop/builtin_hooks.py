"""The hooks that every run has: unreadable answers, budget, the check, approval."""

import shlex

from stockade.core.actions import Action, Finish
from stockade.core.budget import unpriced
from stockade.core.events import StopReason
from stockade.core.messages import Sampling
from stockade.core.ports import Approver
from stockade.loop.hooks import AddMessage, EndRun, Hook, HookContext, Refuse, SendBack
from stockade.loop.verdict import MAX_EQUAL_FAILURES

MAX_UNREADABLE, MAX_UNREADABLE_WITHOUT_AN_END = 3, 20
WARMER_UNREADABLE = 0.4
WARMEST = 1.0
DRY = 0.8
_MAX_ANSWER_CHARS = 20_000
"""As a shell's word it may grow to five times as many bytes, and Linux has room for 128 KiB."""
_BOUNDS: dict[str, StopReason] = {"turns": "turns", "time": "time", "tokens": "tokens", "cost": "cost"}


class UnreadableAnswers(Hook):
    """Ends the run after so many answers in a row that held no action. A model on this machine is sampled warmer then:
    a small one goes on in the same words otherwise.
    """

    name = "unreadable_answers"
    timeout_s = None

    async def before_turn(self, ctx: HookContext) -> EndRun | None:
        most = MAX_UNREADABLE if ctx.started.autonomy is None else MAX_UNREADABLE_WITHOUT_AN_END
        if (count := ctx.state.unreadable) < most:
            return None
        return EndRun("stopped", "unreadable", f"the model made no tool call {count} times in a row")

    def sampling(self, ctx: HookContext, sampling: Sampling) -> Sampling:
        count, model = ctx.state.unreadable % MAX_UNREADABLE, ctx.state.model
        if count and ctx.started.options.get("smart_model"):
            return sampling.model_copy(update={"smart": True})
        return (
            warmer(sampling, WARMER_UNREADABLE * count, DRY)
            if count and model is not None and model.local
            else sampling
        )


def warmer(base: Sampling, extra: float, dry: float = 0.0) -> Sampling:
    """`base` with a higher temperature, at most 1 or what it was, and a penalty of `dry` on going on as before."""
    before = base.temperature or 0.0
    update: dict[str, float] = {"temperature": max(before, min(WARMEST, before + extra))}
    if dry:
        update["dry_multiplier"] = max(base.dry_multiplier or 0.0, dry)
    return base.model_copy(update=update)


class BudgetLimits(Hook):
    """Ends the run when a bound is reached or cannot be kept; the bot is told twice before, unless it has no end."""

    name = "budget"
    timeout_s = None

    async def before_turn(self, ctx: HookContext) -> AddMessage | EndRun | None:
        now, model = ctx.clock.now(), ctx.state.model
        if ctx.account.budget.max_cost and model is not None and not model.priced:
            return EndRun("failed", "usage", unpriced(model.name))  # some servers tell it only when they are asked
        if (bound := ctx.account.exhausted(now)) is not None:
            return EndRun("stopped", _BOUNDS[bound.split(":")[0]], bound)
        warning = ctx.account.warning(now, ctx.state.warnings) if ctx.started.autonomy is None else None
        return AddMessage(warning) if warning is not None else None


class Check(Hook):
    """The commands of `--check` decide whether a finish stands. The bot is shown a failure and may go on; three equal
    ones, or three on the same files, end the run.
    """

    name = "check"
    timeout_s = None

    async def before_finish(self, ctx: HookContext, finish: Finish) -> SendBack | EndRun | None:
        for command in ctx.started.check:
            if not (await ctx.check(command)).passed:
                if ctx.state.equal_failures >= MAX_EQUAL_FAILURES:
                    return EndRun("done", "check_failed", "the check does not pass")
                return SendBack("")
        return None


class Score(Hook):
    """Runs `command` once when the bot is done, with its answer in $ANSWER; the bot is told nothing."""

    name = "score"
    timeout_s = None

    def __init__(self, command: str) -> None:
        self.command = command

    async def before_finish(self, ctx: HookContext, finish: Finish) -> EndRun | None:
        if finish.gave_up:
            return None
        answer = finish.answer.replace("\0", "")[:_MAX_ANSWER_CHARS]
        done = await ctx.check(f"export ANSWER={shlex.quote(answer)}\n{self.command}")
        return None if done.passed else EndRun("done", "check_failed", "the score's command does not succeed")


class PlainWords(Hook):
    """Before its first action, a model that nobody knows is asked once whether its plain words are meant as its answer.

    Only where no user is there to see and answer them.
    """

    name = "plain_words"
    timeout_s = None

    async def before_finish(self, ctx: HookContext, finish: Finish) -> SendBack | None:
        state = ctx.state
        unknown = state.model is None or state.model.small is None
        if not ctx.spoken or ctx.attended or state.done or state.checked or not unknown or _said(ctx, self.name):
            return None
        return SendBack("You called no tool. Call one to act, or call finish with your answer.")


class Approval(Hook):
    """Asks somebody before an action is done: a user, or rules."""

    name = "approval"
    timeout_s = None

    def __init__(self, approver: Approver) -> None:
        self.approver = approver

    async def before_action(self, ctx: HookContext, action: Action) -> Refuse | None:
        reason = await self.approver.judge(action)
        return Refuse(reason, by="user") if reason is not None else None


def _said(ctx: HookContext, name: str) -> bool:
    return any(one.source == name for one in ctx.state.injected)
