"""The same actions with the same results, over and over: said once, then a named stop.

Everything is compared exactly: the action, and every byte of its result but how long it took. What took its time gave
the world time to change: a command of five seconds or more breaks the row, so a bot may poll a job as often as its
budget allows. One that ran into its time limit does not.
"""

from collections.abc import Sequence

from stockade.core.messages import Sampling
from stockade.loop.hooks import AddMessage, EndRun, Hook, HookContext
from stockade.loop.state import CompletedStep
from stockade_sandbox.results import CommandOutput

SAY_AFTER = 3
"""Equal rounds in a row after which the bot is told."""
DEFAULT_REPEATS = 5
"""Repetitions after which the run is stopped."""
LONGEST_CYCLE = 4
WAITED_S = 5.0


def rounds(done: Sequence[CompletedStep]) -> int:
    """How often the last action, or the last cycle of up to four actions, was done in a row with the same results.

    1 when the last action is new, 0 when nothing was done or the last action took its time.
    """
    best = 1 if done and not _waited(done[-1]) else 0
    for period in range(1, LONGEST_CYCLE + 1):
        same = 0
        while same + period < len(done):
            now, before = done[-1 - same], done[-1 - same - period]
            if now.key != before.key or _waited(now) or _waited(before):
                break
            same += 1
        best = max(best, 1 + same // period if best else 0)
    return best


def _waited(step: CompletedStep) -> bool:
    output = step.observation
    return isinstance(output, CommandOutput) and output.duration_s >= WAITED_S and not output.timed_out


class LoopDetection(Hook):
    """One sentence to the bot after three equal rounds; the end after `repeats` repetitions (0: never), by default the
    run's `loop_repeats`.
    """

    name = "loop_detection"
    timeout_s = None

    def __init__(self, repeats: int | None = None) -> None:
        self.repeats = repeats

    async def before_turn(self, ctx: HookContext) -> AddMessage | EndRun | None:
        of_run = ctx.started.options.get("loop_repeats", DEFAULT_REPEATS)
        repeats: int = of_run if self.repeats is None else self.repeats
        if not repeats:
            return None
        count = rounds(ctx.state.done)
        if count > repeats:
            return EndRun("stopped", "loop", f"the same action gave the same result {count} times in a row")
        if count == min(SAY_AFTER, repeats) and not _just_said(ctx):
            return AddMessage(f"The same action has given the same result {count} times in a row.")
        return None

    def sampling(self, ctx: HookContext, sampling: Sampling) -> Sampling:
        """From there on the stronger model is asked, where the run has one."""
        of_run = ctx.started.options.get("loop_repeats", DEFAULT_REPEATS)
        repeats: int = of_run if self.repeats is None else self.repeats
        smart = ctx.started.options.get("smart_model")
        stuck = smart and repeats and rounds(ctx.state.done) >= min(SAY_AFTER, repeats)
        return sampling.model_copy(update={"smart": True}) if stuck else sampling


def _just_said(ctx: HookContext) -> bool:
    """In the row that is under way: a turn whose answer could not be read asks again at the same place."""
    last = next((one for one in reversed(ctx.state.injected) if one.source == LoopDetection.name), None)
    return last is not None and bool(ctx.state.done) and last.turn > ctx.state.done[-1].turn
