"""What a wrapped program needs, as data; and where it is found on this machine, to be seen read-only inside."""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from os.path import expanduser
from pathlib import Path, PurePosixPath

from pydantic import Field, field_validator

from stockade.core.data import Data
from stockade.extend import FolderRule, Policy, UsageError
from stockade_sandbox.toolchains import find

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
_MAX_LINE = 256


class Preset(Data):
    """A program, as presets/*.toml has it. In arguments `{prompt}`, `{turns}` and `{model}` are filled in; where no
    argument of `prompt` or `again` has its words, they are its standard input. `login` are paths below the home.
    """

    name: str = ""
    bot: str = ""
    """Its name behind --bot; empty: `name`."""
    summary: str = ""
    program: str = ""
    """Empty: `name`."""
    arguments: tuple[str, ...] = ()
    """In front of the user's: its own sandbox switched off, as ours is around it."""
    command: tuple[str, ...] = ()
    """The subcommand that does one task, where `turns` and `model` are arguments of it: in front of them."""
    prompt: tuple[str, ...] = ()
    """For one task without a user; nothing where it can do none."""
    again: tuple[str, ...] = ()
    """The same, to go on with that conversation; nothing where it cannot."""
    turns: tuple[str, ...] = ()
    """What bounds its turns, before `prompt`; nothing where it cannot."""
    model: tuple[str, ...] = ()
    """What names the model that it asks, before `turns`; nothing where it cannot be told."""
    hosts: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    """NAME@HOST[:HEADER], as --credential takes them."""
    login: tuple[str, ...] = ()
    """Files that say who it is logged in as, `PATH#KEY,KEY` some keys of a JSON file: copied to a named home once, by
    consent.
    """

    environment: dict[str, str] = Field(default_factory=dict)
    """Inside, unless --env says otherwise."""
    settings: dict[str, str | int | float] = Field(default_factory=dict)
    """Of a run, as they are where the user sets nothing."""

    @field_validator("login")
    @classmethod
    def _below(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            path = PurePosixPath(one.partition("#")[0])
            if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in one:
                raise ValueError(f"{one!r} is no path below the home")
        return value

    def asking(self, model: str, *, alone: bool) -> tuple[str, ...]:
        """The arguments that have it ask `model`; none without one. `alone`: for one task. UsageError where it cannot
        be told.
        """
        if model and not (self.model and (alone or not self.command)):
            hint = f"tell {self.name} in its own way, behind --; or write model = [...] in its preset"
            raise UsageError(f"--model cannot be kept: nobody says how {self.name} is told its model", hint)
        return tuple(one.replace("{model}", model) for one in self.model if model)

    def headless(self, words: str, *, again: bool, turns: int, model: str = "") -> tuple[tuple[str, ...], bytes]:
        """Its arguments for one task, and its standard input. UsageError where it can do none."""
        chosen = self.again if again and self.again else self.prompt
        if not chosen:
            hint = "write prompt = [...] in its preset; without -p it has your terminal"
            raise UsageError(f"nobody says how {self.name} does a task by itself", hint)
        if turns and not self.turns:
            raise UsageError(f"--max-turns cannot be kept: {self.name} counts no turns", "--timeout S bounds it")
        bounds = tuple(one.replace("{turns}", str(turns)) for one in self.turns if turns)
        arguments = tuple(one.replace("{prompt}", words) for one in chosen)
        stdin = b"" if any("{prompt}" in one for one in chosen) else words.encode()
        return (*self.arguments, *self.command, *self.asking(model, alone=True), *bounds, *arguments), stdin


def seen(
    policy: Policy, program: str, system_path: str, environment: Mapping[str, str] = os.environ
) -> tuple[str, Policy]:
    """How the program is started inside, and the policy that shows it and what it is made of, read-only at the same
    place. One that is not found here, or lies in a folder of the policy, is looked for inside. `system_path`: where
    programs are looked for there.

    UsageError where that would show the user's whole home.
    """
    own = next((one for one in policy.folders if Path(program).is_relative_to(one.host)), None)
    if own is not None:
        return f"{own.inside}/{Path(program).relative_to(own.host)}", policy
    found = (
        None
        if "/" in program.lstrip("/") and program[0] != "/"
        else shutil.which(program, path=environment.get("PATH"))
    )
    if found is None or _of_the_system(real := Path(found).resolve()):
        return program, policy
    home = Path(environment.get("HOME") or expanduser("~"))
    mounts, programs = {(root := str(_root_of(real))): root}, [str(real.parent)]  # what stands where inside
    for needed in _interpreters(real, environment.get("PATH")):
        around = find(Path(os.devnull), {**environment, "PATH": str(needed.parent)}, home)
        chains = [one for one in around if not one.links]  # not what other programs beside it are links to
        mounts |= {path: path for one in chains for path in one.mounts}
        programs += [path for one in chains for path in one.path]
        if not chains and not _of_the_system(needed.resolve()):  # one that was unpacked somewhere
            mounts[str(needed.absolute())] = str(needed.resolve())
            programs.append(str(needed.absolute().parent))
    if any(home.is_relative_to(one) for one in mounts.values()):
        raise UsageError(f"{program} cannot be shown without your whole home", "install it in a folder of its own")
    shown = {rule.inside for rule in policy.lent}
    above = {*mounts, *shown}
    outer = sorted(
        path for path in mounts if path not in shown and not any(path.startswith(f"{one}/") for one in above)
    )
    lent = tuple(FolderRule(host=mounts[path], mode="ro", inside=path) for path in outer)
    search = dict.fromkeys([*programs, policy.environment.get("PATH", system_path)])
    variables = {**policy.environment, "PATH": ":".join(search)}
    return str(real), replace(policy, lent=(*policy.lent, *lent), environment=variables)


def _of_the_system(path: Path) -> bool:
    return any(path.is_relative_to(one) for one in _SYSTEM)


def _root_of(program: Path) -> Path:
    """The package that it is of: its node_modules, its virtual environment, its folder of /opt; else itself."""
    parts = program.parts
    if "node_modules" in parts:
        return Path(*parts[: parts.index("node_modules") + 1])
    if (program.parent.parent / "pyvenv.cfg").is_file():
        return program.parent.parent
    return Path(*parts[:3]) if parts[1] == "opt" and len(parts) > 3 else program


def _interpreters(program: Path, path: str | None) -> Iterator[Path]:
    """What runs it, as its first line says."""
    with program.open("rb") as file:
        line = file.readline(_MAX_LINE)
    words = [os.fsdecode(word) for word in line.removeprefix(b"#!").split()] if line.startswith(b"#!") else []
    if not words:
        return
    if Path(words[0]).name == "env":
        named = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
        words[0] = shutil.which(named, path=path) or ""
    if words[0]:
        python = Path(words[0])
        yield python
        if python.is_symlink() and (python.parent.parent / "pyvenv.cfg").is_file():
            yield python.resolve()
