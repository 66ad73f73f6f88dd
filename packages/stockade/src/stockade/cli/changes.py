"""`stockade diff`, `apply`, `undo` and `discard`: what becomes of the changes of a run."""

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import click
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from stockade import changes
from stockade.changes import Progress
from stockade.cli import flags
from stockade.cli.commit import Commit
from stockade.cli.lazy import load
from stockade.cli.opened import on_record
from stockade.cli.ui import review
from stockade.cli.ui.changeset import Item, chosen_of, files_of, items_of, some_files
from stockade.cli.ui.console import can_ask, moves_cursor, progress, results
from stockade.cli.ui.failures import say
from stockade.cli.ui.picking import Picker
from stockade.cli.ui.review import YES, Decider, ask_person
from stockade.cli.ui.safe import hide, moment, one_line, result_text, screen
from stockade.core.errors import FolderMoved, LayerLost, UsageError
from stockade.core.events import ChangesApplied, ChangesUndone, RunEvent, RunStarted
from stockade.core.ports import Deciding, Differ, RunStore
from stockade.core.secrets import EXACT
from stockade.run_lock import cleanup, is_locked
from stockade.runtime import records, sandboxes
from stockade.runtime.settings import Settings
from stockade_sandbox.git_links import is_repository
from stockade_sandbox.overlay import HostSide, TakenBack
from stockade_sandbox.overlay.safe_fs import encode_path
from stockade_sandbox.results import shown_path

_LEFT_SHOWN = 20
_TASK_SHOWN = 60
_SOON_S = 1.0
_TOO_LARGE = "too large for a patch"
_GITS = "git keeps it itself, and takes no patch of it"
_FOR_GIT = re.compile(r"(?:directory [^\n]*\n)?diff --git ")
_RUN = flags.run(required=False)


@contextmanager
def _opened(
    values: dict[str, Any], run: str | None, *, applied: bool = False, caches: bool = False
) -> Iterator["_Run"]:
    """The run that is meant; which one is said where it was not named."""
    with on_record(values) as (store, settings):
        if run is not None:
            run_id = anyio.run(store.find, run)
        elif applied:
            run_id = records.newest_applied(Path.cwd())
        else:
            run_id = anyio.run(records.newest_undecided, store, sandboxes.reviewer(), Path.cwd())
        events = anyio.run(store.events, run_id)
        if run is None:
            started = events[0]
            assert isinstance(started, RunStarted)
            say(f"run {run_id}: {one_line(started.task, _TASK_SHOWN)}")
        try:
            yield _Run(store, settings, run_id, events, caches=caches)
        finally:
            cleanup(run_id)


class _Run:
    """A run on record, and the changes of it."""

    def __init__(
        self, store: RunStore, settings: Settings, run_id: str, events: list[RunEvent], *, caches: bool
    ) -> None:
        self._store, self.settings, self.run_id, self.events = store, settings, run_id, events
        self.reviewer = sandboxes.reviewer(caches=caches)

    @property
    def facts(self) -> review.RunFacts:
        return review.facts(self.events)

    @property
    def applied(self) -> tuple[str, ...]:
        """The paths that were applied, and not taken back since."""
        paths = dict[str, None]()
        for event in self.events:
            if isinstance(event, ChangesApplied):
                paths |= dict.fromkeys(event.paths)
            elif isinstance(event, ChangesUndone):
                paths = {path: None for path in paths if path not in event.paths}
        return tuple(paths)

    def record(self, event: RunEvent) -> None:
        anyio.run(self._store.append, self.run_id, [event])
        self.events = [*self.events, event]
        if self.settings.front.json_lines:
            print(event.line, flush=True)

    def decider(self) -> Decider:
        return Decider(self.run_id, progress(), self.reviewer, self.record)

    def end(self, **values: Any) -> None:
        """The last line of --json."""
        if self.settings.front.json_lines:
            print(json.dumps(screen().data({"type": "result", "run": self.run_id, **values})))

    def drop_worktrees(self) -> list[str]:
        """Those that nothing came of; what stays, in words."""
        layers, drop = self.facts.layers, load("runtime.removing:drop_worktrees")
        found: list[str] = anyio.run(partial(drop, self._store, self.run_id, layers, with_commits=False))
        return found

    def settle(self, *, wanted: bool = True) -> bool:
        """Complete what was cut off, and see that all is there; whether anything was. UsageError while it runs;
        LayerLost.

        Not `wanted`: it will be thrown away.
        """
        if is_locked(self.run_id):
            raise UsageError(f"run {self.run_id} is still under way", "wait for its end, or stop it")
        if wanted and changes.went_down(self.events) and load("runtime.resume:bring_back")(self.events):
            say("the machine went down with this run: its changes are those of its last turn on record")
        was_cut_off = sum(map(self.reviewer.recover, self.facts.layers)) > 0
        changes.complete(self.reviewer, self.events, self.record)
        if was_cut_off:
            say("an earlier apply or undo of this run was cut off: it is complete now")
        found = self.facts
        review.check_kept(found)
        if found.discarded is not None:  # cut off before its layers were removed
            review.discard(self.reviewer, found.layers)
        return was_cut_off

    def pending(self) -> list[review.Pending]:
        """What can be decided on. NothingLeft when there is nothing, saying why."""
        found = self.facts
        if work := review.pending(self.reviewer, found.layers):
            return work
        review.discard(self.reviewer, found.layers)
        sandboxes.sweep(self.run_id)
        what = f"the changes of run {self.run_id} were"
        if found.discarded is not None:
            raise NothingLeft(f"{what} discarded on {moment(found.discarded.at)}")
        if changes.taken_back(TakenBack(), self.events):
            when = f" on {moment(found.undone.at)}" if found.undone is not None else " in part"
            raise Undone(f"{what} taken back{when}", f"stockade apply {self.run_id}")
        if found.applied is not None:
            undo = f"stockade undo {self.run_id} takes them back"
            raise NothingLeft(f"{what} already applied on {moment(found.applied.at)}", undo)
        raise NothingLeft(f"run {self.run_id} changed nothing that is still to be decided on")

    def to_apply(self) -> list[Item]:
        """What there is now, undone or never applied."""
        again, reviewer = TakenBack(), sandboxes.reviewer(caches=True)
        return [
            *files_of(reviewer, review.pending(reviewer, self.facts.layers)),
            *files_of(again, changes.taken_back(again, self.events)),
        ]


class NothingLeft(UsageError):
    """There is no change to decide on. An error for whoever wants to decide, none for whoever wants to see."""


class Undone(NothingLeft):
    """They were applied and taken back: they can be applied again."""


@contextmanager
def _shown(*, plain: bool) -> Iterator[Progress]:
    """A bar on the terminal, for what takes longer than a moment."""
    console, begun = progress(plain=plain), time.monotonic()
    if not moves_cursor(console, plain=plain):
        yield changes.quietly
        return
    bar = Bar(
        TextColumn("{task.description}"),
        BarColumn(complete_style="magenta", style="dim"),
        MofNCompleteColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task("", start=False)

    def show(what: str, done: int, total: int) -> None:
        if time.monotonic() - begun > _SOON_S:
            bar.update(task, description=what, completed=done, total=total)
            bar.start()

    try:
        yield show
    finally:
        bar.stop()


@click.command("diff", short_help="Pending changes of a run (a git patch when piped).")
@_RUN
@click.option("--host", is_flag=True, help="Show the host's side: what changed here since the run began.")
@click.option("--show-secrets", is_flag=True, help="Do not hide secrets.")
@click.option("-y", "--side-by-side", "beside", is_flag=True, help="Both sides beside each other, on a terminal.")
@click.option("--caches", is_flag=True, help="Include caches: __pycache__ and the like.")
@flags.offered(flags.JSON, flags.STORE)
def diff(run: str | None, host: bool, show_secrets: bool, beside: bool, caches: bool, **values: Any) -> int:
    """Pending changes of a run; in $PAGER where that is set, to a pipe as a patch for `git apply`.

    Without RUN the newest run of this folder with such changes. What is to be hidden is masked on a terminal; a patch
    that holds it is refused without --show-secrets.
    """
    with _opened(values, run, caches=caches) as found:
        reviewer: Differ = found.reviewer
        try:
            found.settle()
            pending = found.pending()
        except NothingLeft as nothing:
            say(nothing.message, nothing.hint)
            if host or not isinstance(nothing, Undone):
                return 0
            reviewer = TakenBack()
            pending = changes.taken_back(reviewer, found.events)
        if show_secrets:
            hide(EXACT)
        else:
            review.view(found.events, found.settings.options.redact).check_files()
        if host:
            reviewer = HostSide()
            pending = review.pending(reviewer, [one.layer for one in pending])
            if not pending:
                say(f"nothing of what run {found.run_id} changed has changed here since")
                return 0
        terminal = sys.stdout.isatty()
        if found.settings.front.json_lines:
            lines = _json_lines(reviewer, pending)
            if terminal:
                print(*map(result_text, lines), sep="\n")
            else:
                review.write_patch(f"{line}\n" for line in lines)
        elif terminal:
            console = results(plain=found.settings.front.plain)
            review.show_all(console, reviewer, pending, side_by_side=beside)
        else:
            review.write_patch(_patches(reviewer, pending))
        return 0


def _json_lines(reviewer: Differ, pending: list[review.Pending]) -> Iterator[str]:
    for one in pending:
        for change in one.changes:
            patch = reviewer.unified_diff(one.layer, change)
            yield json.dumps({**asdict(change), "folder": one.layer.host, "diff": patch})


def _patches(reviewer: Differ, pending: list[review.Pending], left: list[str] | None = None) -> Iterator[str]:
    """Those that git can apply, and what it needs to know beside them is said; what is left out is in `left` too."""
    for one in pending:
        if (place := review.place_in_git(one.layer)) is not None:
            command = f"git apply --directory={shlex.quote(place)}"
            say(f"git takes the paths of this patch from the root of its repository, not from {place}", command)
        renames = reviewer.renames(one.layer, one.changes)
        old = {renamed.old for renamed in renames.values()}
        for change in one.changes:
            if change.path in old:
                continue
            patch = reviewer.unified_diff(one.layer, change, renames.get(change.path), review.refuse_hidden)
            is_gits = is_repository(Path(one.layer.host)) or ".git" in change.path.split("/")
            is_left = change.entry == "file" and not _FOR_GIT.match(patch)
            reason = change.refused or (_GITS if is_gits else _TOO_LARGE if is_left else "")
            if reason:
                say(f"left out: {one_line(change.path)}: {reason}")
                if left is not None:
                    left.append(change.path)
            else:
                yield patch


@click.command("apply", short_help="Apply a run's changes to the folder.")
@_RUN
@click.option("--flagged", is_flag=True, help="Include what runs by itself on this machine later.")
@click.option("--force", is_flag=True, help="Overwrite files that changed here since the run began.")
@click.option("--merge", is_flag=True, help="Merge files that changed on both sides; conflicts stay as they are here.")
@click.option("--caches", is_flag=True, help="Include caches: __pycache__ and the like.")
@click.option("--only", multiple=True, metavar="PATH", help="Only this file, or what is in this folder; also several.")
@click.option("-f", "--files", is_flag=True, help="Choose files and hunks one by one.")
@click.option("--commit", is_flag=True, help="Commit them with git; hooks do not run, nothing is pushed.")
@click.option("-m", "--message", metavar="TEXT", help="The message of the commit; by default the task.")
@click.option("--branch", metavar="NAME", help="Commit on this new branch, and switch to it.")
@click.option("--patch", type=click.Path(path_type=Path), metavar="FILE", help="Only write a patch, to a new file.")
@flags.offered(flags.JSON, flags.STORE)
def apply(
    run: str | None, caches: bool, patch: Path | None, only: tuple[str, ...], files: bool, **values: Any
) -> int:  # fmt: skip
    """Write a run's changes to the folder, or again what was undone. Status 1 when something is left out or conflicts.

    Without RUN the newest run of this folder with changes to decide on. `stockade undo` takes it back.
    """
    how = {name: values.pop(name) for name in ("flagged", "force", "merge")}
    commit = Commit(values.pop("message"), values.pop("branch"), wanted=values.pop("commit"))
    if patch is not None and (commit.wanted or any(how.values()) or files):
        raise UsageError("--patch writes a file and nothing to the folder", "leave the other flags out")
    if files and (how["merge"] or not can_ask(no_input=False)):
        raise UsageError("--files asks on a terminal, and merges nothing", "--only PATH chooses without a question")
    with _opened(values, run, caches=caches) as found:
        was_cut_off = found.settle()
        commit.check(found.facts.layers)
        try:
            pending = found.pending()
        except Undone:
            taken = TakenBack()
            work = changes.taken_back(taken, found.events)
            work = _only(taken, work, only) if only else work
            if patch is not None:
                return _write(found, taken, work, patch)
            work = _picked(found, taken, work) if files else work
            return _move(found, "applied", force=how["force"], commit=commit, work=work if only or files else None)
        except NothingLeft as nothing:
            if commit.wanted and (commits := commit.make(found.facts, found.applied)):
                found.end(commits=commits)
                return 0
            if not was_cut_off or patch is not None:
                raise
            say(nothing.message, nothing.hint)
            return 0
        if only:
            pending = _only(found.reviewer, pending, only)
        if files:
            pending = [replace(one, reviewed=found.reviewer.digests(one.layer, one.changes)) for one in pending]
            pending, how["flagged"] = _picked(found, found.reviewer, pending), True
        return _apply(found, pending, how, commit) if patch is None else _write(found, found.reviewer, pending, patch)


def _only(reviewer: Differ, pending: list[review.Pending], paths: Iterable[str]) -> list[review.Pending]:
    """What is at these paths and below, a renamed file under both of its names. UsageError for one with no change."""
    wanted = {encode_path(os.path.normpath(path)): False for path in paths}
    work = []
    for one in pending:
        items = []
        for item in items_of(reviewer, one):
            names = {shown_path(one.layer.inside, change.path) for change in item.changes}
            hit = [path for path in wanted if any(f"{name}/".startswith(f"{path}/") or path == "." for name in names)]
            wanted |= dict.fromkeys(hit, True)
            items += [item] if hit else []
        if changed := chosen_of(one, items):
            work.append(replace(one, changes=changed, part=True))
    if missing := next((path for path, hit in wanted.items() if not hit), None):
        caches = "; those of caches with --caches" if changes.left_out(reviewer, pending) else ""
        raise UsageError(
            f"nothing was changed at {one_line(missing)}", f"paths are as `stockade diff` names them{caches}"
        )
    return review.released(work, wanted)


def _picked(found: _Run, reviewer: Differ, pending: list[review.Pending]) -> list[review.Pending]:
    """What the user chooses; a comment is a message that the bot can be given."""
    picked = Picker(progress(plain=found.settings.front.plain), reviewer, ask_person).run(pending)
    if picked.comments:
        words = "\n\n".join(picked.comments)
        say("the bot is told nothing by itself", f"stockade runs resume {found.run_id} {shlex.quote(words)}")
    return picked.work


def _apply(found: _Run, pending: list[review.Pending], how: dict[str, Any], commit: Commit) -> int:
    decider = found.decider()
    commit.look(found.facts.layers, [shown_path(one.layer.inside, c.path) for one in pending for c in one.changes])
    files = files_of(found.reviewer, pending)
    with _shown(plain=found.settings.front.plain) as shown:
        done = decider.apply(pending, **how, progress=shown)
    if done.held and can_ask(no_input=found.settings.front.no_input):
        held, answer = review.held_in(pending), ask_person(review.LATER)
        if names := set(held).intersection(held if answer in YES else review.named(answer)):
            left = review.pending(found.reviewer, found.facts.layers)
            more = decider.apply(review.only_of(left, names), **{**how, "flagged": True})
            done.paths, done.held = done.paths + more.paths, [held[name] for name in held if name not in names]
    undo = f"; stockade undo {found.run_id} takes it back" if done.paths else ""
    say(f"applied {some_files(files, done.paths)}{undo}" if done.paths else "nothing was applied")
    refused = {change.path: change.refused for change in done.refused}
    look_first = {change.path: change.flagged for change in done.held}
    commits = commit.make(found.facts, done.paths)
    if len(found.facts.layers) > 1:
        review.discard_decided(found.reviewer, found.facts.layers)
    found.end(applied=done.paths, refused=refused, look_first=look_first, conflicts=done.conflicts, commits=commits)
    return 0 if done.complete else 1


def _write(found: _Run, reviewer: Differ, pending: list[review.Pending], file: Path) -> int:
    """A patch in a file that is not there yet; nothing is decided."""
    review.view(found.events, found.settings.options.redact).check_files()
    left = list[str]()
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with os.fdopen(fd, "wb") as to:
            review.write_patch(_patches(reviewer, pending, left), to)
    except FileExistsError:
        raise UsageError(f"{file} is there already", "choose another name, or remove it") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None
    except UsageError:
        file.unlink()
        raise
    say(f"wrote {file}; the folder is as it was", f"git apply {shlex.quote(str(file))}")
    found.end(patch=str(file), left=left)
    return 1 if left else 0


@click.command("undo", short_help="Undo an apply, byte for byte.")
@_RUN
@click.option("--force", is_flag=True, help="Include files that were edited since.")
@click.option("--only", multiple=True, metavar="PATH", help="Only this file, or what is in this folder; also several.")
@flags.offered(flags.JSON, flags.STORE)
def undo(run: str | None, force: bool, only: tuple[str, ...], **values: Any) -> int:
    """Take back what was applied, byte for byte. Status 1 when something stays, because it was edited since.

    Without RUN the run that was applied to this folder last. `stockade apply RUN` applies it again.
    """
    with _opened(values, run, applied=True) as found:
        found.settle()
        return _move(
            found,
            "undone",
            force=force,
            only=changes.applied_at(found.events, map(encode_path, only)) if only else None,
        )


def _move(
    found: _Run, done: str, *, force: bool, commit: Commit | None = None, work: list[review.Pending] | None = None,
    only: set[str] | None = None,
) -> int:  # fmt: skip
    files = list[Item]()
    if commit is not None:
        journals = TakenBack()
        every = changes.taken_back(journals, found.events) if work is None else work
        files = files_of(journals, every)
        commit.look(found.facts.layers, [shown_path(one.layer.inside, c.path) for one in every for c in one.changes])
    with _shown(plain=found.settings.front.plain) as shown:
        how: Deciding = {"force": force, "record": changes.recording(found.record), "progress": shown}
        moved = changes.move(found.reviewer, found.facts.layers, back=done == "undone", work=work, only=only, **how)
    for path, why in list(moved.left.items())[:_LEFT_SHOWN]:
        say(f"left as it is: {path}: {why}")
    if len(moved.left) > _LEFT_SHOWN:
        say(f"and {len(moved.left) - _LEFT_SHOWN} more are left as they are")
    again, back = ("undo", "apply") if done == "undone" else ("apply", "undo")
    others = f"stockade {again} {found.run_id} --force takes the others too" if moved.left else None
    if moved.paths:
        counted = some_files(files or found.to_apply(), moved.paths)
        say(f"{done} {counted}; stockade {back} {found.run_id} takes it back", others)
    else:
        say(f"nothing of run {found.run_id} was {done}", others or _why_nothing(found, done))
    commits = commit.make(found.facts, moved.paths) if commit else {}
    found.end(**{done: moved.paths, "left": moved.left}, **({"commits": commits} if commit else {}))
    return 1 if moved.left else 0


def _why_nothing(found: _Run, done: str) -> str | None:
    if done == "undone" and found.facts.undone is not None:
        return f"it was undone on {moment(found.facts.undone.at)}; stockade apply {found.run_id} applies it again"
    return None


@click.command("discard", short_help="Discard a run's changes.")
@_RUN
@click.option("--only", multiple=True, metavar="PATH", help="Only this file, or what is in this folder; also several.")
@flags.offered(flags.JSON, flags.STORE)
def discard(run: str | None, only: tuple[str, ...], **values: Any) -> int:
    """Throw a run's changes away. The folder stays as it is. The bot goes on without them, if it does.

    Without RUN the newest run of this folder with changes to decide on.
    """
    with _opened(values, run) as found:
        try:
            found.settle(wanted=False)
            pending = found.pending()
            files = files_of(found.reviewer, pending)
            if only:
                paths = changes.thrown_away(found.reviewer, pending, map(encode_path, only))
                changes.throw_away(found.reviewer, found.facts.layers, pending, paths, found.record)
                say(f"threw away {some_files(files, paths)} that run {found.run_id} changed")
                found.end(discarded=paths)
                return 0
            what = some_files(files)
        except (FolderMoved, LayerLost):
            pending = [review.Pending(layer, ()) for layer in review.kept_layers(found.facts.layers)]
            what = "all"
        found.decider().discard(pending)
        sandboxes.sweep(found.run_id)
        say(f"threw away {what} that run {found.run_id} changed")
        for left in found.drop_worktrees():
            say(left)
        found.end()
        return 0
