"""The user looks at the profile of a Planner, and changes it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import click
from rich.console import Console
from rich.text import Text

from stockade.cli.ui.console import write_prose
from stockade.cli.ui.prompts import typed
from stockade.cli.ui.safe import one_line
from stockade.plugins.planner.bot import (
    MAX_DIRECTIVE_CHARS,
    MAX_DIRECTIVES,
    MAX_NAME_CHARS,
    MAX_ROLE_CHARS,
    Profile,
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
