"""`stockade chat`: a conversation with a bot in one live sandbox.

What the user types while the bot works is told to it before its next turn; what they type when it has answered is its
next task, in the same shell. All of it is on record as that of `stockade run`: `chat -c` goes on after anything.
"""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from stockade.cli import flags, slash
from stockade.cli.resume import continued
from stockade.cli.run import ask_for_toolchain, carry_out, read_task
from stockade.cli.talk import Talk
from stockade.cli.ui import review
from stockade.cli.ui.console import can_ask
from stockade.cli.ui.failures import say
from stockade.cli.ui.line import Line, line_of_here
from stockade.cli.ui.picking import Ask
from stockade.cli.ui.review import Decider
from stockade.cli.ui.safe import one_line, some
from stockade.cli.ui.summary import usage_facts
from stockade.core.errors import StockadeError, UsageError, did_you_mean
from stockade.core.events import MessageInjected, RunEvent, RunFinished
from stockade.core.ports import Model, RunStore
from stockade.loop.conversation import DECIDED
from stockade.loop.state import fold
from stockade.runtime import factory, records, sandboxes
from stockade.runtime.factory import Prepared
from stockade.runtime.images import check_sees, read_images
from stockade.runtime.records import SystemClock
from stockade.runtime.resume import spec_of
from stockade.runtime.settings import Settings

HINT = "Enter sends · Alt-Enter: another line · Tab completes · /help · Ctrl-D leaves"
BUSY = "what you type is told to the bot before its next turn · Ctrl-C interrupts it"


@dataclass(slots=True)
class Desk:
    """What outlives the sandbox of a chat: the line, and what is to be done when one has ended."""

    line: Line
    store: RunStore
    settings: Settings
    run_id: str = ""
    given: dict[str, Any] = field(default_factory=dict)
    """What was set anew for what is next."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """The flags that the chat began with."""
    leaving: bool = False
    attached: list[str] = field(default_factory=list)
    """Images that go with the user's next task."""

    def first(self) -> str | None:
        """What the user says while no sandbox is up; None when they leave."""
        while (text := anyio.run(self._read)) is not None:
            if not text.startswith("/"):
                return text
            if slash.name_of(text) == "/help":
                say_all(slash.listing())
            elif slash.name_of(text) == "/quit":
                return None
            elif slash.name_of(text) == "/attach":
                say_all(self.attach(slash.rest_of(text)))
            else:
                say("there is no sandbox yet: say what is to be done first")
        return None

    def attach(self, rest: str, model: Model | None = None) -> list[str]:
        """Files of `/attach`, spelled as a shell would; lines for the user. Blocks."""
        try:
            paths = shlex.split(rest)
            images = read_images([*self.attached, *paths])
            unsure = check_sees(images, model.info, model.info.name) if model else ()
        except (StockadeError, ValueError) as error:
            return [str(error)]
        self.attached += paths
        names = ", ".join(one_line(image.name, 80) for image in images)
        return [*unsure, f"{names}: with your next task" if names else "/attach FILE shows the model an image"]

    async def _read(self) -> str | None:
        text: str | None = ""
        while text == "":
            text = await self.line.read()
        return text


def say_all(lines: Sequence[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)


class Chat(Talk):
    """The user's side of one sandbox."""

    still, live = False, False

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self.desk, self.busy = desk, True
        self.typed, self.attached = desk.line.ask, desk.attached
        self._said: list[str] = []
        self._news = anyio.Event()
        self._shown: RunFinished | None = None
        self._at_rest = False
        self._decisions: list[RunEvent] = []

    @property
    def prepared(self) -> Prepared:
        assert self.watch.prepared is not None
        return self.watch.prepared

    def attach(self, prepared: Prepared, group: TaskGroup) -> Prepared:
        prepared, line = super().attach(prepared, group), self.desk.line
        self.desk.run_id = prepared.started.run_id
        line.pressed, line.bar = partial(self._pressed, group), self._bar
        self.interrupt.pause = lambda: None if self._pressed(group) else group.cancel_scope.cancel()
        group.start_soon(self._listen, group)
        return prepared

    def _bar(self) -> str:
        return self.watch.renderer.status.now() or (HINT if self._at_rest else BUSY if self.busy else "")

    def _pressed(self, group: TaskGroup) -> bool:
        """Ctrl-C: the bot is interrupted; where it does nothing, that is for the line."""
        self.interrupt.answered()
        if self.busy:
            talk, parts = self.prepared.parts.conversation, self.prepared.parts
            assert talk is not None
            group.start_soon(talk.interrupt, parts.pause, parts.sandbox)
        return self.busy

    async def _listen(self, group: TaskGroup) -> None:
        """To the user, as long as the sandbox is up."""
        with self.desk.line.above():
            while (text := await self.desk.line.read()) is not None:
                if text:
                    await self._hear(text)
        self.desk.leaving = True
        self._pressed(group)
        self._news.set()

    async def _hear(self, text: str) -> None:
        if not self.busy:
            self._said.append(text)
            self.busy = not text.startswith("/")
            self._news.set()
        elif (command := slash.TABLE.get(slash.name_of(text))) is not None and command.anytime:
            await command.do(self, slash.rest_of(text))
        elif text.startswith("/"):
            say(f"{slash.name_of(text)} can be had when the bot has answered", "Ctrl-C interrupts it; /help")
        else:
            self.prepared.parts.pause.words.append(text)
            self.watch.renderer.note("the bot is told before its next turn")

    async def next(self, finished: RunFinished) -> Sequence[RunEvent]:
        """Implements loop.conversation.Next."""
        self.decided = True
        self.busy = False
        try:
            if finished is not self._shown:
                self._shown = finished
                await self._show(finished)
            while (text := await self._message()) is not None:
                events = await self._follow(text, finished)
                if events is not None:
                    return events
            return ()
        finally:
            self.busy = True

    async def _show(self, finished: RunFinished) -> None:
        if finished.answer:
            self.watch.answer(finished.answer)
        if finished.changes:
            await to_thread.run_sync(self._count)

    def _count(self) -> None:
        try:
            if files := self.files():
                what = review.some_files(files)
                self.watch.renderer.note(f"{what} changed and to decide on: /diff shows, /apply asks")
        except StockadeError as error:  # what the bot left running may be writing just now
            say(error.message, error.hint)

    async def _message(self) -> str | None:
        """What the user says next, or had said and the bot was not told any more; None when they leave."""
        if words := self.prepared.parts.pause.words:
            return words.pop(0)
        self._at_rest = True
        while not self._said and not self.desk.leaving:
            self._news = anyio.Event()
            await self._news.wait()
        self._at_rest = False
        return self._said.pop(0) if self._said and not self.desk.leaving else None

    async def _follow(self, text: str, finished: RunFinished) -> Sequence[RunEvent] | None:
        """What goes on record of it; None to be asked again, nothing where this sandbox is to end."""
        if text.startswith("/"):
            command = slash.TABLE.get(name := slash.name_of(text))
            if command is None:
                every = "/help lists them; begin with a blank to say it to the bot"
                say(f"there is no {name}", did_you_mean(name, slash.TABLE, every))
                return None
            return await command.do(self, slash.rest_of(text))
        events = self._go_on(finished, text)
        self.busy = bool(events)
        return [*self._word_of_decisions(finished), *events] if events else None

    def _word_of_decisions(self, finished: RunFinished) -> list[RunEvent]:
        """To the bot, of what became of its changes since."""
        told, self._decisions = self._decisions[-1:], []
        at, turn = SystemClock().now(), finished.turns + 1
        return [MessageInjected(at=at, turn=turn, source="resume", text=DECIDED[type(one)]) for one in told]

    async def decide(self, ask: Callable[[Decider, list[review.Pending]], str | None]) -> Sequence[RunEvent] | None:
        """`ask` decides on the changes, in a thread, while the sandbox stands still; what goes on record then."""
        talk, parts = self.prepared.parts.conversation, self.prepared.parts
        assert talk is not None
        assert self._shown is not None
        talk.still = True
        try:
            await talk.hold(parts.sandbox)
            async with self.desk.line.aside():
                text = await to_thread.run_sync(self._in_thread, partial(self._deciding, ask))
        finally:
            talk.still = False
            await talk.frozen.aclose()
        if self.failed is not None:
            say(self.failed.message, self.failed.hint)
            self.failed = None
        if text:
            return await self._follow(f" {text}", self._shown)
        return () if self.discarded else None

    def interrupted(self) -> None:
        """The chat goes on."""

    def _deciding(self, ask: Callable[[Decider, list[review.Pending]], str | None], line: Ask) -> str | None:
        work = self.work()
        if not work:
            say("there are no changes to decide on")
            return None
        reviewer = sandboxes.reviewer(up=True)
        return ask(Decider(self.watch.run_id, self.watch.renderer.console, reviewer, self.record, line), work)

    def work(self) -> list[review.Pending]:
        """What is changed and nobody decided on. Blocks."""
        return review.pending(sandboxes.reviewer(), self.watch.facts.layers)

    def files(self) -> list[review.Item]:
        """The same, as the summary lists it."""
        return review.files_of(sandboxes.reviewer(), self.work())

    def record(self, event: RunEvent) -> None:
        super().record(event)
        if type(event) in DECIDED:
            self._decisions.append(event)

    async def cost(self) -> list[str]:
        """What the conversation has used so far."""
        state = fold(await self.store.events(self.watch.run_id))
        return [some(state.turns, "turn"), *usage_facts(state.usage, 0.0)]

    def end_with(self, **given: Any) -> Sequence[RunEvent]:
        """This sandbox ends; what the user says next goes on in a new one, with what is `given`."""
        self.desk.given |= given
        return ()

    def end_for_another(self, bot: str) -> Sequence[RunEvent]:
        """This sandbox ends; what the user says next begins a run of another bot, with what else was set."""
        desk = self.desk
        desk.settings = flags.settings({**desk.asked, **desk.given, "bot": bot, "task": ""}, here=True)
        desk.run_id, desk.given = "", {}
        return ()

    def after(self) -> None:
        super().after()
        if left := [] if self.discarded else self.files():
            say(f"{review.some_files(left)} changed: {review.kept(self.watch.run_id)}")

    def way_on(self) -> str | None:
        return None


def begin(task: str | None, given: dict[str, Any], *, go_on: bool) -> int:
    """The conversation; the exit status. UsageError where there is no terminal for it."""
    if not (can_ask(no_input=False) and sys.stdout.isatty()):
        raise UsageError("a chat needs a terminal", "stockade run TASK does one task without")
    if go_on:
        with continued(given) as (store, settings, run_id):
            attached = list(given.pop("attach", ()))
            return _talk(Desk(_line(), store, settings, run_id, dict(given), dict(given), attached=attached), task)
    settings = flags.settings({**given, "task": ""}, here=True)
    one = settings.options.model_copy(update={"best_of": 1})  # a conversation is with one
    settings = settings.model_copy(update={"options": one})
    ask_for_toolchain(settings.options)
    store = records.open_store(settings.options.store)
    try:
        return _talk(Desk(_line(), store, settings, asked=given, attached=list(settings.options.attach)), task)
    finally:
        anyio.run(store.close)


def _line() -> Line:
    line = line_of_here(slash.abouts())
    line.bar = lambda: HINT
    return line


def _talk(desk: Desk, task: str | None) -> int:
    """Sandbox after sandbox, until the user leaves."""
    text = read_task(task) if task is not None else desk.first()
    while text is not None:
        began = desk.run_id
        try:
            carry_out(desk.settings, desk.store, _prepare(desk, text), talk=Chat(desk))
        except StockadeError as error:
            if not desk.run_id:
                raise
            desk.given = {} if began else desk.given
            say(str(error))
        desk.line.pressed, desk.line.bar = lambda: False, lambda: HINT
        text = None if desk.leaving else desk.first()
    if desk.run_id:
        say("to go on: stockade chat -c")
    return 0


def _prepare(desk: Desk, text: str) -> Callable[..., Any]:
    """A new run, or the one that there is in a new sandbox."""
    attached = tuple(desk.attached)
    desk.attached.clear()
    if not desk.run_id:
        spec = desk.settings.options.model_copy(update={"task": text, "attach": attached})
        return partial(factory.prepare, spec, desk.store, attended=True)
    history = tuple(anyio.run(desk.store.events, desk.run_id))
    given: Mapping[str, Any] = {**desk.given, "attach": attached}
    today = desk.settings.options.model_copy(update=dict(given))
    return partial(factory.prepare, spec_of(history, today, text, given), desk.store)
