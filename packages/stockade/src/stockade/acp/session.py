"""One session of an editor: a run, which goes on from prompt to prompt in one sandbox with one shell, as a chat does.

Its id is the run's. The sandbox comes with the first prompt; after a change of the model, or in another process, the
next prompt goes on in a new one from the record.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import anyio
from acp.helpers import update_agent_message_text, update_agent_thought_text
from anyio import from_thread, to_thread
from anyio.abc import TaskGroup

from stockade import __version__, changes
from stockade.acp.asking import Mode, Modes, User, attach, hook_names
from stockade.acp.deciding import Desk
from stockade.acp.outbox import Outbox
from stockade.acp.story import Live, Story
from stockade.acp.wording import Paths, say
from stockade.core.errors import StockadeError, UsageError
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    ChangesDiscarded,
    MessageInjected,
    RunEvent,
    RunFinished,
    RunStarted,
    SandboxStarted,
)
from stockade.core.messages import Image, ModelInfo
from stockade.core.ports import RunStore
from stockade.core.secrets import EXACT
from stockade.loop.conversation import DECIDED, Conversation, follow_up
from stockade.run_lock import cleanup, is_locked, lock
from stockade.runtime import factory, sandboxes
from stockade.runtime.factory import Prepared, check_task
from stockade.runtime.images import check_sees
from stockade.runtime.policy import make_policy
from stockade.runtime.records import SystemClock
from stockade.runtime.resume import bring_back, spec_of
from stockade.runtime.spec import Objects, RunSpec
from stockade_sandbox.port import ShowsOutput
from stockade_sandbox.results import FolderLayer, Stream

TICK_S = 0.1
LEFT = "the editor has left"
COMMANDS = {
    "apply": "Look at the changes that are not decided on yet, and apply them",
    "undo": "Take back what was applied",
    "discard": "Throw the changes away that are not applied",
}
StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]
_STOPS: dict[str, StopReason] = {"turns": "max_turn_requests", "tokens": "max_tokens", "declined": "refusal"}


@dataclass(slots=True)
class Turn:
    """From a prompt to its end."""

    over: anyio.Event = field(default_factory=anyio.Event)
    finished: RunFinished | None = None
    failed: Exception | None = None
    cancelled: bool = False

    def end(self, finished: RunFinished | None = None, failed: Exception | None = None) -> None:
        """What comes first counts."""
        if not self.over.is_set():
            self.finished, self.failed = finished, failed
            self.over.set()


class Session:
    """`began`: it is on record. `forms`, `terminal`: what its editor can do beside."""

    def __init__(
        self, run_id: str, options: RunSpec, mode: Mode, outbox: Outbox, store: RunStore, *,
        began: bool = False, forms: bool = False, terminal: bool = False,
    ) -> None:  # fmt: skip
        self.id, self.options, self.mode, self.outbox, self.store = run_id, options, mode, outbox, store
        self.model, self._forms, self.began = options.model, forms, began
        self.paths = Paths.of(make_policy(options, "overlay"))
        self.story = Story(self.paths, terminal=terminal)
        self.notes: list[str] = []
        self._preparing = ""
        self.given: dict[str, Any] = {}
        self._turn: Turn | None = None
        self._prepared: Prepared | None = None
        self._modes: Modes | None = None
        self._live = Live(EXACT)
        self._scope = anyio.CancelScope()
        self._task: tuple[str, tuple[Image, ...]] | None = None
        self._leaving = self._discards = False
        self._news, self._ended = anyio.Event(), anyio.Event()
        self._ended.set()
        self._decisions: list[RunEvent] = []
        self._layers: tuple[FolderLayer, ...] = ()
        outbox.full = self._hold

    # What the editor asks for

    async def prompt(self, task: str, images: tuple[Image, ...], group: TaskGroup) -> Turn:
        """The turn, when it is over and all of it was sent."""
        if self._turn is not None:
            raise UsageError("a turn of this session is under way", "wait for it, or cancel it")
        turn = self._turn = Turn()
        try:
            if (command := task.strip().removeprefix("/")) in COMMANDS and task.strip().startswith("/"):
                await self._command(command)
                return turn
            check_task(task)
            await self._gone()
            if self._ended.is_set():
                self._ended, self._leaving, self._discards = anyio.Event(), False, False
                group.start_soon(self._drive, task, images, turn)
            else:
                self._task = task, images
                self._news.set()
            await turn.over.wait()
            return turn
        finally:
            self._turn = None
            await self.outbox.flushed()

    async def cancel(self) -> None:
        """The turn that is under way ends; the sandbox and its shell stay."""
        if (turn := self._turn) is None or turn.over.is_set():
            return
        turn.cancelled = True
        self.outbox.stop_asking()
        if self._prepared is None:
            self._scope.cancel()
            return
        parts = self._prepared.parts
        if parts.conversation is not None:
            await parts.conversation.interrupt(parts.pause, parts.sandbox)

    async def close(self) -> None:
        """The run is closed in order, and its sandbox is gone when this returns."""
        self.outbox.stop_asking()
        if self._prepared is not None:
            self._prepared.parts.pause.stop(LEFT)
        self._scope.cancel()
        await self._ended.wait()

    def use_mode(self, mode: Mode) -> None:
        self.mode = mode
        if self._modes is not None:
            self._modes.mode = mode

    def use_model(self, model: str) -> None:
        """From the next prompt on, in a new sandbox."""
        if self._turn is not None:
            raise UsageError("a turn of this session is under way", "wait for it, or cancel it")
        if model != self.model:
            self.model, self.given["model"] = model, model
            self._leave()

    def _leave(self) -> None:
        self._leaving = True
        self._news.set()

    async def _gone(self) -> None:
        """Where its sandbox is to end, it has."""
        if self._leaving:
            await self._ended.wait()

    # The run

    async def _drive(self, task: str, images: tuple[Image, ...], turn: Turn) -> None:
        finished: RunFinished | None = None
        try:
            with anyio.CancelScope() as self._scope:
                prepared = self._prepared = await self._prepare(task, images)
                with lock(self.id):
                    async with anyio.create_task_group() as beside:
                        beside.start_soon(self._tick)
                        finished = await factory.start(prepared)
                        beside.cancel_scope.cancel()
        except Exception as error:  # noqa: BLE001 (of one session: its prompt is answered with it)
            one = _unwrapped(error)
            (self._turn or turn).end(failed=one)
        finally:
            with anyio.CancelScope(shield=True):
                await self._tidy()
            self._prepared = self._modes = None
            self._ended.set()
            (self._turn or turn).end(finished)

    async def _prepare(self, task: str, images: tuple[Image, ...]) -> Prepared:
        if self.began:
            history = tuple(await self.store.events(self.id))
            today = self.options.model_copy(update=self.given)
            spec = spec_of(history, today, check_task(task), self.given)
        else:
            objects = Objects(run_id=self.id)
            asked = {"task": task, "model": self.model, "approve": self._approve(), "objects": objects}
            spec = self.options.model_copy(update=asked)
        prepared = await factory.prepare(spec, self.store, self._heard, self._text, self._progress, attended=True)
        self.given = {}
        self._notes(prepared, images)
        parts = prepared.parts
        self._layers = parts.sandbox.layers
        self.story.paths = self.paths = Paths.of(prepared.started.policy)
        self._modes = Modes(prepared.started, parts, self.options.approve, self.mode)
        parts = attach(parts, self._modes, User(self.outbox, self.story, self.id), forms=self._forms)
        parts = replace(parts, conversation=Conversation(self._next))
        if isinstance(parts.sandbox, ShowsOutput):
            self._live, parts.sandbox.on_output = Live(parts.redactor), self._output
        known = {"hooks": hook_names(parts), **({"images": images} if images else {})}
        if prepared.resumed is not None:
            return replace(prepared, parts=parts, resumed=prepared.resumed.model_copy(update=known))
        return replace(prepared, parts=parts, started=prepared.started.model_copy(update=known))

    def _approve(self) -> str:
        """Of a new run; the rules of a file are those that the user set."""
        return self.options.approve if self.mode == "rules" and "=" in self.options.approve else self.mode

    def _notes(self, prepared: Prepared, images: Sequence[Image]) -> None:
        unsure = check_sees(images, _info(prepared), prepared.started.model)
        for line in (*self.notes, *prepared.warnings, *unsure):
            self.outbox.put(update_agent_message_text(f"*{line}*\n\n"))
        if prepared.note:
            self.outbox.put(update_agent_thought_text(f"{prepared.note}\n\n"))
        self.notes = []

    async def _next(self, finished: RunFinished) -> Sequence[RunEvent]:
        """Implements loop.conversation.Next: the changes, the end of the turn, and what the user says next."""
        turn = self._turn
        if turn is not None and not turn.cancelled and finished.reason != "user":
            await self._decide(self._desk(sandboxes.reviewer(up=True), self._record))
        if self._discards:
            return ()
        if turn is not None:
            turn.end(finished)
        while (said := await self._said()) is not None:
            try:
                return [*self._word_of_decisions(finished), self._follow_up(finished, *said)]
            except UsageError as error:
                if self._turn is not None:
                    self._turn.end(failed=error)
        return ()

    async def _said(self) -> tuple[str, tuple[Image, ...]] | None:
        """The next prompt; None where this sandbox is to end."""
        while self._task is None and not self._leaving:
            self._news = anyio.Event()
            await self._news.wait()
        said, self._task = self._task, None
        return said

    def _follow_up(self, finished: RunFinished, task: str, images: tuple[Image, ...]) -> RunEvent:
        """UsageError where the bot can do no other task."""
        assert self._prepared is not None
        started, parts = self._prepared.started, self._prepared.parts
        parts.bot.check_resume(started, {"task"}, done=finished.status == "done")
        check_sees(images, parts.model.info, started.model)
        return follow_up(started, hook_names(parts), check_task(task), __version__, SystemClock().now(), images)

    def _word_of_decisions(self, finished: RunFinished) -> list[RunEvent]:
        """To the bot, of what became of its changes."""
        told, self._decisions = self._decisions[-1:], []
        at, turn = SystemClock().now(), finished.turns + 1
        return [MessageInjected(at=at, turn=turn, source="resume", text=DECIDED[type(one)]) for one in told]

    async def _tidy(self) -> None:
        """Of a sandbox that is gone. Layers are removed where nothing in them is still to be decided on."""
        try:
            if self._discards:
                await self._discard(self._layers)
            await to_thread.run_sync(changes.discard_decided, sandboxes.reviewer(), self._layers)
        except StockadeError as error:
            say(f"session {self.id}: {error}")
        cleanup(self.id)

    # What it does, to the editor

    def _heard(self, event: RunEvent) -> None:
        match event:
            case RunStarted():
                self.began = True
            case SandboxStarted():
                self._layers = event.layers
            case ActionFinished():
                self._live.end()
                self._show_output()
                self._live.clear()
            case ActionStarted():
                self._live.clear()
            case _:
                pass
        self.outbox.put(*self.story.of(event))

    def _progress(self, what: str, done: int, total: int) -> None:
        """What takes long before a run begins, once for each of its parts."""
        if what != self._preparing:
            self._preparing = what
            self.outbox.put(update_agent_thought_text(f"({what})\n"))

    def _text(self, piece: str | None) -> None:
        """Of an answer as it comes: only where answers are words, and calls stand beside them."""
        if piece and self._prepared is not None and self._prepared.parts.protocol.name == "native":
            self.outbox.put(self.story.streamed(piece))

    def _output(self, stream: Stream, data: bytes) -> None:
        self._live.output(stream, data)

    def _show_output(self) -> None:
        if (taken := self._live.taken()) is not None and (update := self.story.output(*taken)) is not None:
            self.outbox.put(update)

    async def _tick(self) -> None:
        while True:
            await anyio.sleep(TICK_S)
            self._show_output()

    def _hold(self, full: bool) -> None:
        """An editor that does not keep up holds the run before its next step."""
        if self._prepared is not None:
            pause = self._prepared.parts.pause
            pause.hold() if full else pause.go_on()

    # Its changes

    def _desk(self, reviewer: Any, record: Callable[[RunEvent], None]) -> Desk:
        redactor = self._prepared.parts.redactor if self._prepared is not None else EXACT
        return Desk(self.outbox, self.story, redactor, reviewer, self._layers, record)

    def _record(self, event: RunEvent) -> None:
        from_thread.run(self.store.append, self.id, [event])
        if type(event) in DECIDED:
            self._decisions.append(event)

    async def _decide(self, desk: Desk) -> None:
        """While nothing in the sandbox runs."""
        assert self._prepared is not None
        talk, parts = self._prepared.parts.conversation, self._prepared.parts
        assert talk is not None
        talk.still = True
        try:
            await talk.hold(parts.sandbox)
            self._discards = await desk.put()
        except StockadeError as error:  # that it could not be applied is none of the run
            self.outbox.put(update_agent_message_text(f"\n\nNot applied: {error}\n"))
        finally:
            talk.still = False
            await talk.frozen.aclose()

    async def _command(self, name: str) -> None:
        """One of COMMANDS, while no turn is under way."""
        await self._gone()
        up = not self._ended.is_set()
        if not up:
            await self._settle()
        desk = self._desk(sandboxes.reviewer(up=up), self._record)
        if name == "undo":
            self.outbox.put(update_agent_message_text(await desk.undo()))
        elif name == "apply" and up:
            await self._decide(desk)
        elif name == "apply":
            self._discards = await desk.put()
        else:
            self._discards = True
        if self._discards and up:
            self._leave()
            await self._ended.wait()
        elif self._discards:
            await self._tidy()
        self._discards = False

    async def _settle(self) -> None:
        """What a kill cut off is completed. UsageError where there is no run, or another process drives it."""
        if not self.began:
            raise UsageError("this session has not begun: say what is to be done first")
        if is_locked(self.id) or await self.store.driver(self.id) is not None:
            raise UsageError(f"run {self.id} is under way", "wait for its end")
        events = await self.store.events(self.id)

        def complete() -> None:
            if changes.went_down(events):
                bring_back(events)
            known = changes.complete(sandboxes.reviewer(), events, self._record)
            changes.check_kept(changes.facts(known))

        await to_thread.run_sync(complete)
        self._layers = changes.facts(events).layers

    async def _discard(self, layers: Sequence[FolderLayer]) -> None:
        await self.store.append(self.id, [ChangesDiscarded(at=SystemClock().now())])
        await to_thread.run_sync(changes.discard, sandboxes.reviewer(), layers)
        self.outbox.put(update_agent_message_text("The changes were discarded.\n"))


def stop_reason(turn: Turn) -> StopReason:
    """How a turn ended, in the protocol's words."""
    if turn.cancelled:
        return "cancelled"
    return _STOPS.get(turn.finished.reason, "end_turn") if turn.finished is not None else "end_turn"


def _info(prepared: Prepared) -> ModelInfo:
    return prepared.parts.model.info


def _unwrapped(error: Exception) -> Exception:
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


__all__ = ["COMMANDS", "LEFT", "Session", "Turn", "stop_reason"]
