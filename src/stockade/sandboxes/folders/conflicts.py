"""Whether somebody changed on the host what a bot changed too."""

from collections.abc import Iterable

from stockade.core.changes import Change
from stockade.core.errors import UsageError
from stockade.sandboxes.folders.hostile import spell
from stockade.sandboxes.folders.record import APPLIED_FILE, JOURNAL_FILE, OpenLayer, Seen, read_seen, write_seen
from stockade.sandboxes.folders.writing import Chosen

_SHOWN = 5


def check_conflicts(chosen: Chosen, opened: OpenLayer) -> None:
    """UsageError, naming them, when chosen paths changed on the host since the run began."""
    manifest = opened.manifest() if opened.is_copy else {}
    ours = read_seen(opened.base / JOURNAL_FILE).keys()
    clashing = [
        path
        for path in chosen
        if _clashes(path, chosen[path], manifest, opened) and not (path in ours and opened.host.node(path) is None)
    ]
    if clashing:
        raise UsageError(
            f"changed on the host since the run began: {listed(map(spell, clashing))}",
            "compare them yourself, then apply with --force",
        )


def _clashes(path: str, change: Change, manifest: dict[str, Seen], opened: OpenLayer) -> bool:
    now = opened.host.node(path)
    mine = opened.applied.get(path)
    if mine is not None and mine.is_still(now):
        return False
    if opened.is_copy:
        before = manifest.get(path)
        if before is None:
            return now is not None
        if now is None or now.kind == before.kind == "directory":
            return now is None and change.kind != "deleted"
        return not before.is_still(now)
    if now is None or now.kind == "directory":
        return False
    return max(now.stat.st_mtime_ns, now.stat.st_ctime_ns) > opened.record.started_ns


def remember(chosen: Chosen, opened: OpenLayer) -> None:
    """How the host looks after us, so that our own writing is not taken for somebody's at the next apply."""
    opened.host.forget()
    for path in chosen:
        node = opened.host.node(path)
        if node is None:
            opened.applied.pop(path, None)
        else:
            opened.applied[path] = Seen.of(path, node)
    write_seen(opened.base / APPLIED_FILE, opened.applied.values())


def listed(paths: Iterable[str]) -> str:
    """The first few of them, quoted, and how many more there are."""
    shown = [repr(path) for path in paths]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more
