"""What the MCP server does, without a word of MCP: runs, commands in sandboxes, and the record. Errors are ours.

`sandbox_exec`, `runs_list`, `run_show` and `run_diff` are tools as they stand: hints and docstring are what a client is
told.
"""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import anyio
import anyio.from_thread
import anyio.to_thread
from pydantic import Field

from stockade import changes
from stockade.core.errors import UsageError
from stockade.core.events import ActionFinished, ActionStarted, AnswerUnderstood, RunEvent, RunStarted
from stockade.core.ports import RunStore
from stockade.core.secrets import Redactor, View, build_redactor, view_of
from stockade.loop.observe import clip, describe
from stockade.loop.run_context import Dependencies
from stockade.mcp_server.results import Applied, Executed, Finished, Recorded
from stockade.paths import run_dir
from stockade.run_lock import cleanup, is_locked, lock, status_now
from stockade.runtime import factory, records, sandboxes
from stockade.runtime.bots import find_bot, with_defaults
from stockade.runtime.policy import environment_of, make_policy
from stockade.runtime.resume import bring_back
from stockade.runtime.roots import DEFAULT_TIMEOUT_S, Roots
from stockade.runtime.spec import RunSpec
from stockade_sandbox.results import what_changed

MAX_RUNS = 4
"""At once; who asks for more is told so."""
MAX_TEXT = 60_000
MAX_STEP_TEXT = 1500
Mode = Literal["ro", "overlay"]
Heard = Callable[[RunEvent], None]
Command = Annotated[str, Field(min_length=1, max_length=100_000, description="For bash.")]
Folder = Annotated[
    str | None,
    Field(max_length=4096, description="A folder of this server to work in: a path, or relative to the first."),
]
Run = Annotated[str, Field(min_length=1, max_length=200, description="A run's id, the beginning of one, or `last`.")]
Seconds = Annotated[float | None, Field(gt=0, le=86_400, description="When it is ended; less than the server's limit.")]
"""What a client may say; it is checked, and described to it, by these."""


@dataclass(frozen=True, slots=True)
class Service:
    """`options`: what the user who started the server set; a client may ask for less, never for more. `own`: the same
    with what the file of their bot sets, as it was then.
    """

    options: RunSpec
    roots: Roots
    running: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(MAX_RUNS))
    own: RunSpec = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "own", with_defaults(self.options, find_bot(self.options.bot)))

    @classmethod
    def of(cls, options: RunSpec) -> "Service":
        """What `options` say; clients may name its folders."""
        return cls(options, Roots.of(options.folder))

    @property
    def redactor(self) -> Redactor:
        """For all that a client gets to see."""
        return build_redactor(os.environ, environment_of(self.own), self.own.redact)

    @property
    def reaches(self) -> bool:
        """Whether what runs inside can change anything outside."""
        policy = make_policy(self.own.model_copy(update={"folder": ()}), "overlay")
        outside = policy.network.mode != "none" or policy.credentials or policy.ssh_agent
        return bool(outside) or not sandboxes.is_sealed(self.options.sandbox)

    def options_for(self, folder: str | None, mode: Mode, **more: Any) -> RunSpec:
        folders = () if folder is None else (self.roots.allowed(folder, mode),)
        given = {name: value for name, value in more.items() if value is not None}
        return self.options.model_copy(update={"folder": folders, **given})

    @asynccontextmanager
    async def _room(self) -> AsyncIterator[None]:
        try:
            self.running.acquire_nowait()
        except anyio.WouldBlock:
            raise UsageError(f"{MAX_RUNS} runs are under way", "wait for one of them") from None
        try:
            yield
        finally:
            self.running.release()

    @asynccontextmanager
    async def _store(self) -> AsyncIterator[RunStore]:
        store = records.open_store(self.options.store)
        try:
            yield store
        finally:
            with anyio.CancelScope(shield=True):
                await store.close()

    async def run_bot(
        self,
        heard: Heard,
        task: str,
        folder: str | None = None,
        mode: Mode = "overlay",
        bot: str | None = None,
        check: str | None = None,
        max_turns: int | None = None,
        timeout_s: float | None = None,
        attach: Callable[[Dependencies], None] | None = None,
    ) -> Finished:
        """A run to its end, and what it came to. Cancelled, it is on record as stopped, with what it wrote. `attach`
        gives it somebody to ask.
        """
        if bot is not None and bot.endswith(".toml"):
            raise UsageError(f"there is no bot {bot!r}", "a bot is a name here, never a file")
        own = self.own if bot is None else with_defaults(self.options, find_bot(bot))
        turns = None if max_turns is None else int(_bounded(own, "max_turns", max_turns, max_turns))
        timeout = _bounded(own, "timeout", timeout_s, DEFAULT_TIMEOUT_S)
        limits = {"task": task, "bot": bot, "check": check, "max_turns": turns, "timeout": timeout}
        options = self.options_for(folder, mode, **limits)
        async with self._room(), self._store() as store:
            prepared = await factory.prepare(options, store, on_event=heard)
            if attach is not None:
                attach(prepared.parts)
            run_id = prepared.started.run_id
            with lock(run_id):
                finished = await factory.start(prepared)
        return Finished(
            run=run_id,
            status=finished.status,
            reason=finished.reason,
            detail=finished.detail,
            verified=finished.verified,
            changed_tests=list(finished.changed_tests[:200]),
            answer=clip(finished.answer or "", MAX_TEXT),
            turns=finished.turns,
            usage=finished.usage,
            changes=list(finished.changes[:200]),
            model=prepared.started.model,
        )

    async def sandbox_exec(self, command: Command, folder: Folder = None, timeout_s: Seconds = None) -> Executed:
        """Run one command in a fresh sandbox, in /workspace. What it writes is thrown away."""
        options = self.options_for(folder, "overlay")
        policy, run_id = make_policy(options, "overlay"), records.new_run_id()
        async with self._room():
            with lock(run_id):
                sandbox = await sandboxes.prepare_sandbox(policy, options.sandbox, run_dir(run_id))
                try:
                    async with sandbox:
                        found = await sandbox.run(command, timeout_s)
                finally:
                    with anyio.CancelScope(shield=True):
                        await anyio.to_thread.run_sync(changes.discard, sandboxes.reviewer(), sandbox.layers)
        found = self.redactor.output(found)  # before it is clipped
        return Executed(
            exit_code=found.exit_code,
            stdout=clip(found.stdout.decode(errors="backslashreplace"), MAX_TEXT),
            stderr=clip(found.stderr.decode(errors="backslashreplace"), MAX_TEXT),
            timed_out=found.timed_out,
            truncated=found.truncated_bytes > 0,
        )

    async def runs_list(self, limit: Annotated[int, Field(ge=1, le=100)] = 20) -> list[Recorded]:
        """The newest runs on record."""
        async with self._store() as store:
            found = await store.runs()
        return [
            Recorded(
                run=one.run_id,
                task=clip(one.task, 200),
                bot=one.bot,
                model=one.model,
                turns=one.turns,
                started=one.started,
                status=status_now(one.run_id, one.status, one.driver),
            )
            for one in found[:limit]
        ]

    async def run_show(self, run: Run = "last") -> str:
        """What a run did, step by step."""
        run_id, events = await self._read(run)
        redactor = self._view(events).redactor
        events = [redactor.event(event) for event in events]
        lines = [line for event in events if (line := _told(event))]
        found = changes.facts(events)
        if found.finished is not None:
            end = found.finished
            lines.append(f"{end.status} ({end.reason}): {end.detail}\nanswer: {end.answer or ''}".strip())
        return clip("\n\n".join(lines) or f"run {run_id} has not begun", MAX_TEXT)

    async def run_diff(self, run: Run = "last") -> str:
        """Pending changes of a run, as a unified diff."""
        run_id, events = await self._read(run)
        view = self._view(events)

        def work() -> str:
            reviewer = sandboxes.reviewer()
            changes.check_kept(facts := changes.facts(events))
            found = changes.pending(reviewer, facts.layers)
            return "".join(reviewer.unified_diff(one.layer, change) for one in found for change in one.changes)

        if not (diff := await anyio.to_thread.run_sync(work)):
            return f"run {run_id} changed nothing that is still to be decided on"
        view.check_files()
        names = ", ".join(view.redactor.names(diff))
        note = f"Not to be applied as a patch: masked in it, unchanged in the files: {names}.\n" if names else ""
        return note + clip(view.redactor.text(diff), MAX_TEXT)

    async def summary(self, run: str) -> str:
        """What an apply would write, in a few lines for the user."""
        run_id, work = await self._pending(run)
        lines = [
            f"{change.kind} {one.layer.host}/{change.path} ({what_changed(change)})"
            + (f" {'HELD' if change.held else 'CHECK'}: {change.flagged}" if change.flagged else "")
            for one in work
            for change in one.changes
            if not change.refused
        ]
        shown = lines[:30] + ([f"and {len(lines) - 30} more"] if len(lines) > 30 else [])
        return f"Run {run_id} wants to write:\n" + "\n".join(shown)

    async def run_apply(self, run: str, *, flagged: bool) -> Applied:
        """Write its changes to the folder. Who may say so is decided before."""
        run_id, work = await self._pending(run)
        done = changes.Applied()

        async def append(event: RunEvent) -> None:
            async with self._store() as store:
                await store.append(run_id, [event])

        def carry_out() -> None:
            def record(event: RunEvent) -> None:
                anyio.from_thread.run(append, event)

            changes.apply(sandboxes.reviewer(), work, done, flagged=flagged, record=changes.recording(record))

        with anyio.CancelScope(shield=True):  # a half that is cancelled would not be on record
            await anyio.to_thread.run_sync(carry_out)
        cleanup(run_id)
        return Applied(
            run=run_id,
            applied=list(done.paths),
            refused={change.path: change.refused or "" for change in done.refused},
            look_first={change.path: change.flagged or "" for change in done.held},
        )

    async def _pending(self, run: str) -> tuple[str, list[changes.Pending]]:
        run_id, events = await self._read(run)
        if is_locked(run_id):
            raise UsageError(f"run {run_id} is still under way", "wait for its end")
        found = changes.facts(events)
        for layer in found.layers:
            if layer.layer is not None:
                self.roots.allowed(layer.host, "overlay")
        await anyio.to_thread.run_sync(bring_back, events)
        changes.check_kept(found)
        work = await anyio.to_thread.run_sync(changes.pending, sandboxes.reviewer(), found.layers)
        if not work:
            raise UsageError(f"run {run_id} changed nothing that is still to be decided on")
        return run_id, work

    def _view(self, events: Sequence[RunEvent]) -> View:
        started = events[0]
        assert isinstance(started, RunStarted)
        return view_of(started, {**os.environ, **environment_of(self.options)}, self.options.redact)

    async def _read(self, run: str) -> tuple[str, list[RunEvent]]:
        async with self._store() as store:
            run_id = await store.find(run)
            return run_id, await store.events(run_id)


def _bounded(options: RunSpec, name: str, wanted: float | None, otherwise: float) -> float:
    most = getattr(options, name) or otherwise
    return min(wanted, most) if wanted else most


def _told(event: RunEvent) -> str:
    match event:
        case RunStarted():
            return f"task: {clip(event.task, MAX_STEP_TEXT)}\nbot {event.bot}, model {event.model}"
        case AnswerUnderstood(answer=answer) if answer.shown:
            return f"[turn {event.turn}] {clip(answer.shown, MAX_STEP_TEXT)}"
        case ActionStarted(action=step):
            return f"[turn {event.turn}] {clip(step.action.model_dump_json(exclude_none=True), MAX_STEP_TEXT)}"
        case ActionFinished(observation=observation):
            return describe(observation, MAX_STEP_TEXT)
        case _:
            return ""
