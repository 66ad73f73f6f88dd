"""`stockade run TASK`: a bot does a task in a sandbox; in the end the user decides what is kept."""

import errno
import os
import select
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from os.path import expanduser
from pathlib import Path
from typing import Any

import anyio
import click

from stockade import git
from stockade.changes import facts, kept_layers
from stockade.cli import flags
from stockade.cli.talk import Talk, decide
from stockade.cli.ui import review
from stockade.cli.ui.asciicast import Recorder
from stockade.cli.ui.attention import Attention
from stockade.cli.ui.console import can_ask, moves_cursor, progress
from stockade.cli.ui.failures import (
    INTERRUPTED,
    OutputLost,
    expected,
    piped_input,
    piped_source,
    say,
    unwrap_exception_group,
)
from stockade.cli.ui.interrupt import Interrupt
from stockade.cli.ui.overheard import Live
from stockade.cli.ui.prompts import typed
from stockade.cli.ui.render import Renderer
from stockade.cli.ui.review import YES, ask_person
from stockade.cli.ui.safe import hide, one_line, some
from stockade.cli.ui.summary import closed_folders, detail, result_of, status_of, way_on
from stockade.cli.ui.watch import Scratch, Watch, traced
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent, RunFinished
from stockade.core.ports import RunStore
from stockade.loop.ending import reason_of
from stockade.loop.state import fold
from stockade.paths import read_regular
from stockade.run_lock import cleanup, lock
from stockade.runtime import factory, records, sandboxes, toolchains
from stockade.runtime.factory import MAX_TASK_BYTES
from stockade.runtime.policy import make_policy, unshown
from stockade.runtime.resume import spec_of
from stockade.runtime.settings import Settings
from stockade.runtime.spec import RunSpec
from stockade_sandbox.port import ShowsOutput

TICK_S = 0.1
PATIENCE_S = 1.0
SOCKET_PATIENCE_S = 3.0
"""Where standard input is a socket: programs (Node by default) give one to what they start, and leave it open."""


Make = Callable[[Settings, bool], RunSpec]
"""What a command makes of its settings, the task among them, and of whether somebody is there to be asked."""


def begin(
    task: str | None, given: Mapping[str, Any], *, worktree: bool = False, talk: Talk | None = None,
    make: Make | None = None, name: str = "run",
) -> int:  # fmt: skip
    """A new run of what was typed behind the command `name`; the exit status. `talk` as of carry_out."""
    settings = flags.settings({**given, "task": read_task(task) if task is not None else ""}, here=True)
    front = settings.front
    attended = not (front.quiet or front.json_lines) and can_ask(no_input=front.no_input)
    if task is None:
        asked = ask_task(f"stockade {name} TASK", asks=attended)
        settings = settings.model_copy(update={"options": settings.options.model_copy(update={"task": asked})})
    spec = make(settings, attended) if make is not None else settings.options
    store = records.open_store(spec.store)
    made = begin_worktree(spec) if worktree else None
    try:
        if made is not None:
            spec = in_worktree(spec, made)
        for problem in unshown(make_policy(spec, "overlay")):
            say(one_line(problem, 300), "where it is yours: git worktree repair, or git repack -a -d and no alternates")
        if attended:
            ask_for_toolchain(spec)
        prepare = partial(factory.prepare, spec, store, attended=attended)
        return carry_out(settings, store, prepare, talk=talk)
    finally:
        if made is not None:
            end_worktree(store, made)
        anyio.run(store.close)


def begin_worktree(options: RunSpec) -> git.Worktree:
    """One of the repository that the working folder lies in. UsageError where there is none."""
    folders = make_policy(options, "overlay").folders
    if not folders:
        raise UsageError("--worktree is of a folder in a git repository", "--folder PATH")
    return git.add_worktree(Path(folders[0].host), records.new_run_id())


def in_worktree(options: RunSpec, made: git.Worktree) -> RunSpec:
    """The same in it."""
    first = make_policy(options, "overlay").folders[0]
    return options.model_copy(update={"folder": (f"{made.folder}:{first.mode}", *options.folder[1:])})


def end_worktree(store: RunStore, made: git.Worktree) -> None:
    """It stays where something is in it, or still to be decided on; and what it is called is said."""
    runs = anyio.run(partial(store.runs, folder=str(made.place)))
    events = [anyio.run(store.events, run.run_id) for run in runs if run.problem is None]
    if not any(kept_layers(facts(one).layers) for one in events) and git.drop_worktree(made):
        return
    say(f"the worktree is {made.place}, on the branch {made.branch}", f"git worktree remove {made.place}")


def ask_for_toolchain(options: RunSpec) -> None:
    """Once a folder: whether bots may see those of the user's interpreters and tools that it needs."""
    policy = make_policy(options, "overlay")
    found = toolchains.undecided(options, policy)
    if not any(one.needed for one in found):
        return
    for one in found:
        say(f"{one.name}: {one.because}")
    folder = one_line(policy.folders[0].host)
    if ask_person(f"May bots in {folder} see these of your programs, read-only? [y]es / [N]o: ") in YES:
        toolchains.allow(policy, found)
    else:
        say("they are not seen", "--toolchain none asks no more")


def carry_out(
    settings: Settings, store: RunStore, prepare: Callable[..., Any], *, show_intro: bool = False,
    tape: Recorder | None = None, talk: Talk | None = None,
) -> int:  # fmt: skip
    """The whole command but reading its line: run, answer, review. `prepare` takes the callbacks of a run.

    `show_intro`: scripted actions before the first turn too. `tape` gets every event. `talk`: how the user is asked.
    """
    front, talk = settings.front, talk or Talk()
    console = progress(plain=front.plain)
    live = talk.live and moves_cursor(console, plain=front.plain) and not (front.quiet or front.json_lines)
    renderer = Renderer(console, live=live, show_intro=show_intro, whole=front.verbose)
    renderer.status.raw = front.raw_answers
    watch, interrupt = Watch(front, renderer, tape=tape), Interrupt()
    watch.attention = Attention(console if front.bell and not (front.plain or watch.silent) else None, front.notify)
    talk.bind(watch, interrupt, store)
    for note in settings.notes:
        say(note)
    with closing(watch.attention):
        task = _carry_out(watch, talk, prepare)
    if not isinstance(task, str):
        return task
    history = tuple(anyio.run(store.events, watch.run_id))
    again = partial(factory.prepare, spec_of(history, settings.options, task), store)
    return carry_out(settings, store, again, show_intro=show_intro, tape=tape)


def _carry_out(watch: Watch, talk: Talk, prepare: Callable[..., Any]) -> int | str:
    """The exit status, or the next task of the user."""
    renderer, interrupt, store, front = watch.renderer, talk.interrupt, talk.store, watch.front
    tracing = traced()
    try:
        anyio.run(_run, watch, talk, prepare)
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
    if not front.json_lines and finished.answer and finished.reason != "schema" and not talk.decided:
        watch.answer(finished.answer)
    if watch.silent and watch.lost is None and finished.status != "done":
        say(f"{finished.status} ({finished.reason}): {detail(finished)}", way_on(watch.facts))
    if not watch.silent and watch.scratch is not None and (lost := watch.scratch.words()):
        say(lost, "give --folder PATH to keep them")
    task = _decide(watch, talk)
    if front.json_lines:
        watch.write({**result_of(watch.facts), **_facts(watch, store)})
    if watch.lost is not None:
        raise OutputLost(watch.lost)
    if interrupt.pressed:
        say(
            "interrupted: the run is closed and on record",
            talk.way_on() or f"to go on: stockade runs resume {watch.run_id}",
        )
        return INTERRUPTED
    if task:
        return task
    if not watch.silent and (words := talk.way_on()):
        say("the run is closed and on record", words)
    return status_of(finished)


def _decide(watch: Watch, talk: Talk) -> str | None:
    """On what the run has changed, where the user was not asked yet; words of theirs for the bot."""
    task = None
    if talk.decided:
        talk.after()
        if talk.failed is not None:
            cleanup(watch.run_id)
            raise talk.failed
    else:

        def record(event: RunEvent) -> None:
            anyio.run(talk.store.append, watch.run_id, [event])
            watch.event(event)

        asks = talk.asks and talk.still and not talk.interrupt.pressed
        task = decide(watch, sandboxes.reviewer(), record, ask_person if asks else None)
    cleanup(watch.run_id)
    return task


def _facts(watch: Watch, store: RunStore) -> dict[str, Any]:
    """What the bot tells of its run, beside what every run has."""
    bot = watch.prepared.parts.bot if watch.prepared else None
    return bot.facts(anyio.run(store.events, watch.run_id)) if bot is not None and watch.run_id else {}


async def _run(watch: Watch, talk: Talk, prepare: Callable[..., Any]) -> None:
    """From preparing to the last event. Returns early when it is interrupted."""
    renderer, silent = watch.renderer, watch.silent
    try:
        async with anyio.create_task_group() as group:
            watch.stop = group.cancel_scope.cancel
            with talk.interrupt.cancelling(group.cancel_scope.cancel):
                group.start_soon(_tick, watch)
                prepared: factory.Prepared = await prepare(
                    on_event=watch.heard,
                    on_text=None if silent else renderer.text,
                    on_progress=None if silent else renderer.progress,
                )
                hide(prepared.parts.redactor)
                if prepared.note and not silent:
                    renderer.note(prepared.note)
                _warn(prepared)
                if prepared.parts.bot.enters:
                    watch.scratch = Scratch(prepared.parts.sandbox, prepared.started.policy)
                    boxes = (*prepared.parts.toolboxes, watch.scratch)
                    prepared = replace(prepared, parts=replace(prepared.parts, toolboxes=boxes))
                watch.prepared = prepared = talk.attach(prepared, group)
                renderer.catch_up(prepared.history)
                watch.facts.layers = prepared.parts.sandbox.layers
                if isinstance(sandbox := prepared.parts.sandbox, ShowsOutput):
                    renderer.redactor, sandbox.on_output = prepared.parts.redactor, watch.output
                run_id = prepared.started.run_id
                with lock(run_id, stoppable=True, detached=talk.detached), _told(watch, run_id, talk):
                    await _to_the_end(prepared, watch, talk.store)
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
    if sandboxes.is_far(prepared.started.sandbox):
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
            run_id, why = prepared.started.run_id, _unforeseen(error)
            turns = fold(await store.events(run_id)).readable
            ending = RunFinished(at=prepared.parts.clock.now(), status="failed", turns=turns, **why)
            await store.append(run_id, [ending])
            watch.event(ending)
        raise


def _unforeseen(error: Exception) -> dict[str, Any]:
    """Reason and detail of an error that the loop lets through: a mistake that came to light late, or a bug."""
    known = expected(error)
    if known is not None:
        return {"reason": reason_of(known), "detail": str(known)}
    return {"reason": "bug", "detail": f"{type(error).__name__}: {error}"}


@contextmanager
def _told(watch: Watch, run_id: str, talk: Talk) -> Iterator[None]:
    """Other terminals see what its commands write, where they do not read its log."""
    if talk.detached or watch.prepared is None:
        yield
        return
    watch.live = Live(run_id, watch.prepared.parts.redactor)
    try:
        yield
    finally:
        watch.live.close()
        watch.live = None


async def _tick(watch: Watch) -> None:
    while True:
        await anyio.sleep(TICK_S)
        watch.renderer.tick()
        if watch.live is not None:
            watch.live.tick()


def _after_a_bug(watch: Watch) -> None:
    """The run is closed on record, but its end was not foreseen: what was written is kept and nothing else left."""
    assert watch.facts.started is not None
    run_id = watch.facts.started.run_id
    if review.pending(sandboxes.reviewer(), watch.facts.layers):
        say(review.kept(run_id))
    cleanup(run_id)
    if watch.front.json_lines:
        watch.write(result_of(watch.facts))


ASKED = "Enter the task, with as much detail as possible: "


def ask_task(usage: str, *, asks: bool) -> str:
    """UsageError where nobody can be asked, click.Abort at the end of input."""
    if not asks:
        raise UsageError("there is no task", usage)
    while not (line := ask_line(ASKED)):
        pass
    return line


def ask_line(question: str) -> str:
    """click.Abort at the end of input."""
    line = anyio.run(partial(typed, question, fresh=True))
    if line is None:
        raise click.Abort
    return line


def read_task(text: str) -> str:
    """With what is piped in beside it, named as such. UsageError when it cannot be read, is no text or too large."""
    if text == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed: there is no task to read", "stockade run TASK")
        return _decoded(sys.stdin.buffer.read(MAX_TASK_BYTES + 1), "standard input")
    if text.startswith("@"):
        path = Path(expanduser(text[1:]))
        try:
            return _with_piped(_decoded(read_regular(path, MAX_TASK_BYTES), str(path)))
        except OSError as error:
            hint = "pipe it in, and write - as the task" if error.errno == errno.EINVAL else None
            raise UsageError(f"the task file {path} cannot be read: {error.strerror}", hint) from None
    return _with_piped(text.encode(errors="surrogateescape").decode(errors="replace"))


def _with_piped(task: str) -> str:
    source = piped_source()
    if source is None or not task.strip():
        return task
    is_socket = stat.S_ISSOCK(os.fstat(source).st_mode)
    if not select.select([source], [], [], SOCKET_PATIENCE_S if is_socket else PATIENCE_S)[0]:
        if is_socket:
            say("nothing came over standard input: it is not read", "later needs a pipe: cat | stockade run TASK")
            return task
        say("waiting for what is piped in", "end it by Ctrl-D; where there is nothing: </dev/null")
    data = piped_input(MAX_TASK_BYTES)
    if len(data) > MAX_TASK_BYTES:
        what = f"what is piped in is larger than {MAX_TASK_BYTES} bytes"
        raise UsageError(what, "put it in a file, use --copy FILE, and name it in the task")
    if not data.strip():
        return task
    text = data.decode(errors="replace")
    return f"{task}\n\nStandard input, {some(len(data), 'byte')}, which the user piped in beside the task:\n\n{text}"


def _decoded(data: bytes, where: str) -> str:
    if len(data) > MAX_TASK_BYTES:
        raise UsageError(f"the task is larger than {MAX_TASK_BYTES} bytes", "put it in a file and use --copy")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"the task in {where} is not UTF-8 text") from None
