"""`stockade run TASK`: a bot does a task in a sandbox; in the end the user decides what is kept."""

import errno
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from stockade.approval.approver import Authoriser
from stockade.cli import flags
from stockade.cli.ui import review
from stockade.cli.ui.asciicast import Recorder
from stockade.cli.ui.console import can_ask, moves_cursor, progress
from stockade.cli.ui.drawing import profile_name
from stockade.cli.ui.failures import INTERRUPTED, OutputLost, expected, say, unwrap_exception_group
from stockade.cli.ui.interrupt import Interrupt
from stockade.cli.ui.prompts import AuthorisingUser, PausePrompt, Terminal
from stockade.cli.ui.render import Renderer
from stockade.cli.ui.review import Decider, ask_person
from stockade.cli.ui.safe import hide, one_line, result_text
from stockade.cli.ui.summary import closed_folders, detail, result_of, status_of, way_on
from stockade.cli.ui.watch import Scratch, Watch, traced
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent, RunFinished
from stockade.core.ports import RunStore
from stockade.loop.state import fold
from stockade.paths import read_regular
from stockade.run_lock import cleanup, lock
from stockade.runtime import factory, records, sandboxes, toolchains
from stockade.runtime.factory import MAX_TASK_BYTES
from stockade.runtime.policy import make_policy
from stockade.runtime.settings import Front, Settings
from stockade.runtime.spec import RunSpec

TICK_S = 0.1


def begin(task: str, given: Mapping[str, Any]) -> int:
    """A new run of what was typed; the exit status."""
    settings = flags.settings({**given, "task": read_task(task)})
    front = settings.front
    store = records.open_store(settings.options.store)
    attended = not (front.quiet or front.json_lines) and can_ask(no_input=front.no_input)
    if attended:
        ask_for_toolchain(settings.options)
    try:
        return carry_out(settings, store, partial(factory.prepare, settings.options, store, attended=attended))
    finally:
        anyio.run(store.close)


def ask_for_toolchain(options: RunSpec) -> None:
    """Once a folder: whether bots may see those of the user's interpreters and tools that it needs."""
    policy = make_policy(options, "overlay")
    found = toolchains.undecided(options, policy)
    if not any(one.needed for one in found):
        return
    for one in found:
        say(f"{one.name}: {one.because}")
    folder = one_line(policy.folders[0].host)
    if ask_person(f"May bots in {folder} see these of your programs, read-only? [y]es / [N]o: ") in ("y", "yes"):
        toolchains.allow(policy, found)
    else:
        say("they are not seen", "--toolchain none asks no more")


def carry_out(
    settings: Settings, store: RunStore, prepare: Callable[..., Any], *, show_intro: bool = False,
    tape: Recorder | None = None,
) -> int:  # fmt: skip
    """The whole command but reading its line: run, answer, review. `prepare` takes the callbacks of a run.

    `show_intro`: scripted actions before the first turn too. `tape` gets every event.
    """
    front = settings.front
    console = progress(plain=front.plain)
    live = moves_cursor(console, plain=front.plain) and not (front.quiet or front.json_lines)
    renderer = Renderer(console, live=live, show_intro=show_intro)
    watch, interrupt = Watch(front, renderer, tape=tape), Interrupt()
    for note in settings.notes:
        say(note)
    tracing = traced()
    try:
        anyio.run(_run, watch, interrupt, store, prepare)
    except BaseException:
        if watch.facts.finished is not None:
            _after_a_bug(watch)
        raise
    finally:
        renderer.close()
        _forget_unstarted(watch)
    if tracing and watch.prepared is not None and watch.facts.started is not None:
        tracing(store, watch.prepared)
    finished = watch.facts.finished
    if finished is None:
        say("interrupted before the run began")
        return INTERRUPTED
    if not front.json_lines and finished.answer:
        watch.put(result_text(finished.answer))
    if watch.silent and watch.lost is None and finished.status != "done":
        say(f"{finished.status} ({finished.reason}): {detail(finished)}", way_on(watch.facts))
    if not watch.silent and watch.scratch is not None and (lost := watch.scratch.words()):
        say(lost, "give --folder PATH to keep them")
    _decide(watch, store, may_ask=not interrupt.pressed)
    if front.json_lines:
        watch.write({**result_of(watch.facts), **_facts(watch, store)})
    if watch.lost is not None:
        raise OutputLost(watch.lost)
    if interrupt.pressed:
        say(
            "interrupted: the run is closed and on record",
            way_on(watch.facts) or f"to go on: stockade runs resume {watch.run_id}",
        )
        return INTERRUPTED
    if not watch.silent and (words := way_on(watch.facts)):
        say("the run is closed and on record", words)
    return status_of(finished)


def _facts(watch: Watch, store: RunStore) -> dict[str, Any]:
    """What the bot tells of its run, beside what every run has."""
    bot = watch.prepared.parts.bot if watch.prepared else None
    return bot.facts(anyio.run(store.events, watch.run_id)) if bot is not None and watch.run_id else {}


async def _run(watch: Watch, interrupt: Interrupt, store: RunStore, prepare: Callable[..., Any]) -> None:
    """From preparing to the last event. Returns early when it is interrupted."""
    renderer, silent = watch.renderer, watch.silent
    try:
        async with anyio.create_task_group() as group:
            watch.stop = group.cancel_scope.cancel
            with interrupt.cancelling(group.cancel_scope.cancel):
                group.start_soon(_tick, renderer)
                prepared: factory.Prepared = await prepare(
                    on_event=watch.heard,
                    on_text=None if silent else renderer.text,
                    on_progress=None if silent else renderer.progress,
                )
                hide(prepared.parts.redactor)
                if prepared.note and not silent:
                    renderer.note(prepared.note)
                _warn(prepared)
                watch.scratch = Scratch(prepared.parts.sandbox, prepared.started.policy)
                boxes = (*prepared.parts.toolboxes, watch.scratch)
                watch.prepared = prepared = replace(prepared, parts=replace(prepared.parts, toolboxes=boxes))
                renderer.catch_up(prepared.history)
                watch.facts.layers = prepared.parts.sandbox.layers
                if not silent and can_ask(no_input=watch.front.no_input):
                    pause, stop, quiet = prepared.parts.pause, group.cancel_scope.cancel, renderer.status.end
                    watch.asker = PausePrompt(pause, group, watch.event, stop, interrupt.answered, quiet)
                    interrupt.pause = watch.asker.begin
                    Terminal(renderer.console, quiet).attach(prepared.parts)
                    if isinstance(authoriser := prepared.parts.approver, Authoriser):
                        name = profile_name(prepared.started)
                        AuthorisingUser(authoriser, interrupt, renderer.console, quiet, stop, name).attach()
                with lock(prepared.started.run_id):
                    await _to_the_end(prepared, watch, store)
                group.cancel_scope.cancel()
    except BaseExceptionGroup as group_error:
        raise unwrap_exception_group(group_error) from None
    finally:
        if watch.asker is not None:
            watch.asker.end()


def _warn(prepared: factory.Prepared) -> None:
    """Of what the user has to know, and of what will be in vain."""
    for line in prepared.warnings:
        say(line)
    if prepared.parts.sandbox.backend.startswith("remote"):
        return
    for folder in closed_folders(prepared.started.policy):
        say(f"you cannot write to the folder {folder}", f"chmod u+w {folder}, if it is yours; or give another folder")


def _forget_unstarted(watch: Watch) -> None:
    """A run that was prepared and has no record leaves no layer either: nobody could ever name it."""
    if watch.prepared is not None and watch.facts.started is None and watch.prepared.resumed is None:
        review.discard(sandboxes.reviewer(), watch.facts.layers)
        cleanup(watch.prepared.started.run_id)


async def _to_the_end(prepared: factory.Prepared, watch: Watch, store: RunStore) -> None:
    """The run; and when it breaks in a way nobody foresaw, that is on record too."""
    try:
        await factory.start(prepared)
    except Exception as error:
        if watch.facts.started is not None and watch.facts.finished is None:
            run_id, why = prepared.started.run_id, _unforeseen(error, watch)
            turns = fold(await store.events(run_id)).readable
            ending = RunFinished(at=prepared.parts.clock.now(), status="failed", turns=turns, **why)
            await store.append(run_id, [ending])
            watch.event(ending)
        raise


def _unforeseen(error: Exception, watch: Watch) -> dict[str, Any]:
    """Reason and detail of an error that the loop lets through: a mistake that came to light late, or a bug."""
    known = expected(error)
    if known is not None:
        return {"reason": "model" if watch.in_sandbox else "sandbox", "detail": str(known)}
    return {"reason": "bug", "detail": f"{type(error).__name__}: {error}"}


async def _tick(renderer: Renderer) -> None:
    while True:
        await anyio.sleep(TICK_S)
        renderer.tick()


def _decide(watch: Watch, store: RunStore, *, may_ask: bool) -> None:
    """Apply, throw away, ask or keep. Only a run that succeeded is applied without a look."""
    facts, front = watch.facts, watch.front
    assert facts.started is not None
    assert facts.finished is not None
    run_id = facts.started.run_id
    reviewer = sandboxes.reviewer()

    def record(event: RunEvent) -> None:
        anyio.run(store.append, run_id, [event])
        watch.event(event)

    work = _changed(watch)
    console = watch.renderer.console
    asks = may_ask and not watch.silent and can_ask(no_input=front.no_input)
    decider = Decider(run_id, console, reviewer, record, ask_person if asks else None)
    if work:
        if not watch.silent:
            review.draw(console, reviewer, work)
        _settle(decider, work, front, succeeded=status_of(facts.finished) == 0)
    elif not watch.silent and any(layer.mode == "overlay" and layer.layer for layer in facts.layers):
        watch.renderer.note("nothing changed")
    cleanup(run_id)


def _changed(watch: Watch) -> list[review.Pending]:
    """What there is to decide on; layers that nothing was written to are removed."""
    reviewer = sandboxes.reviewer()
    work = review.pending(reviewer, watch.facts.layers)
    changed = [one.layer for one in work]
    review.discard(reviewer, [layer for layer in watch.facts.layers if layer not in changed])
    return work


def _after_a_bug(watch: Watch) -> None:
    """The run is closed on record, but its end was not foreseen: what was written is kept and nothing else left."""
    assert watch.facts.started is not None
    run_id = watch.facts.started.run_id
    if _changed(watch):
        say(f"changes kept: stockade runs diff|apply|discard {run_id}")
    cleanup(run_id)
    if watch.front.json_lines:
        watch.write(result_of(watch.facts))


def _settle(decider: Decider, work: list[review.Pending], front: Front, *, succeeded: bool) -> None:
    if front.discard:
        decider.discard(work)
    elif front.apply and succeeded:
        decider.apply(work)
    elif front.apply:
        decider.keep("not applied, because the run did not succeed; ")
    elif decider.ask is not None:
        decider.put(work)
    else:
        decider.keep()


def read_task(text: str) -> str:
    """UsageError when a file cannot be read or is no text."""
    if text == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed: there is no task to read", "stockade run TASK")
        return _decoded(sys.stdin.buffer.read(MAX_TASK_BYTES + 1), "standard input")
    if text.startswith("@"):
        path = Path(text[1:]).expanduser()
        try:
            return _decoded(read_regular(path, MAX_TASK_BYTES), str(path))
        except OSError as error:
            hint = "pipe it in, and write - as the task" if error.errno == errno.EINVAL else None
            raise UsageError(f"the task file {path} cannot be read: {error.strerror}", hint) from None
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _decoded(data: bytes, where: str) -> str:
    if len(data) > MAX_TASK_BYTES:
        raise UsageError(f"the task is larger than {MAX_TASK_BYTES} bytes", "put it in a file and use --copy")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"the task in {where} is not UTF-8 text") from None
