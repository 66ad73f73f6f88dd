"""Whether the host's content differs from the base, and from what the bot made of it."""

from collections.abc import Iterable
from typing import NoReturn

from stockade.core.changes import Change
from stockade.core.errors import ChangedOnHost
from stockade.sandboxes.folders.base import Base
from stockade.sandboxes.folders.hostile import spell
from stockade.sandboxes.folders.record import OpenLayer
from stockade.sandboxes.folders.writing import Chosen

CHANGED = "changed on the host since the run began"
_SHOWN = 5


def check_conflicts(chosen: Chosen, opened: OpenLayer, base: Base) -> None:
    """ChangedOnHost, naming them, when chosen paths have other content on the host than the run met."""
    if clashing := conflicting(chosen, opened, base):
        refuse(clashing)


def refuse(clashing: Iterable[str]) -> NoReturn:
    """Raise ChangedOnHost for paths."""
    raise ChangedOnHost(
        f"{CHANGED}: {listed(map(spell, clashing))}",
        "see your side: stockade runs diff --host; then apply with --merge, or with --force to have the bot's",
    )


def conflicting(chosen: Chosen, opened: OpenLayer, base: Base) -> list[str]:
    """The paths of chosen changes, each of which differs from the host, where the host is not what it was."""
    return [path for path, change in chosen.items() if not _is_as_it_was(path, change, opened, base)]


def _is_as_it_was(path: str, change: Change, opened: OpenLayer, base: Base) -> bool:
    now = opened.host.node(path)
    entry = base.of(path, opened.host, opened.written)
    if now is not None and now.kind == change.entry == "directory":
        was_one = entry.state == "known" and entry.kind == "directory"
        if entry.state == "absent" or (was_one and change.kind != "mode"):
            return True  # both made the folder; or its mode does not matter
    return entry.is_same(opened.host, path, now)


def listed(paths: Iterable[str]) -> str:
    """The first few of them, quoted, and how many more there are."""
    shown = [repr(path) for path in paths]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more
