"""The hooks of a run, in the order in which they are asked, and who may say no in it: `--approve`, and what the user
has allowed for always in that place.
"""

import os
from collections.abc import Sequence
from os.path import expanduser
from pathlib import Path
from typing import Any

from stockade.answers.output_schema import OutputSchema
from stockade.approval.approver import Authoriser
from stockade.approval.network import NetworkAsker
from stockade.approval.remembered import ApprovalFile, Remembered
from stockade.approval.rules import RuleSet, built_in, with_own
from stockade.bots.model_profiles import profile_of
from stockade.core.errors import HookFailed, UsageError, did_you_mean
from stockade.core.events import RunStarted
from stockade.core.messages import ModelInfo
from stockade.core.ports import Approver
from stockade.core.secrets import Redactor
from stockade.loop.builtin_hooks import Approval, Score
from stockade.loop.hooks import Hook
from stockade.loop.loop_detection import LoopDetection
from stockade.loop.pause import Pause
from stockade.loop.run_context import Bot
from stockade.paths import MAX_FILE_BYTES, read_toml, state_dir
from stockade.plugins.command_hooks import CommandHook
from stockade.runtime import registry
from stockade.runtime.sandboxes import is_far, is_sealed
from stockade.runtime.spec import HookCommand
from stockade_sandbox.overlay.safe_fs import birth_ns, filesystem

GROUP: registry.Group = "stockade.hooks"
"""Each is a class, or a function without arguments that makes one."""
RESERVED = ("user", "resume", "repair", "rewrite", "fresh start")
"""What else speaks on record under a name."""
OF_EVERY_RUN = ("unreadable_answers", "budget")
OF_A_TASK = ("loop_detection", "check", "plain_words")
BUILT_IN = (*OF_EVERY_RUN, *OF_A_TASK, "shell_bot", "score", "approval", OutputSchema.name)
SMALL_MODELS = "small_models"


def hooks_of(
    started: RunStarted,
    info: ModelInfo,
    approver: Approver | None,
    chosen: Sequence[str | HookCommand | Hook] = (),
    bot: Bot | None = None,
) -> tuple[Hook, ...]:
    """Ours, where the `bot` runs the loop that they watch; its own, and the `chosen`: names, commands, or objects. A
    name with `-` before it leaves it out.

    UsageError for a name that no package has, one that cannot be left out, one of the loop for a bot without it.
    """
    bot = bot or Bot()
    without = {one[1:] for one in chosen if isinstance(one, str) and one.startswith("-")}
    requested = [one for one in chosen if f"-{_name(one)}" not in chosen and not _name(one).startswith("-")]
    if fixed := without & {"approval", "budget", "check", "score", OutputSchema.name}:
        raise UsageError(f"the hook {min(fixed)} is part of every run and cannot be left out")
    hooks: list[Hook]
    if not bot.loops:
        if idle := [one for one in requested if one in (SMALL_MODELS, *BUILT_IN)]:
            what = f"the hook {idle[0]} watches the loop, and the bot {started.bot} has a way of its own to work"
            raise UsageError(what, "leave it out, or take another bot")
        hooks = []
    elif started.autonomy is not None:
        hooks = [*map(_made, OF_EVERY_RUN)]
    else:
        small = started.options.get("small_models")
        helped = small or (small is None and SMALL_MODELS in profile_of(info).hooks) or SMALL_MODELS in requested
        hooks = [*map(_made, (*OF_EVERY_RUN, *OF_A_TASK, *((SMALL_MODELS,) if helped else ())))]
    if started.output_schema is not None:
        hooks.insert(0, OutputSchema())
    for hook in hooks:
        if isinstance(hook, LoopDetection):  # a run may go on with another number than it began with
            hook.repeats = started.options.get("loop_repeats")
    hooks.extend(bot.hooks(started))
    for number, one in enumerate(requested):
        again = isinstance(one, str) and one in requested[:number]
        if not again and one not in (SMALL_MODELS, *BUILT_IN):
            hooks.append(_made(one))
    if command := started.options.get("score"):
        hooks.append(Score(str(command)))
    if approver is not None:
        hooks.append(Approval(approver))
    names = [hook.name for hook in hooks]
    for name in names:
        if names.count(name) > 1 or name in RESERVED:
            raise UsageError(f"two hooks have the name {name!r}", "give each a name of its own: docs/hooks.md")
    return tuple(hook for hook in hooks if hook.name not in without)


def _name(one: str | HookCommand | Hook) -> str:
    return one if isinstance(one, str) else one.name


def _made(one: str | HookCommand | Hook) -> Hook:
    if isinstance(one, Hook):
        return one
    if isinstance(one, HookCommand):
        return CommandHook(one.name, one.on, one.command, one.timeout)
    if one not in (known := registry.names(GROUP)):
        hint = did_you_mean(one, known, f"there are {', '.join(known)}; a command of yours: docs/hooks.md")
        raise UsageError(f"there is no hook {one!r}", hint)
    try:
        hook = registry.make(GROUP, one)
    except UsageError as error:
        raise HookFailed(error.message, f"mend it, or run without it: -o hooks=-{one}") from error
    if not isinstance(hook, Hook):
        raise registry.wrong(GROUP, one, "is no stockade.loop.hooks.Hook")
    return hook


def approval_file() -> ApprovalFile:
    """Where the user's approvals are kept."""
    return ApprovalFile(state_dir() / "approvals.jsonl")


def make_approver(started: RunStarted, pause: Pause, redactor: Redactor) -> Authoriser | None:
    """`ask`: every action but the end is asked about. `rules`: what the table does not call harmless.

    What holds a secret that `redactor` knows is not written down.
    """
    if started.approve == "never" and not started.authorised:
        return None
    rules = RuleSet()
    if started.approve == "rules":
        rules = with_own(started.rules, "the rules on record") if started.rules else built_in()
    made = Authoriser(
        pause, rules, _remembered(started, redactor), every=started.authorised and started.approve != "rules"
    )
    path = started.policy.environment.get("PATH") or ("" if is_sealed(started.sandbox) else os.environ.get("PATH", ""))
    if path and not all(entry.startswith("/") for entry in path.split(":")):
        made.changed = f"PATH={path}"[:60]
    return made


def make_network_asker(started: RunStarted, pause: Pause, redactor: Redactor) -> NetworkAsker | None:
    """Where the network has a list, and so something that is not on it."""
    return NetworkAsker(pause, _remembered(started, redactor)) if started.policy.network.mode == "allow" else None


def _remembered(started: RunStarted, redactor: Redactor) -> Remembered:
    return Remembered(approval_file(), place_of(started), started.bot, redactor.names, folders_of(started))


def read_rules(approve: str) -> dict[str, Any] | None:
    """What is in FILE of `rules=FILE`, for the record. UsageError, in one line, when it is none."""
    _, _, name = approve.partition("=")
    if not name:
        return None
    path = Path(expanduser(name))
    try:
        table = read_toml(path, MAX_FILE_BYTES, "file of rules")
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file", "--approve rules=FILE names a file of your own") from None
    with_own(table, str(path))
    return table


def place_of(started: RunStarted) -> tuple[str, ...]:
    """What an approval holds for: the real paths of the run's folders with their modes, behind the other machine, or
    the word that nothing is sealed.
    """
    here, other = not is_far(started.sandbox, started.policy), is_far(started.sandbox) or not is_sealed(started.sandbox)
    folders = (f"{os.path.realpath(rule.host) if here else rule.host}:{rule.mode}" for rule in started.policy.folders)
    return (*((started.sandbox,) if other else ()), *folders)


def folders_of(started: RunStarted) -> tuple[str, ...]:
    """What tells the run's folders from others that are put in their place later: file system, inode, birth (ns).

    Empty of another machine's. A folder that was moved is asked about anew by its path.
    """
    results = []
    for rule in () if is_far(started.sandbox, started.policy) else started.policy.folders:
        try:
            fd = os.open(rule.host, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:  # the run will say so
            results.append("")
            continue
        try:
            real = os.path.realpath(rule.host)
            results.append(f"{filesystem(fd):x}-{os.fstat(fd).st_ino}-{birth_ns(fd, real)}")
        finally:
            os.close(fd)
    return tuple(results)


def approval_notes(started: RunStarted) -> tuple[str, ...]:
    """What the user should know of the permissions on this machine, a line each."""
    if started.approve == "never":
        return ()
    old = state_dir() / "allowed"
    lines = approval_file().read().problems
    if old.exists():
        gone = f"{old} is not read any more: it held for every folder and bot. Answer [a]lways anew, and remove it"
        lines = (gone, *lines)
    return lines
