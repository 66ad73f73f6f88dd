"""Bots by their names, and who drives the runs of one."""

from os.path import expanduser
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stockade.bots.file import read_bot
from stockade.bots.spec import BotSpec
from stockade.core.data import first_refused
from stockade.core.errors import UsageError, did_you_mean
from stockade.core.events import RunStarted
from stockade.core.tool_plan import IN_PROCESS
from stockade.loop.run_context import Bot
from stockade.paths import state_dir
from stockade.runtime import registry
from stockade.runtime.presets import bot_names, bot_of_preset
from stockade.runtime.sandboxes import AUTO, is_far
from stockade.runtime.spec import RunSpec
from stockade.runtime.tools import check_tools
from stockade_sandbox.overlay.paths import checked_folder


def find_bot(name: str) -> BotSpec:
    """A bot by its name, or one of a TOML file by its path. UsageError when there is none."""
    if name.endswith(".toml"):
        spec = read_bot(Path(expanduser(name)).absolute())
        check_tools(str(spec.file), spec.tools)
        return spec
    if name not in (known := registry.names("stockade.bots")):
        if (path := bot_names().get(name)) is not None:
            return bot_of_preset(path)
        hint = did_you_mean(name, bot_list(), f"the bots are {', '.join(known)}; or FILE.toml")
        raise UsageError(f"there is no bot {name!r}", hint)
    spec = registry.load("stockade.bots", name)
    if not isinstance(spec, BotSpec):
        raise registry.wrong("stockade.bots", name, f"is {type(spec).__name__}, not a BotSpec")
    return spec


def bot_of(started: RunStarted) -> Bot:
    """What drives a run on record. UsageError when that is code of a program that is not here."""
    if started.driver.startswith(IN_PROCESS):
        what = f"its bot, {started.driver.removeprefix(IN_PROCESS)}, is a part of the Python program that began the run"
        raise UsageError(what, "it goes on only there")
    return find_bot(started.driver).bot if started.driver else Bot()


def driver_of(spec: BotSpec) -> str:
    """`RunStarted.driver` of a bot."""
    kind = type(spec.bot)
    if kind is Bot:
        return ""
    registered = (one.name for one in list_bots()[0] if type(one.bot) is kind)
    return next(registered, f"{IN_PROCESS}{kind.__qualname__}")


def with_defaults(spec: RunSpec, bot: BotSpec) -> RunSpec:
    """What nobody set is as the bot wants it, but for its hooks. UsageError when a value of its file is none."""
    unset = {key: value for key, value in bot.settings.items() if key not in {*spec.model_fields_set, "hooks"}}
    return _with(spec, bot, unset | ({"answers": bot.answers} if bot.answers else {}))


def with_all(spec: RunSpec, bot: BotSpec) -> RunSpec:
    """The same, and its hooks before those of the user: once, for a run."""
    spec, hooks = with_defaults(spec, bot), bot.settings.get("hooks")
    return _with(spec, bot, {"hooks": (*hooks, *spec.hooks)}) if hooks else spec


def _with(spec: RunSpec, bot: BotSpec, values: dict[str, Any]) -> RunSpec:
    try:
        checked = RunSpec.model_validate(values)
    except ValidationError as error:
        key, message = first_refused(error, RunSpec)
        raise UsageError(f"{bot.file or f'bot {bot.name}'}: {key}{message}") from None
    return spec.model_copy(update={key: getattr(checked, key) for key in values})


def bot_list() -> tuple[str, ...]:
    """The names of all bots, those of programs last."""
    return tuple(dict.fromkeys((*registry.names("stockade.bots"), *bot_names())))


def list_bots() -> tuple[list[BotSpec], list[UsageError]]:
    """The bots of all packages, and what is wrong with those that are broken."""
    bots, broken = [], []
    for name in bot_list():
        try:
            bots.append(find_bot(name))
        except UsageError as error:
            broken.append(error)
    return bots, broken


def working_folders(folder: Path, bot: str | None, sandbox: str | None) -> tuple[str, ...]:
    """The current folder as --folder has it: nothing of it changes before the user says so, whatever the bot's mode.

    None for a sandbox of another machine. UsageError, with the reason, for a folder that is given to no bot.
    """
    if is_far(sandbox or AUTO):
        return ()
    try:
        folder.name.encode()
        checked_folder(str(folder), state_dir())
    except (UsageError, UnicodeEncodeError) as error:
        what = error.message if isinstance(error, UsageError) else f"the name of the folder {folder.name!r} is no UTF-8"
        raise UsageError(what, "cd to one project, or give --folder PATH, or --no-folder") from None
    mode = find_bot(bot or RunSpec.model_fields["bot"].default).folder_mode
    return (f"{folder}:{'ro' if mode == 'ro' else 'overlay'}",)
