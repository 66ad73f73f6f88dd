"""What `stockade plan` does: the profile is shown and changed, then each action is done when the user authorises it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import click
from rich.console import Console
from rich.text import Text

from stockade.cli import flags
from stockade.cli.run import ask_line, ask_task, carry_out, read_task
from stockade.cli.ui.console import can_ask, progress, write_line
from stockade.cli.ui.drawing import profile_name
from stockade.cli.ui.failures import say
from stockade.cli.ui.prompts import typed
from stockade.cli.ui.safe import one_line
from stockade.core.errors import UsageError
from stockade.core.ports import RunStore
from stockade.plugins.planner.bot import (
    MAX_DIRECTIVE_CHARS,
    MAX_DIRECTIVES,
    MAX_NAME_CHARS,
    MAX_ROLE_CHARS,
    PLANNER,
    Overrides,
    Planner,
    Profile,
)
from stockade.runtime import factory, records
from stockade.runtime.factory import Prepared
from stockade.runtime.resume import spec_of
from stockade.runtime.settings import Settings
from stockade.runtime.spec import Objects

FOLLOW_UP = "A follow-up task for {name} (Enter: none): "
WARNING = (
    "continuous mode: nobody looks at an action before it is done. What holds is the sandbox, the folder's mode and"
    " the network rule"
)
QUESTION = "Continue with these settings? [Y/n] "
KINDS = (("constraints", "Constraint"), ("resources", "Resource"), ("best_practices", "Best practice"))


@dataclass(frozen=True, slots=True)
class Reviser:
    """`asks` False: it is shown only. click.Abort at the end of input: nobody has agreed to anything."""

    console: Console
    asks: bool
    shows: bool = True

    async def revise(self, profile: Profile) -> Profile:
        if self.shows:
            self._show("Current settings", profile)
        while self.asks and not await self._agreed():
            profile = await self._changed(profile)
            self._show("Revised settings", profile)
        return profile

    async def _agreed(self) -> bool:
        while True:
            match (await self._line(QUESTION)).lower():
                case "" | "y" | "yes":
                    return True
                case "n" | "no":
                    return False
                case _:
                    pass

    async def _changed(self, profile: Profile) -> Profile:
        name = await self._line(f"Name [{one_line(profile.name)}]: ")
        role = await self._line(f"Role [{one_line(profile.role)}]: ")
        fields = {
            "name": name[:MAX_NAME_CHARS] or profile.name,
            "role": role[:MAX_ROLE_CHARS] or profile.role,
        }
        write_line(self.console, "For each: Enter keeps it, - removes it, other words replace it.", "dim")
        lists = {key: await self._directives(title, getattr(profile, key)) for key, title in KINDS}
        return Profile(**fields, **lists)

    async def _directives(self, title: str, lines: Sequence[str]) -> tuple[str, ...]:
        kept: list[str] = []
        for number, line in enumerate(lines, 1):
            said = await self._line(f"{title} {number}: {one_line(line)}: ")
            if said != "-":
                kept.append(said[:MAX_DIRECTIVE_CHARS] or line)
        while len(kept) < MAX_DIRECTIVES and (said := await self._line(f"Another {title.lower()} (Enter: none): ")):
            kept.append(said[:MAX_DIRECTIVE_CHARS])
        return tuple(kept)

    async def _line(self, question: str) -> str:
        line = await typed(question, fresh=True)
        if line is None:
            raise click.Abort
        return "".join(char for char in line if char.isprintable())

    def _show(self, title: str, profile: Profile) -> None:
        write_line(self.console, f"{title}:", "bold")
        self._field("Name", profile.name)
        self._field("Role", profile.role)
        for key, kind in KINDS:
            lines: Sequence[str] = getattr(profile, key)
            self._field(f"{kind}s", "" if lines else "none")
            for line in lines:
                write_line(self.console, f"  - {one_line(line)}", "")

    def _field(self, name: str, value: str) -> None:
        words = Text.assemble((f"{name}:", "bold cyan"), f" {one_line(value)}" if value else "")
        self.console.print(words, soft_wrap=True)


def begin(task: str | None, values: dict[str, Any]) -> int:
    """The run, and those that follow it; the exit status."""
    settings = flags.settings(flags.given(values), here=True)
    asks = not (settings.front.json_lines or settings.front.quiet) and can_ask(no_input=settings.front.no_input)
    _check(values, asks=asks)
    task = read_task(task) if task is not None else ask_task("stockade plan TASK", asks=asks)
    settings = settings.model_copy(update={"options": settings.options.model_copy(update={"task": task})})
    store = records.open_store(settings.options.store)
    try:
        return _carry_out(settings, store, values, asks=asks)
    finally:
        anyio.run(store.close)


def _check(values: dict[str, Any], *, asks: bool) -> None:
    if values["continuous_limit"] is not None and not values["continuous"]:
        raise UsageError("--continuous-limit is for --continuous only", "give -c too")
    if values["continuous"]:
        say(WARNING)
    elif not asks:
        raise UsageError(
            "nobody is there to authorise actions: this is no terminal, or nothing is to be asked",
            "-c -l N does N actions without asking, -c does all",
        )


def _carry_out(settings: Settings, store: RunStore, values: dict[str, Any], *, asks: bool) -> int:
    """The run, and those that follow as long as the user has a task for the same bot."""
    overrides = _overrides(values)
    front = settings.front
    reviser = Reviser(
        progress(plain=front.plain),
        asks=asks and not values["skip_reprompt"] and not overrides.any,
        shows=not (front.json_lines or front.quiet),
    )
    bot = PLANNER.model_copy(update={"bot": Planner(overrides, reviser.revise)})
    granted = values["continuous_limit"] if values["continuous"] else 0
    spec = settings.options.model_copy(update={"objects": Objects(bot=bot), "granted": granted})
    prepared: list[Prepared] = []

    async def prepare(**callbacks: Any) -> Prepared:
        made = await factory.prepare(spec, store, **callbacks, attended=asks)
        prepared.append(made)
        return made

    status = carry_out(settings, store, prepare)
    while status == 0 and asks and prepared and (task := _follow_up(prepared[0])):
        status = carry_out(settings, store, _again(settings, store, prepared[0].started.run_id, task))
    return status


def _follow_up(prepared: Prepared) -> str:
    """Empty when there is none."""
    try:
        return ask_line(FOLLOW_UP.format(name=profile_name(prepared.started) or "the bot"))
    except click.Abort:
        return ""


def _again(settings: Settings, store: RunStore, run_id: str, task: str) -> Callable[..., Any]:
    history = tuple(anyio.run(store.events, run_id))
    return partial(factory.prepare, spec_of(history, settings.options, task), store)


def _overrides(values: dict[str, Any]) -> Overrides:
    return Overrides(
        name=_short(values["ai_name"]),
        role=_short(values["ai_role"]),
        constraints=values["constraint"] or (),
        resources=values["resource"] or (),
        best_practices=values["best_practice"] or (),
        replace=bool(values["override_directives"]),
    )


def _short(text: str | None) -> str | None:
    return text.strip() or None if text is not None else None
