"""A run on record as a RunSpec, so that the factory makes a run that goes on as it makes any other; and its folders, on
the layers that it has, each brought back to its last snapshot, or as those of a branch.
"""

import os
import shlex
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from anyio import to_thread

from stockade import __version__, changes
from stockade.answers.output_schema import read_schema
from stockade.core.budget import Budget, exhausted
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent, RunResumed, RunStarted
from stockade.core.ports import OnProgress, RunStore, Sandbox
from stockade.core.secrets import hidden_names, restore_secrets
from stockade.core.tool_plan import IN_PROCESS
from stockade.loop.resume import branch, first_event, last_network, up_to
from stockade.loop.run_context import Bot
from stockade.loop.state import RunState, fold
from stockade.loop.verify import OpenSandbox
from stockade.paths import run_dir
from stockade.runtime.bots import bot_of
from stockade.runtime.hooks import BUILT_IN
from stockade.runtime.policy import credential_of, ssh_account_of
from stockade.runtime.records import new_run_id
from stockade.runtime.sandboxes import is_far, open_sandbox, prepare_sandbox, sandbox_on, sweep_backends
from stockade.runtime.spec import RECORDED, HookCommand, Objects, Recorded, RunSpec, make_budget
from stockade_sandbox.leftovers import remove_stale
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.overlay.restore import await_gone, restore, share_snapshots
from stockade_sandbox.overlay.safe_fs import decode_path
from stockade_sandbox.policy import Policy, parse_network
from stockade_sandbox.results import FolderLayer

RULES = ("loop_repeats", "small_models")
CHANGEABLE = (
    "max_turns",
    "timeout",
    "max_tokens",
    "max_cost",
    *RULES,
    "model",
    "check",
    "attach",
    "net",
    "output_schema",
)
"""What a run may go on with another value of."""
_MORE = {
    "turns": "give it more: --max-turns N",
    "time": "give it more: --timeout S",
    "tokens": "give it more: --max-tokens N",
    "cost": "give it more: --max-cost USD",
}


def spec_of(
    history: Sequence[RunEvent],
    today: RunSpec,
    task: str = "",
    given: Mapping[str, Any] | None = None,
    *,
    from_scratch: bool = False,
) -> RunSpec:
    """What a run on record is asked for by: what it began with, what it last went on with, and what is `given` of
    `today` (the keys of CHANGEABLE that were set anew). An empty `task` is the one that it has.

    UsageError where a value that was hidden is not set here, or is to come from a file or a command that only the
    record names.
    """
    started = restore_secrets(first_event(history), os.environ)
    _check_sources(started.policy, today)
    now = _last_resumed(history) or started
    changed = frozenset(key for key, value in (given or {}).items() if key in CHANGEABLE and value not in (None, ()))
    rules = {key: getattr(today, key) for key in changed if key in RULES}
    network = parse_network(today.net) if "net" in changed else last_network(history)
    policy = replace(started.policy, network=network)
    started = started.model_copy(update={"options": {**started.options, **rules}, "policy": policy})
    values: dict[str, Any] = {
        "fast_model": None,
        "smart_model": None,
        **{key: value for key, value in started.options.items() if key in RECORDED},
        "fallback": tuple(started.options.get("fallback", ())),
        "best_of": None,
        "task": task,
        "attach": (),
        "output_schema": None,
        "bot": started.bot,
        "model": now.model,
        "answers": started.answers,
        "sandbox": started.sandbox,
        "seed": started.sampling.seed,
        "check": now.check,
        "protect": started.protect,
        "tool": (*(started.actions or ()), *started.tools),
        "redact": (*hidden_names(started), *today.redact),
        "hooks": _hooks(started, today),
        "max_turns": now.budget.max_turns,
        "timeout": now.budget.timeout_s,
        "max_tokens": now.budget.max_tokens,
        "max_cost": now.budget.max_cost,
        "objects": Objects(policy=policy, record=Recorded(started, tuple(history), changed, from_scratch)),
    }
    return today.model_copy(update={**values, **{key: getattr(today, key) for key in changed}})


def _check_sources(policy: Policy, today: RunSpec) -> None:
    """A command, a file or the ssh-agent of the host is what is set today, never what a record says."""
    allowed = set(map(ssh_account_of, today.ssh_agent))
    for account in policy.ssh_agent:
        if account not in allowed:
            what = f"the run began with --ssh-agent {account}, which is taken from no record"
            raise UsageError(what, f"if it is yours: STOCKADE_SSH_AGENT={account}")
    known = {credential_of(text) for text in today.credential}
    for one in policy.credentials:
        if one.source and one not in known:
            words = f"{one.name}={one.source}@{one.host}{f':{one.header}' if one.header else ''}"
            what = f"the run began with --credential {words}, which is taken from no record"
            raise UsageError(what, f"if it is yours: STOCKADE_CREDENTIAL={shlex.quote(words)}")


def _hooks(started: RunStarted, today: RunSpec) -> tuple[str | HookCommand, ...]:
    """The chosen hooks that the run began with. A command is what the configuration says today, never what a record
    says.
    """
    commands = {one.name: one for one in today.hooks if isinstance(one, HookCommand)}
    again = [commands.get(name, name) for name in started.hooks if name not in BUILT_IN]
    without = [f"-{name}" for name in ("loop_detection", "plain_words") if name not in started.hooks]
    named = [one for one in today.hooks if isinstance(one, str)]
    return (*again, *(without if started.autonomy is None else ()), *named)


def _last_resumed(history: Sequence[RunEvent]) -> RunResumed | None:
    return next((event for event in reversed(history) if isinstance(event, RunResumed)), None)


def resumed_event(spec: RunSpec, bot: Bot, record: Recorded, state: RunState, task: str) -> RunResumed:
    """How the run goes on, but for its model's full name and its hooks. UsageError when there is nothing to go on with,
    LayerLost where what it wrote is gone and nobody said to go on without.
    """
    run_id = record.started.run_id
    done = state.finished is not None and state.finished.status == "done"
    bot.check_resume(record.started, {*record.changed, *(("task",) if task else ())}, done=done)
    if not task and done:
        raise UsageError(f"run {run_id} is done", f'give it a new task: stockade runs resume {run_id} "..."')
    budget = make_budget(spec, Budget())
    if not task and (bound := exhausted(budget, state.spent(state.last_at))) is not None:
        raise UsageError(f"run {run_id} has used up its {bound}", _MORE[bound.split(":")[0]])
    result = changes.facts(record.history)
    if not record.from_scratch:
        changes.check_kept(result)
    return RunResumed(
        at=time.time(),
        version=__version__,
        task=task or None,
        model=spec.model,
        sandbox=spec.sandbox,
        budget=budget,
        check=spec.check,
        network=record.started.policy.network,
        output_schema=read_schema(spec.output_schema) if spec.output_schema else None,
        live=spec.objects.sandbox is not None,
        lost=tuple(layer.host for layer in result.layers if layer.is_lost) if result.wrote else (),
    )


async def make_branch(store: RunStore, history: Sequence[RunEvent], turn: int) -> tuple[str, tuple[RunEvent, ...]]:
    """A new run that is what this one was at the end of `turn`, files included. Its id and its record.

    UsageError when there is no such turn, or its files are not kept any more.
    """
    parent, events, run_id = first_event(history), up_to(history, turn), new_run_id()
    layers = await to_thread.run_sync(_branch_layers, parent, events, run_id)
    made = tuple(branch(events, run_id, turn, layers, time.time()))
    async with store.driving(run_id):
        await store.append(run_id, made)
    return run_id, made


def _branch_layers(parent: RunStarted, events: Sequence[RunEvent], run_id: str) -> tuple[FolderLayer, ...]:
    """New layers beside the parent's, with its snapshots, which going on brings the folders to."""
    state = fold(events)
    old = state.layers
    names = last_snapshots(state, len(old))
    for layer, name in zip(old, names, strict=True):
        if name is not None and not Path(layer.layer or "", "layer.json").exists():
            raise UsageError(
                f"what the bot had written to {layer.host} by then is not on this machine any more",
                "it was applied, thrown away or removed: start a new run",
            )
    if not old:
        return ()
    fresh = open_sandbox(parent.policy, parent.sandbox, run_dir(run_id)).layers
    for layer, source, name in zip(fresh, old, names, strict=True):
        if name is not None:
            share_snapshots(source, layer, name)
    return fresh


def last_snapshots(state: RunState, count: int) -> tuple[str | None, ...]:
    """The last snapshot of each of `count` layers on record, None where there is none."""
    files = state.checkpoint.files if state.checkpoint else ()
    return (*files, *[None] * (count - len(files)))


@asynccontextmanager
async def verifying(spec: RunSpec, on_progress: OnProgress | None) -> AsyncIterator[OpenSandbox]:
    """Sandboxes on new layers of the folders of a run on record (`spec_of`), one after the other; the layers are thrown
    away at the end. UsageError for a run that wrote to its folder directly: doing that again would change it.
    """
    policy = spec.objects.policy
    assert policy is not None
    if any(rule.mode == "rw" for rule in policy.folders):
        raise UsageError("the run wrote to its folder directly (rw): doing it again would change the folder")
    base = run_dir(f"verify-{new_run_id()}")
    layers = (await prepare_sandbox(policy, spec.sandbox, base, on_progress)).layers
    try:
        yield partial(sandbox_on, policy, spec.sandbox, base, layers)
    finally:
        if base.exists():  # read-only folders leave nothing
            await to_thread.run_sync(remove_tree, base)


Work = Sequence[tuple[FolderLayer, str | None, Path | None]]
"""Layers to bring back: to which snapshot, and from whose, where they are new."""


def _to_snapshots(
    run_id: str, backend: str, work: Work, known: Sequence[FolderLayer], without: Mapping[str | None, Sequence[str]]
) -> None:
    """Each layer as its snapshot on record has it, but for what the user threw away of it, by the layer that held it,
    once nothing writes to them any more. Blocks.
    """
    await_gone(run_dir(run_id))
    sweep_backends((backend,))
    for layer, name, source in work:
        thrown = without.get(layer.layer if source is None else str(source), ())
        restore(layer, name, source, without=[decode_path(path) for path in thrown])
    base, kept = run_dir(run_id), {layer.layer for layer in known}
    remove_stale(base)
    for path in base.iterdir() if base.is_dir() else ():
        if path.name.isdecimal() and str(path.resolve()) not in kept:
            remove_tree(path)  # made by a process that died before anything was done in it


async def sandbox_again(
    record: Recorded, state: RunState, on_progress: OnProgress | None
) -> tuple[Sandbox, tuple[str | None, ...], Callable[[], None] | None]:
    """On the layers that the run has; on new ones where they were applied or thrown away. With the snapshots that its
    files are at, and what brings them there (blocks).
    """
    started, history = record.started, record.history
    base, policy, backend = run_dir(started.run_id), started.policy, started.sandbox
    if is_far(backend, policy):  # its folders are not here, and written directly
        return await prepare_sandbox(policy, backend, base, on_progress), (), None
    layers, names = state.layers, last_snapshots(state, len(policy.folders) + len(policy.lent))
    without = {layer.layer: layer.without for layer in changes.facts(history).layers}
    restoring = partial(_to_snapshots, started.run_id, backend, without=without)
    there = [layer.layer is not None and not layer.is_lost for layer in layers]  # before new ones take their places
    if layers and not any(layer.is_lost for layer in layers):
        work = [(layer, name, None) for layer, name in zip(layers, names, strict=True)]
        return sandbox_on(policy, backend, base, layers), names, partial(restoring, work, layers)
    fresh = await prepare_sandbox(policy, backend, base, on_progress)
    moved = [
        (new, name, Path(old.layer))
        for new, name, old, kept in zip(fresh.layers, names, layers, there, strict=False)
        if kept and old.layer is not None
    ]
    return fresh, (None,) * len(names), partial(restoring, moved, (*layers, *fresh.layers))


def bring_back(history: Sequence[RunEvent]) -> bool:
    """Make the folders of a run that the machine went down with what they were at its last turn on record.

    Nobody had synced what the bot wrote: a layer may hold anything then, a snapshot does not. For who decides on the
    changes; `resume` does it anyway. False when there was no need: the run came to an end, or the machine is still up.
    Blocks. Raises what `restore` does.
    """
    started, state = history[0], fold(history)
    if not isinstance(started, RunStarted) or not changes.went_down(history):
        return False
    if is_far(started.sandbox, started.policy):
        return False
    if not started.driver.startswith(IN_PROCESS) and not bot_of(started).loops:
        return False  # no snapshot of its files was ever taken
    names = last_snapshots(state, len(state.layers))
    work = [
        (layer, name, None)
        for layer, name in zip(state.layers, names, strict=True)
        if layer.layer is not None and not layer.is_lost
    ]
    if work:
        _to_snapshots(started.run_id, started.sandbox, work, state.layers, {})
    return bool(work)
