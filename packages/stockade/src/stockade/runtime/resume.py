"""From a run on record to one that is ready to go on: on the layers that it has, each brought back to its last
snapshot, or as a branch of its own.
"""

import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from anyio import to_thread

from stockade import __version__, changes
from stockade.core.budget import exhausted
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent, RunResumed, RunStarted
from stockade.core.ports import Model, OnEvent, OnProgress, OnText, RunStore, Sandbox
from stockade.core.secrets import Redactor, build_redactor, hidden_names, redact_callbacks, restore_secrets
from stockade.core.tool_plan import IN_PROCESS
from stockade.loop.resume import branch, up_to
from stockade.loop.run_context import Dependencies
from stockade.loop.state import RunState, fold
from stockade.loop.verify import OpenSandbox
from stockade.paths import run_dir
from stockade.runtime.bots import bot_of, find_bot
from stockade.runtime.factory import Prepared, check_task, make_parts
from stockade.runtime.hooks import BUILT_IN, approval_notes
from stockade.runtime.models import model_of, pick_protocol, several
from stockade.runtime.records import SystemClock, new_run_id
from stockade.runtime.sandboxes import open_sandbox, prepare_sandbox, sandbox_on
from stockade.runtime.spec import LOADING, REMOTE, HookCommand, RunSpec, make_budget
from stockade.runtime.tools import plan_tools
from stockade_sandbox.backends.process_sandbox import PRIVATE
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.overlay.restore import restore, share_snapshots
from stockade_sandbox.overlay.snapshot_store import await_gone
from stockade_sandbox.registry import load
from stockade_sandbox.results import FolderLayer

BUDGET = ("max_turns", "timeout", "max_tokens", "max_cost")
RULES = ("loop_repeats", "small_models")
CHANGEABLE = (*BUDGET, *RULES, "model", "check")
"""RunSpec that a run may go on with other values of."""


@dataclass(frozen=True, slots=True)
class Going:
    """A run that shall go on: its record, a new task or None, and what the user set anew."""

    run_id: str
    history: tuple[RunEvent, ...]
    task: str | None = None
    given: Mapping[str, Any] | None = None
    from_scratch: bool = False
    """Go on although what was written before is gone."""

    @property
    def started(self) -> RunStarted:
        first = self.history[0]
        if not isinstance(first, RunStarted):
            raise UsageError(f"the record of run {self.run_id} does not begin with its start")
        return first

    @property
    def changed(self) -> dict[str, Any]:
        return {key: value for key, value in (self.given or {}).items() if key in CHANGEABLE and value is not None}


async def prepare_again(
    going: Going,
    spec: RunSpec,
    store: RunStore,
    on_event: OnEvent | None = None,
    on_text: OnText | None = None,
    on_progress: OnProgress | None = None,
) -> Prepared:
    """Everything but going on. UsageError when there is nothing to go on with; else what `factory.prepare` raises."""
    started, state = restore_secrets(going.started, os.environ), fold(going.history)
    rules = {key: value for key, value in going.changed.items() if key in RULES}
    started = started.model_copy(update={"options": {**started.options, **rules}})
    resumed = _resumed(going, state)
    redactor = redactor_again(started, spec)
    on_event, on_text = redact_callbacks(redactor, on_event, on_text)
    sandbox, names, restore = await sandbox_again(started, state, on_progress)
    model, name, note = await _model(started, resumed.model, spec, on_progress)
    if (skip := getattr(model, "skip", None)) is not None:
        skip(state.turns)  # a script goes on where it was
    actions = started.actions if started.actions is not None else find_bot(started.bot).all_tools
    again = partial(plan_tools, redact=spec.redact, again=True, on_progress=on_progress)
    plan = await to_thread.run_sync(again, (*actions, *started.tools), started.policy)
    base = Dependencies(
        model, pick_protocol(started.answers), sandbox, store, SystemClock(), (), on_event=on_event, on_text=on_text,
        redactor=redactor, bot=bot_of(started),
    )  # fmt: skip
    parts = make_parts(started, plan, base, names=names, hooks=_hooks_again(started, spec))
    return Prepared(
        started=started,
        parts=parts,
        note=note,
        history=going.history,
        resumed=resumed.model_copy(update={"model": name, "hooks": tuple(hook.name for hook in parts.hooks)}),
        restore=restore,
        warnings=(
            *approval_notes(started),
            *(f"what it wrote to {host} before is gone; it goes on from the folder as it is" for host in resumed.lost),
        ),
    )


def _hooks_again(started: RunStarted, spec: RunSpec) -> tuple[str | HookCommand, ...]:
    """The chosen hooks that the run began with. A command is what the configuration says today, never what a record
    says. UsageError when one is gone.
    """
    commands = {one.name: one for one in spec.hooks if isinstance(one, HookCommand)}
    again = [commands.get(name, name) for name in started.hooks if name not in BUILT_IN]
    without = [f"-{name}" for name in ("loop_detection", "plain_words") if name not in started.hooks]
    return (
        *again,
        *(without if started.autonomy is None else ()),
        *(one for one in spec.hooks if isinstance(one, str)),
    )


async def _model(
    started: RunStarted, name: str, spec: RunSpec, on_progress: OnProgress | None
) -> tuple[Model, str, str | None]:
    """The model that a run goes on with, loaded as it was; what else the run was started with stands beside it."""
    settings = {**spec.model_dump(include=LOADING, exclude_none=True), **_loading(started), "model": name}
    same = {**settings, "seed": started.sampling.seed, "fast_model": started.options.get("fast_model")}
    spec = spec.model_copy(update=same)
    model, full, note = await model_of(spec, on_progress)
    return await several(model, spec, full, bot_of(started).at_once(started)), full, note


def redactor_again(started: RunStarted, spec: RunSpec) -> Redactor:
    """For a run on record, `started` with its secrets: it hides what it hid, and what is to be hidden today."""
    return build_redactor(os.environ, started.policy.environment, (*hidden_names(started), *spec.redact))


def _loading(started: RunStarted) -> dict[str, Any]:
    return {key: value for key, value in started.options.items() if key in LOADING}


def _resumed(going: Going, state: RunState) -> RunResumed:
    started, task = going.started, going.task
    done = state.finished is not None and state.finished.status == "done"
    bot_of(started).check_resume(started, {*going.changed, *(() if task is None else ("task",))}, done=done)
    if task is None and done:
        raise UsageError(
            f"run {going.run_id} is done", f'give it a new task: stockade runs resume {going.run_id} "..."'
        )
    bounds = _last_resumed(going.history)
    budget = make_budget(
        RunSpec.model_validate({key: value for key, value in going.changed.items() if key in BUDGET}),
        bounds.budget if bounds else started.budget,
    )
    if task is None and (bound := exhausted(budget, state.spent(state.last_at))) is not None:
        raise UsageError(f"run {going.run_id} has used up its {bound}", _MORE[bound.split(":")[0]])
    return RunResumed(
        at=time.time(),
        version=__version__,
        task=check_task(task) if task is not None else None,
        model=going.changed.get("model") or (bounds.model if bounds else started.model),
        sandbox=started.sandbox,
        budget=budget,
        check=going.changed.get("check") or (None if task is not None else bounds.check if bounds else started.check),
        lost=_lost(going),
    )


def _lost(going: Going) -> tuple[str, ...]:
    """The folders that the run wrote to and whose layers are gone. LayerLost where the user did not say to go on."""
    found = changes.facts(going.history)
    if not going.from_scratch:
        changes.check_kept(found)
    return tuple(layer.host for layer in found.layers if layer.is_lost) if found.wrote else ()


_MORE = {
    "turns": "give it more: --max-turns N",
    "time": "give it more: --timeout S",
    "tokens": "give it more: --max-tokens N",
    "cost": "give it more: --max-cost USD",
}


def _last_resumed(history: Sequence[RunEvent]) -> RunResumed | None:
    return next((event for event in reversed(history) if isinstance(event, RunResumed)), None)


async def make_branch(store: RunStore, history: Sequence[RunEvent], turn: int) -> tuple[str, tuple[RunEvent, ...]]:
    """A new run that is what this one was at the end of `turn`, files included. Its id and its record.

    UsageError when there is no such turn, or its files are not kept any more.
    """
    parent = Going("", tuple(history)).started
    events = up_to(history, turn)
    run_id = new_run_id()
    layers = await to_thread.run_sync(_branch_layers, parent, events, run_id)
    made = tuple(branch(events, run_id, turn, layers, time.time()))
    async with store.driving(run_id):
        await store.append(run_id, made)
    return run_id, made


def _branch_layers(parent: RunStarted, events: Sequence[RunEvent], run_id: str) -> tuple[FolderLayer, ...]:
    """New layers beside the parent's, with its snapshots, which going on brings the folders to."""
    state = fold(events)
    names, old = state.checkpoint.files if state.checkpoint else (), state.layers
    lost = [
        layer.host
        for layer, name in zip(old, names, strict=False)
        if name is not None and not Path(layer.layer or "", "layer.json").exists()
    ]
    if lost:
        raise UsageError(
            f"what the bot had written to {lost[0]} by then is not on this machine any more",
            "it was applied, thrown away or removed: start a new run",
        )
    if not old:
        return ()
    fresh = open_sandbox(parent.policy, parent.sandbox, run_dir(run_id)).layers
    for layer, source, name in zip(fresh, old, [*names, *[None] * (len(fresh) - len(names))], strict=True):
        if name is not None:
            share_snapshots(source, layer, name)
    return fresh


@asynccontextmanager
async def verifying(started: RunStarted, on_progress: OnProgress | None) -> AsyncIterator[OpenSandbox]:
    """Sandboxes on new layers of the run's folders, one after the other; the layers are thrown away at the end.

    `started` has its secrets. UsageError for a run that wrote to its folder directly: doing that again would change it.
    """
    if any(rule.mode == "rw" for rule in started.policy.folders):
        raise UsageError("the run wrote to its folder directly (rw): doing it again would change the folder")
    base = run_dir(f"verify-{new_run_id()}")
    layers = (await prepare_sandbox(started.policy, started.sandbox, base, on_progress)).layers

    def again() -> Sandbox:
        return sandbox_on(started.policy, started.sandbox, base, layers)

    try:
        yield again
    finally:
        if base.exists():  # read-only folders leave nothing
            await to_thread.run_sync(remove_tree, base)


class Restore:
    """Brings the layers of a run back, each to the snapshot on record, once nothing writes to them any more."""

    def __init__(
        self,
        run_id: str,
        backend: str,
        work: Sequence[tuple[FolderLayer, str | None, Path | None]],
        known: Sequence[FolderLayer],
    ) -> None:
        self._run_id, self._backend, self._work = run_id, backend, work
        self._known = {layer.layer for layer in known}

    def __call__(self) -> None:
        await_gone(run_dir(self._run_id))
        if self._backend in ("docker", "podman", "gvisor"):
            load("doctor.backend_probe:sweep_others")()
        for layer, name, source in self._work:
            restore(layer, name, source)
        base = run_dir(self._run_id)
        for place in base.iterdir() if base.is_dir() else ():
            of_the_dead = place.name.startswith(PRIVATE)
            if of_the_dead or (place.name.isdecimal() and str(place.resolve()) not in self._known):
                remove_tree(place)  # made by a process that died before anything was done in it


def _still_there(layers: Sequence[FolderLayer]) -> list[bool]:
    return [not layer.is_lost for layer in layers]


async def sandbox_again(
    started: RunStarted, state: RunState, on_progress: OnProgress | None
) -> tuple[Sandbox, tuple[str | None, ...], Restore]:
    """On the layers that the run has; on new ones where they were applied or thrown away."""
    base, policy, backend = run_dir(started.run_id), started.policy, started.sandbox
    if backend.startswith(REMOTE):  # its folders are not here, and written directly
        return await prepare_sandbox(policy, backend, base, on_progress), (), Restore(started.run_id, backend, (), ())
    files = state.checkpoint.files if state.checkpoint else ()
    names = (*files, *[None] * (len(policy.folders) + len(policy.lent) - len(files)))
    layers = state.layers
    there = _still_there(layers)
    if layers and all(there):
        work = [(layer, name, None) for layer, name in zip(layers, names, strict=True)]
        return sandbox_on(policy, backend, base, layers), names, Restore(started.run_id, backend, work, layers)
    fresh = await prepare_sandbox(policy, backend, base, on_progress)
    sources = [
        Path(layer.layer) if present and layer.layer is not None else None
        for layer, present in zip(layers, there, strict=True)
    ] or [None] * len(fresh.layers)
    moved = [(layer, name, source) for layer, name, source in zip(fresh.layers, names, sources, strict=True) if source]
    return fresh, (None,) * len(names), Restore(started.run_id, backend, moved, (*layers, *fresh.layers))


def bring_back(history: Sequence[RunEvent]) -> bool:
    """Make the folders of a run that the machine went down with what they were at its last turn on record.

    Nobody had synced what the bot wrote: a layer may hold anything then, a snapshot does not. For who decides on the
    changes; `resume` does it anyway. False when there was no need: the run came to an end, or the machine is still up.
    Blocks. Raises what `restore` does.
    """
    started, state = history[0], fold(history)
    up_since = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    if not isinstance(started, RunStarted) or state.finished is not None or state.last_at > up_since:
        return False
    if started.sandbox.startswith(REMOTE):
        return False
    if not started.driver.startswith(IN_PROCESS) and not bot_of(started).loops:
        return False  # no snapshot of its files was ever taken
    files = state.checkpoint.files if state.checkpoint else ()
    names = (*files, *[None] * (len(state.layers) - len(files)))
    work = [
        (layer, name, None)
        for layer, name, there in zip(state.layers, names, _still_there(state.layers), strict=True)
        if there and layer.layer is not None
    ]
    if work:
        Restore(started.run_id, started.sandbox, work, state.layers)()
    return bool(work)
