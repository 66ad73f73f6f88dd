"""A run that another machine began, on one that has its folders somewhere else: in the record are the paths of that
machine, here are those of this one. What the run wrote is in the shared store before the record says so.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from anyio import CancelScope, to_thread

from stockade import changes
from stockade.core.errors import SandboxFailed, UsageError
from stockade.core.events import Checkpoint, RunEvent, RunFinished, RunResumed, RunStarted, SandboxStarted
from stockade.core.ports import RunStore
from stockade.core.summary import RunSummary
from stockade.fleet.tasks import Item
from stockade.fleet.workspaces import Names, Workspaces, point_named, point_of_end, snapshots_of
from stockade.paths import state_dir
from stockade.runtime.policy import make_policy
from stockade.runtime.sandboxes import forget
from stockade.runtime.spec import RunSpec
from stockade_sandbox.overlay.snapshots import LayerSnapshots
from stockade_sandbox.results import FolderLayer


def moved(event: RunEvent, place: Callable[[str], str]) -> RunEvent:
    """With its folders and layers at `place` of where they were."""
    match event:
        case RunStarted():
            policy = event.policy
            folders = tuple(replace(one, host=place(one.host)) for one in policy.folders)
            copies = tuple(replace(one, host=place(one.host)) for one in policy.copies)
            return event.model_copy(update={"policy": replace(policy, folders=folders, copies=copies)})
        case SandboxStarted():
            return event.model_copy(update={"layers": tuple(moved_layer(one, place) for one in event.layers)})
        case RunResumed():
            return event.model_copy(update={"lost": tuple(map(place, event.lost))})
        case _:
            return event


def moved_layer(layer: FolderLayer, place: Callable[[str], str]) -> FolderLayer:
    return replace(layer, host=place(layer.host), layer=None if layer.layer is None else place(layer.layer))


def placing(places: Mapping[str, str]) -> Callable[[str], str]:
    """A path at the other end of these: itself, or the innermost that it lies in."""
    inner_first = sorted(places.items(), key=lambda one: len(one[0]), reverse=True)

    def place(path: str) -> str:
        for old, new in inner_first:
            if path == old or path.startswith(f"{old}/"):
                return new + path[len(old) :]
        return path

    return place


class Elsewhere(RunStore):
    """Implements core.ports.RunStore over another. `places`: paths of the machine that began the run, and where they
    are here. `names`: the snapshots that the run is at.
    """

    def __init__(
        self, store: RunStore, workspaces: Workspaces, run_id: str, places: Mapping[str, str],
        layers: Sequence[FolderLayer], names: Names,
    ) -> None:  # fmt: skip
        self._store, self._workspaces, self._run_id = store, workspaces, run_id
        self._here, self._there = placing(places), placing({new: old for old, new in places.items()})
        self._layers, self._names = tuple(layers), names
        self.told = set[str]()
        """The runs that something was put on record of."""
        self.is_over = False

    async def append(self, run_id: str, events: Sequence[RunEvent], *, durable: bool = True) -> None:
        self.told.add(run_id)
        if run_id == self._run_id:
            for event in events:
                await self._keep(event)
        await self._store.append(run_id, [moved(event, self._there) for event in events], durable=durable)

    async def _keep(self, event: RunEvent) -> None:
        match event:
            case SandboxStarted():
                self._layers = event.layers
                self._names = (*self._names, *[None] * len(event.layers))[: len(event.layers)]
            case Checkpoint() if event.files != self._names and any(event.files):
                self._names = event.files
                await self._send(point_named(self._names), ended=False)
            case RunFinished():
                if self._layers:
                    self._names = await self._last()
                    await self._send(point_of_end(event), ended=True)
                self.is_over = True
            case _:
                pass

    async def _last(self) -> Names:
        """Snapshots of what is there when the sandbox is gone."""
        snapshots = LayerSnapshots(self._layers, self._names)
        try:
            return await snapshots.keep()
        finally:
            snapshots.close()

    async def _send(self, point: str, *, ended: bool) -> None:
        def send() -> None:
            self._workspaces.keep(self._run_id, self._layers, self._names, point, ended=ended)

        with CancelScope(shield=True):
            await to_thread.run_sync(send)

    async def events(self, run_id: str, *, first: int = 0, limit: int | None = None) -> list[RunEvent]:
        return [moved(event, self._here) for event in await self._store.events(run_id, first=first, limit=limit)]

    def driving(self, run_id: str) -> AbstractAsyncContextManager[None]:
        return self._store.driving(run_id)

    async def driver(self, run_id: str) -> str | None:
        return await self._store.driver(run_id)

    async def length(self, run_id: str) -> int:
        return await self._store.length(run_id)

    async def find(self, reference: str) -> str:
        return await self._store.find(reference)

    async def runs(
        self, *, folder: str | None = None, words: Sequence[str] = (), limit: int | None = None
    ) -> list[RunSummary]:
        return await self._store.runs(folder=folder, words=words, limit=limit)

    async def said(self, run_id: str, words: Sequence[str]) -> list[tuple[str, str]]:
        return await self._store.said(run_id, words)

    async def remove(self, run_id: str) -> None:
        await self._store.remove(run_id)

    async def removed(self) -> dict[str, float]:
        return await self._store.removed()

    async def sweep(self) -> None:
        await self._store.sweep()

    async def close(self) -> None:
        await self._store.close()


def by_place(spec: RunSpec) -> RunSpec:
    """With the whole paths of its folders, of files that are copied in, and of the record. UsageError where the run
    would write to one of them directly.
    """
    policy = make_policy(spec, "overlay")
    folders = policy.folders[: len(spec.folder)]
    if written := next((one.host for one in folders if one.mode == "rw"), None):
        what = f"the folder {written} is to be written to directly (rw), and what is in a store is a copy of it"
        raise UsageError(what, "leave out :rw, and apply what is solved: --apply")
    return spec.model_copy(update={
        "folder": tuple(f"{one.host}:{one.mode}" for one in folders),
        "copy_in": tuple(f"{one.host}:{one.inside}" for one in policy.copies),
        "store": spec.store or str(state_dir() / "runs.db"),
    })  # fmt: skip


def paths_of(spec: RunSpec) -> list[str]:
    """Those folders and files of one that is `by_place`."""
    return [text.rpartition(":")[0] for text in (*spec.folder, *spec.copy_in)]


def _placed(item: Item, place: Callable[[str], str]) -> Item:
    """With its folders and files where they are here."""

    def moved_rule(text: str) -> str:
        host, _, rest = text.rpartition(":")
        return f"{place(host)}:{rest}"

    spec, (folders, copies) = item.spec, (tuple(map(moved_rule, one)) for one in (item.spec.folder, item.spec.copy_in))
    return replace(item, spec=spec.model_copy(update={"folder": folders, "copy_in": copies}))


@asynccontextmanager
async def at_hand(
    item: Item, run_id: str, store: RunStore, workspaces: Workspaces, goes_on: Callable[[Item, RunFinished], bool]
) -> AsyncIterator[tuple[Item, RunStore]]:  # fmt: skip
    """A run that another machine began, with its folders on this one, and where it is to go on, with what it wrote.
    SandboxFailed where the shared store does not have it.
    """
    with ExitStack() as stack:
        begin = await to_thread.run_sync(workspaces.begun, run_id)
        folders = await to_thread.run_sync(stack.enter_context, workspaces.here(begin))
        places = {**folders, begin.state: str(state_dir() / "runs")}
        here = placing(places)
        history = await store.events(run_id) if await store.length(run_id) else []
        found = changes.facts(history)
        layers = [moved_layer(replace(one, seal=None), here) for one in found.layers]
        names = snapshots_of(history, len(layers))
        if any(names) and (found.finished is None or goes_on(item, found.finished)):
            bring = partial(workspaces.bring, run_id, layers, point_named(names))
            if not await to_thread.run_sync(bring):
                raise SandboxFailed(f"what run {run_id} wrote is not in {workspaces.url}")
        record = Elsewhere(store, workspaces, run_id, places, layers, names)
        try:
            yield _placed(item, here), record
        finally:
            if record.is_over and begin.state != places[begin.state]:  # the other machine has it, or will
                with CancelScope(shield=True):
                    for run in record.told:
                        await to_thread.run_sync(forget, run)
