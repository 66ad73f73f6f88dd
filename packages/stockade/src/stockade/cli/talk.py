"""The user's side of a run on a terminal: who is asked while the bot works, and what comes of its last word.

The question what becomes of the changes is put while the sandbox is up and stands still: words are a follow-up in it,
with its shell and its background jobs.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import anyio
from anyio import from_thread, to_thread
from anyio.abc import TaskGroup

from stockade import __version__
from stockade.approval.approver import Authoriser
from stockade.approval.network import NetworkAsker
from stockade.cli.ui import review
from stockade.cli.ui.console import can_ask
from stockade.cli.ui.drawing import profile_name
from stockade.cli.ui.failures import say
from stockade.cli.ui.interrupt import Interrupt
from stockade.cli.ui.picking import Ask
from stockade.cli.ui.prompts import (
    AuthorisingUser,
    NetworkUser,
    PausePrompt,
    Terminal,
    Typed,
    one_at_a_time,
    typed,
)
from stockade.cli.ui.review import Decider
from stockade.cli.ui.reviser import Reviser
from stockade.cli.ui.summary import status_of, way_on
from stockade.cli.ui.watch import Watch
from stockade.core.errors import StockadeError, UsageError
from stockade.core.events import ChangesDiscarded, RunEvent, RunFinished
from stockade.core.ports import Reviewer, RunStore
from stockade.loop.conversation import Conversation, follow_up
from stockade.runtime import sandboxes
from stockade.runtime.factory import Prepared, check_task
from stockade.runtime.images import check_sees, read_images
from stockade.runtime.records import SystemClock


class Talk:
    """With the user of one run, who is asked only where somebody is there."""

    still = True
    """Nothing in the sandbox runs while the user looks at the changes."""
    live = True
    """What goes on stands in a line that is drawn and erased again."""
    detached = False
    """No terminal of its own: the user attaches (cli/away.py)."""
    watch: Watch
    interrupt: Interrupt
    store: RunStore
    asks: bool

    def __init__(self) -> None:
        self.decided = False
        """Whether the user was shown the end, and asked."""
        self.discarded: ChangesDiscarded | None = None
        self.failed: StockadeError | None = None
        """Why the changes could not be applied."""
        self.typed: Typed = typed
        """Asks while the bot works."""
        self.deciding: Typed = typed
        """Asks what becomes of the changes."""
        self.attached: list[str] = []
        """Images that go with the user's next task."""

    def bind(self, watch: Watch, interrupt: Interrupt, store: RunStore) -> None:
        """To what it is about."""
        self.watch, self.interrupt, self.store = watch, interrupt, store
        self.asks = not watch.silent and can_ask(no_input=watch.front.no_input)

    def attach(self, prepared: Prepared, group: TaskGroup) -> Prepared:
        """From now on this user is asked; called in the event loop before the run begins."""
        if not self.asks:
            return prepared
        parts, stop, quiet = prepared.parts, group.cancel_scope.cancel, self.watch.renderer.status.end
        turn = anyio.Lock()
        paused, asking = (one_at_a_time(one, turn) for one in (self.typed, self.watch.attention.around(self.typed)))
        asker = PausePrompt(parts.pause, group, self.watch.event, stop, self.interrupt.answered, quiet, paused)
        self.watch.asker, self.interrupt.pause = asker, asker.begin
        console, self.watch.renderer.echoes = self.watch.renderer.console, False
        Terminal(console, quiet, asking).attach(parts)
        if isinstance(authoriser := parts.approver, Authoriser):
            name = profile_name(prepared.started)
            idle = partial(self._stop, stop) if authoriser.every else asker.begin
            goals = parts.bot.goals(prepared.started, prepared.history, Reviser(console, asks=True).change)
            AuthorisingUser(authoriser, self.interrupt, console, quiet, idle, name, asking, goals).attach()
        if isinstance(network := parts.network, NetworkAsker):
            network.ask = NetworkUser(turn, asker, self.interrupt, self.watch.attention.around(self.typed)).ask
            network.note = self.watch.renderer.note
        if self.still:
            self.deciding = one_at_a_time(self.deciding, turn)
        if not parts.bot.enters:
            return prepared
        return replace(prepared, parts=replace(parts, conversation=Conversation(self.next, still=self.still)))

    def _stop(self, stop: Callable[[], None]) -> None:
        self.interrupt.pressed = True
        stop()

    async def next(self, finished: RunFinished) -> Sequence[RunEvent]:
        """Implements loop.conversation.Next: the answer, the changes, the question. Not where Ctrl-C ended the run."""
        if self.interrupt.pressed:
            return ()
        self.decided = True
        if finished.answer:
            self.watch.answer(finished.answer)
        while task := await to_thread.run_sync(
            self._in_thread, partial(decide, self.watch, sandboxes.reviewer(up=True), self.record)
        ):
            if events := self._go_on(finished, task):
                return events
        return ()

    def _go_on(self, finished: RunFinished, task: str) -> Sequence[RunEvent]:
        """What is on record of a new task; nothing, and that is said, where the bot can do no other."""
        assert self.watch.prepared is not None
        prepared = self.watch.prepared
        started, parts = prepared.started, prepared.parts
        try:
            parts.bot.check_resume(started, {"task"}, done=finished.status == "done")
            names, images = [hook.name for hook in parts.hooks], read_images(self.attached)
            event = follow_up(started, names, check_task(task), __version__, SystemClock().now(), images)
            for line in check_sees(images, parts.model.info, started.model):
                say(line)
            self.attached.clear()
            return [event]
        except UsageError as error:
            say(error.message, error.hint)
            return ()

    def _in_thread(self, work: Callable[[Ask], str | None]) -> str | None:
        """The event loop goes on meanwhile, and asks."""
        leave, before = anyio.Event(), self.interrupt.pause

        def ask(question: str) -> str | None:
            self.interrupt.answered()
            line: str | None = from_thread.run(partial(self.deciding, question, leave=leave))
            if leave.is_set():
                raise KeyboardInterrupt
            return line

        self.interrupt.pause = leave.set
        try:
            return work(ask)
        except KeyboardInterrupt:
            self.interrupted()
            return None
        except StockadeError as error:  # that it could not be applied is none of the run
            self.failed = error
            return None
        finally:
            self.interrupt.pause = before
            self.interrupt.answered()

    def interrupted(self) -> None:
        """Ctrl-C at the question."""
        self.interrupt.pressed = True

    def record(self, event: RunEvent) -> None:
        """Puts a decision on record, from a thread."""
        if isinstance(event, ChangesDiscarded):  # when the sandbox is gone, behind the last event of the run
            self.discarded = event
            return
        from_thread.run(self.store.append, self.watch.run_id, [event])
        self.watch.event(event)

    def after(self) -> None:
        """When the sandbox is gone: its layers too, as far as nothing in them is still to be decided on."""
        reviewer, layers = sandboxes.reviewer(), self.watch.facts.layers
        if self.discarded is not None:
            anyio.run(self.store.append, self.watch.run_id, [self.discarded])
            self.watch.event(self.discarded)
            review.discard(reviewer, layers)
        review.discard_decided(reviewer, layers)

    def way_on(self) -> str | None:
        """How to go on with a run that was stopped."""
        return way_on(self.watch.facts)


def decide(watch: Watch, reviewer: Reviewer, record: Callable[[RunEvent], None], ask: Ask | None) -> str | None:
    """Apply, throw away, ask or keep. Only a run that succeeded is applied without a look. Blocks.

    Words of the user for the bot, and nothing is decided then.
    """
    facts, front = watch.facts, watch.front
    assert facts.finished is not None
    console = watch.renderer.console
    work = review.pending(reviewer, facts.layers)
    if not work:
        review.discard(reviewer, facts.layers)
        if not watch.silent and any(layer.mode == "overlay" and layer.layer for layer in facts.layers):
            watch.renderer.note("nothing changed")
        return None
    decider = Decider(watch.run_id, console, reviewer, record, ask)
    if not watch.silent and (ask is None or front.apply or front.discard):
        review.draw(console, reviewer, work)
    if front.discard:
        decider.discard(work)
    elif front.apply and status_of(facts.finished) == 0:
        decider.apply(work)
    elif front.apply:
        decider.keep(", because the run did not succeed")
    elif ask is not None:
        return decider.put(work)
    else:
        decider.keep()
    return None
