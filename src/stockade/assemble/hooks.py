"""The hooks of a run, in the order in which they are asked."""

from collections.abc import Sequence
from importlib.metadata import entry_points

from stockade.bots.model_profiles import profile_of
from stockade.core.errors import HookFailed, UsageError
from stockade.core.events import RunStarted
from stockade.core.messages import ModelInfo
from stockade.core.ports import Approver
from stockade.loop.builtin_hooks import Approval, BudgetLimits, Check, PlainWords, UnreadableAnswers
from stockade.loop.hooks import Hook
from stockade.loop.loop_detection import DEFAULT_REPEATS, LoopDetection
from stockade.options import HookCommand
from stockade.plugins.command_hooks import CommandHook
from stockade.plugins.small_models import SmallModels

GROUP = "stockade.hooks"
"""The entry point group of other packages' hooks: a class, or a function without arguments that makes one."""
MOST_UNREADABLE_OF_THE_SHELL_BOT = 20
RESERVED = ("user", "resume", "repair", "rewrite", "fresh start")
"""What else speaks on record under a name."""
BUILT_IN = ("unreadable_answers", "budget", "loop_detection", "shell_bot", "check", "plain_words", "approval")


def hooks_of(
    started: RunStarted,
    info: ModelInfo,
    approver: Approver | None,
    chosen: Sequence[str | HookCommand | Hook] = (),
    own: Sequence[Hook] = (),
) -> tuple[Hook, ...]:
    """Ours, the bot's `own` and the `chosen`: names, commands, or objects. A name with `-` before it leaves it out.

    UsageError for a name that no package has, or one that cannot be left out.
    """
    without = {one[1:] for one in chosen if isinstance(one, str) and one.startswith("-")}
    wanted = [one for one in chosen if not isinstance(one, str) or not one.startswith("-")]
    if fixed := without & {"approval", "budget", "check"}:
        raise UsageError(f"the hook {min(fixed)} is part of every run and cannot be left out")
    hooks: list[Hook]
    if started.autonomy is not None:
        hooks = [UnreadableAnswers(MOST_UNREADABLE_OF_THE_SHELL_BOT), BudgetLimits(warns=False)]
    else:
        repeats = started.options.get("loop_repeats", DEFAULT_REPEATS)
        hooks = [UnreadableAnswers(), BudgetLimits(), LoopDetection(repeats), Check(), PlainWords()]
        small = started.options.get("small_models")
        if small or (small is None and SmallModels.name in profile_of(info).hooks) or SmallModels.name in wanted:
            hooks.append(SmallModels())
    hooks.extend(own)
    for number, one in enumerate(wanted):
        again = isinstance(one, str) and one in wanted[:number]
        if not again and one not in (SmallModels.name, *BUILT_IN, *without):
            hooks.append(_made(one))
    if approver is not None:
        hooks.append(Approval(approver))
    names = [hook.name for hook in hooks]
    for name in names:
        if names.count(name) > 1 or name in RESERVED:
            raise UsageError(f"two hooks have the name {name!r}", "give each a name of its own: docs/hooks.md")
    return tuple(hook for hook in hooks if hook.name not in without)


def _made(one: str | HookCommand | Hook) -> Hook:
    if isinstance(one, Hook):
        return one
    if isinstance(one, HookCommand):
        return CommandHook(one.name, one.on, one.command, one.timeout)
    for found in entry_points(group=GROUP, name=one):
        try:
            hook = found.load()()
        except Exception as error:
            words = f"the hook {one!r} of {found.value} cannot be made: {type(error).__name__}: {error}"
            raise HookFailed(words, f"mend it, or run without it: -o hooks=-{one}") from error
        if not isinstance(hook, Hook):
            raise UsageError(f"the hook {one!r} of {found.value} is no stockade.loop.hooks.Hook")
        return hook
    raise UsageError(f"there is no hook {one!r}", "a name, or a command in stockade.toml: docs/hooks.md")
