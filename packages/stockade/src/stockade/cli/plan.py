"""What `stockade plan` does: the profile is shown and changed, then each action is done when the user authorises it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from stockade.cli import run
from stockade.cli.talk import Talk
from stockade.cli.ui.console import progress, write_prose
from stockade.cli.ui.failures import say
from stockade.cli.ui.prompts import typed
from stockade.cli.ui.safe import one_line
from stockade.core.errors import UsageError
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
from stockade.runtime.settings import Settings
from stockade.runtime.spec import Objects, RunSpec

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

    async def change(self, profile: Profile) -> Profile:
        """In mid-run, where the user has said that it is to be another."""
        profile = await self._changed(profile)
        self._show("Revised settings", profile)
        return await replace(self, asks=True, shows=False).revise(profile)

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
        write_prose(self.console, "For each: Enter keeps it, - removes it, other words replace it.", "dim")
        lists = {key: await self._directives(title, getattr(profile, key)) for key, title in KINDS}
        return Profile(**fields, **lists)

    async def _directives(self, title: str, lines: Sequence[str]) -> tuple[str, ...]:
        kept: list[str] = []
        for number, line in enumerate(lines, 1):
            said = await self._line(f"{title} {number}: {one_line(line)}: ")
            if said != "-":
                kept.append(said[:MAX_DIRECTIVE_CHARS] or line)
        while len(kept) < MAX_DIRECTIVES:
            if (said := await self._line(f"Another {title.lower()} (Enter: none): ")) in ("", "-"):
                break
            kept.append(said[:MAX_DIRECTIVE_CHARS])
        return tuple(kept)

    async def _line(self, question: str) -> str:
        line = await typed(question, fresh=True)
        if line is None:
            raise click.Abort
        return "".join(char for char in line if char.isprintable())

    def _show(self, title: str, profile: Profile) -> None:
        write_prose(self.console, f"{title}:", "bold")
        self._field("Name", profile.name)
        self._field("Role", profile.role)
        for key, kind in KINDS:
            lines: Sequence[str] = getattr(profile, key)
            self._field(f"{kind}s", "" if lines else "none")
            for line in lines:
                write_prose(self.console, f"  - {one_line(line)}", "")

    def _field(self, name: str, value: str) -> None:
        words = Text.assemble((f"{name}:", "bold"), f" {one_line(value)}" if value else "")
        write_prose(self.console, words)


OWN = ("ai_name", "ai_role", "constraint", "resource", "best_practice", "override_directives", "skip_reprompt",
       "continuous", "continuous_limit")  # fmt: skip


def begin(task: str | None, given: Mapping[str, Any], *, worktree: bool = False, talk: Talk | None = None) -> int:
    """A run of the Planner; its exit status."""
    own = {name: given[name] for name in OWN if name in given}
    rest = {name: value for name, value in given.items() if name not in OWN}
    return run.begin(
        task, {**rest, "bot": PLANNER.name}, worktree=worktree, talk=talk, make=partial(_make, own), name="plan"
    )


def _make(own: Mapping[str, Any], settings: Settings, asks: bool) -> RunSpec:
    """UsageError where nobody could authorise what it would do."""
    if goes_on := "continuous" in own or "continuous_limit" in own:
        say(WARNING)
    elif not asks:
        raise UsageError(
            "not a terminal, cannot ask you to authorise actions",
            "-l N does N actions without asking, --continuous does all",
        )
    overrides, front = _overrides(own), settings.front
    reviser = Reviser(
        progress(plain=front.plain),
        asks=asks and "skip_reprompt" not in own and not overrides.any,
        shows=not (front.json_lines or front.quiet),
    )
    bot = PLANNER.model_copy(update={"bot": Planner(overrides, reviser.revise, reviser.change)})
    granted = own.get("continuous_limit") if goes_on else 0
    options = settings.options
    return options.model_copy(update={"objects": Objects(bot=bot), "granted": granted, "tool": _with_web(options)})


def _with_web(options: RunSpec) -> tuple[str, ...]:
    """Tools for the web are there where a network is; else the user is told how to open one."""
    if options.net == "none":
        say("there is no network, and so no tool for the web", "--net open (or HOST,...), and --search for web_search")
        return options.tool
    web = ("read_page", *(("web_search",) if options.search else ()))
    return (*options.tool, *(name for name in web if name not in (*options.tool, *options.no_tool)))


def _overrides(own: Mapping[str, Any]) -> Overrides:
    return Overrides(
        name=_short(own.get("ai_name")),
        role=_short(own.get("ai_role")),
        constraints=own.get("constraint", ()),
        resources=own.get("resource", ()),
        best_practices=own.get("best_practice", ()),
        replace="override_directives" in own,
    )


def _short(text: str | None) -> str | None:
    return text.strip() or None if text is not None else None
