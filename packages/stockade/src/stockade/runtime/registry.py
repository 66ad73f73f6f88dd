"""Every part by its name: the entry points of installed packages, ours among them. A part is loaded when it is used.

What is wrong with one part (it cannot be loaded, two packages have its name) is told when that part is asked for, and
names the package; nothing else is touched by it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, EntryPoint, distributions
from typing import Any, Literal

from stockade.core.errors import StockadeError, UsageError, did_you_mean

Group = Literal[
    "stockade.models",
    "stockade.answers",
    "stockade.tools",
    "stockade.hooks",
    "stockade.bots",
    "stockade.evals",
    "stockade_sandbox.backends",
]
OURS = ("stockade", "stockade-sandbox")
KINDS: Mapping[Group, str] = {
    "stockade.models": "model provider",
    "stockade.answers": "answer protocol",
    "stockade.tools": "tool",
    "stockade.hooks": "hook",
    "stockade.bots": "bot",
    "stockade.evals": "evaluation set",
    "stockade_sandbox.backends": "sandbox",
}
"""What a part of a group is called."""
_MENTIONED = "[stockade"
"""In the file of every package that has a part for us: the others are not parsed."""


@dataclass(frozen=True, slots=True)
class Part:
    """An entry point and whose it is: the package's name and version."""

    entry: EntryPoint
    package: str
    version: str

    @property
    def ours(self) -> bool:
        return self.package in OURS


@cache
def _installed() -> Mapping[str, Mapping[str, tuple[Part, ...]]]:
    """Group -> name -> whoever has it; ours first, in the order of pyproject.toml. Looked for once a process."""
    packages: dict[str, list[Part]] = {}
    for distribution in distributions():
        if _MENTIONED in (distribution.read_text("entry_points.txt") or ""):
            name, version = distribution.name, distribution.version
            packages.setdefault(name, [*_parts_of(distribution, name, version)])  # the first on the path counts
    results: dict[str, dict[str, tuple[Part, ...]]] = {}
    for name in sorted(packages, key=lambda name: (name not in OURS, name)):
        for part in packages[name]:
            group = results.setdefault(part.entry.group, {})
            group[part.entry.name] = (*group.get(part.entry.name, ()), part)
    return results


def _parts_of(distribution: Distribution, name: str, version: str) -> Iterator[Part]:
    for entry in distribution.entry_points:
        if entry.group in KINDS:
            yield Part(entry, name, version)


def parts(group: Group) -> Mapping[str, tuple[Part, ...]]:
    """The parts of a group by name, not loaded. UsageError where not even ours are there: the installation is old."""
    result = _installed().get(group, {})
    if not any(part.ours for several in result.values() for part in several):
        what = f"the installed stockade has no {group}: it was installed before the code that runs"
        raise UsageError(what, "install it again (in a checkout: make .venv/.dev)")
    return result


def names(group: Group) -> tuple[str, ...]:
    """Ours first."""
    return tuple(parts(group))


def load(group: Group, name: str) -> Any:
    """The part of that name. UsageError, with what there is, for none; with the package, for one that is broken."""
    result = parts(group)
    if name not in result:
        hint = did_you_mean(name, result, f"there are {', '.join(result)}")
        raise UsageError(f"there is no {KINDS[group]} {name!r}", hint)
    if len(several := result[name]) > 1:
        owners = " and ".join(f"{part.package} {part.version}" for part in several)
        others = [part.package for part in several if not part.ours]
        raise UsageError(f"two packages have a {KINDS[group]} {name!r}: {owners}", f"pip uninstall {others[-1]}")
    (part,) = several
    try:
        return part.entry.load()
    except StockadeError:  # it says itself what it needs
        raise
    except Exception as error:
        raise broken(part, f"cannot be made: {type(error).__name__}: {error}") from error


def make(group: Group, name: str, *args: Any) -> Any:
    """What the part of that name makes of the arguments. Errors of `load`, of its own, and UsageError for any other."""
    part = load(group, name)
    try:
        return part(*args)
    except StockadeError:
        raise
    except Exception as error:
        raise wrong(group, name, f"cannot be made: {type(error).__name__}: {error}") from error


def owner(group: Group, name: str) -> Part | None:
    """Whose part it is; None when there is none of that name, or several."""
    several = parts(group).get(name, ())
    return several[0] if len(several) == 1 else None


def broken(part: Part, what: str) -> UsageError:
    """The error that says of a part what is wrong with it, and whose it is."""
    kind = next(message for group, message in KINDS.items() if group == part.entry.group)
    message = f"the {kind} {part.entry.name!r} of {part.entry.value} {what} (package {part.package} {part.version})"
    return UsageError(message, f"mend it, or pip uninstall {part.package}")


def wrong(group: Group, name: str, what: str) -> UsageError:
    """`broken`, for a part that was loaded and is none."""
    part = owner(group, name)
    return broken(part, what) if part is not None else UsageError(f"the {KINDS[group]} {name!r} {what}")
