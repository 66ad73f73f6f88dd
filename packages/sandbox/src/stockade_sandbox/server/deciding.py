"""What was written to the overlay folders of the serving machine: shown, and applied to them."""

import hashlib
from contextlib import nullcontext

from anyio import to_thread

from stockade_sandbox.backends.remote.allowed import Allowed, check_writable
from stockade_sandbox.errors import UsageError
from stockade_sandbox.overlay.review import Review
from stockade_sandbox.port import Freezable
from stockade_sandbox.records import Record, field
from stockade_sandbox.results import Change, FolderLayer, shown_path
from stockade_sandbox.server.sessions import Session


class Wanted(Record):
    """POST …/apply. `paths`: as the diff's folders have them inside; None is all. What runs by itself on the serving
    machine is applied only with `flagged`.
    """

    paths: tuple[str, ...] | None = None
    flagged: bool = False
    force: bool = False


class Applied(Record):
    """Its answer. `left`: what was not applied, each with the reason."""

    paths: tuple[str, ...] = ()
    left: dict[str, str] = field(default_factory=dict)


class Outdated(UsageError):
    """What was reviewed is not what there is now."""


async def diff(session: Session) -> tuple[bytes, str]:
    """As git shows it, and what it is known by."""
    box = session.box
    async with box.frozen() if isinstance(box, Freezable) else nullcontext():
        return await to_thread.run_sync(_diff, box.layers)


def _work(review: Review, layers: tuple[FolderLayer, ...]) -> list[tuple[FolderLayer, tuple[Change, ...]]]:
    return [(layer, review.changes(layer)) for layer in layers if layer.layer is not None]


def _diff(layers: tuple[FolderLayer, ...]) -> tuple[bytes, str]:
    review, text, known = Review(), list[str](), hashlib.sha256()
    for layer, changes in _work(review, layers):
        text += [review.unified_diff(layer, change) for change in changes]
        for path, digest in sorted(review.digests(layer, changes).items()):
            known.update(f"{layer.inside}\0{path}\0{digest}\0".encode())
    return "".join(text).encode(errors="surrogateescape"), known.hexdigest()


async def apply(session: Session, allowed: Allowed, wanted: Wanted, reviewed: str | None) -> Applied:
    """Nothing runs in the sandbox any more when this begins, and the sandbox is over when it returns. Outdated, and
    nothing done, when the diff is not known by `reviewed` any more. ChangedOnHost.
    """
    box = session.box
    if session.folders:
        raise UsageError("a folder that was sent is applied where it came from", "GET …/folders/{n}/changes")
    if not isinstance(box, Freezable):
        raise UsageError(f"the sandbox {box.backend} cannot be made to stand still", "take the diff")
    check_writable(session.policy, allowed)
    async with box.frozen():
        found = await to_thread.run_sync(_apply, box.layers, wanted, reviewed)
        await session.close()
    return found


def _apply(layers: tuple[FolderLayer, ...], wanted: Wanted, reviewed: str | None) -> Applied:
    if reviewed is not None and _diff(layers)[1] != reviewed:
        raise Outdated("it was written to since you looked", "GET …/diff")
    review, done, left = Review(), list[str](), dict[str, str]()
    for layer, changes in _work(review, layers):
        chosen = list[Change]()
        for change in changes:
            shown = shown_path(layer.inside, change.path)
            if wanted.paths is not None and shown not in wanted.paths:
                continue
            if change.refused or (change.held and not wanted.flagged):
                left[shown] = change.refused or change.flagged or "it would run by itself"
            else:
                chosen.append(change)
        if chosen:
            done += [shown_path(layer.inside, path) for path in review.apply(layer, chosen, force=wanted.force)]
    return Applied(paths=tuple(done), left=left)
