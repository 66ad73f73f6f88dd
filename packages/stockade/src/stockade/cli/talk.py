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
from stockade.cli.ui import review
from stockade.cli.ui.console import can_ask
from stockade.cli.ui.drawing import profile_name
from stockade.cli.ui.failures import say
from stockade.cli.ui.interrupt import Interrupt
from stockade.cli.ui.picking import Ask
from stockade.cli.ui.prompts import AuthorisingUser, PausePrompt, Terminal, Typed, typed
from stockade.cli.ui.review import Decider
from stockade.cli.ui.safe import result_text
from stockade.cli.ui.summary import status_of, way_on
from stockade.cli.ui.watch import Watch
from stockade.core.errors import StockadeError, UsageError
from stockade.core.events import ChangesDiscarded, RunEvent, RunFinished
from stockade.core.ports import Reviewer, RunStore
from stockade.loop.conversation import Conversation, follow_up
from stockade.runtime import sandboxes
from stockade.runtime.factory import Prepared, check_task
from stockade.runtime.records import SystemClock
from stockade_sandbox.overlay import Review


class WhileUp(Review):
    """Decides on the layers of a sandbox that is up: they are removed when it has ended."""

    def discard(self, layer: object) -> None:
        """Not yet."""


class Talk:
    """With the user of one run, who is asked only where somebody is there."""

    still = True
    """Nothing in the sandbox runs while the user looks at the changes."""
    live = True
    """What goes on stands in a line that is drawn and erased again."""
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

    def bind(self, watch: Watch, interrupt: Interrupt, store: RunStore) -> None:
        """To what it is about."""
        self.watch, self.interrupt, self.store = watch, interrupt, store
        self.asks = not watch.silent and can_ask(no_input=watch.front.no_input)

    def attach(self, prepared: Prepared, group: TaskGroup) -> Prepared:
        """From now on this user is asked; called in the event loop before the run begins."""
        if not self.asks:
            return prepared
        parts, stop, quiet = prepared.parts, group.cancel_scope.cancel, self.watch.renderer.status.end
        asker = PausePrompt(parts.pause, group, self.watch.event, stop, self.interrupt.answered, quiet)
        self.watch.asker, self.interrupt.pause = asker, asker.begin
        console, self.watch.renderer.echoes = self.watch.renderer.console, False
        Terminal(console, quiet, self.typed).attach(parts)
        if isinstance(authoriser := parts.approver, Authoriser):
            name = profile_name(prepared.started)
            AuthorisingUser(authoriser, self.interrupt, console, quiet, stop, name, self.typed).attach()
        return replace(prepared, parts=replace(parts, conversation=Conversation(self.next, still=self.still)))

    async def next(self, finished: RunFinished) -> Sequence[RunEvent]:
        """Implements loop.conversation.Next: the answer, the changes, the question. Not where Ctrl-C ended the run."""
        if self.interrupt.pressed:
            return ()
        self.decided = True
        if finished.answer:
            self.watch.put(result_text(finished.answer))
        while task := await to_thread.run_sync(
            self._in_thread, partial(decide, self.watch, WhileUp(caches=False), self._record)
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
            names = [hook.name for hook in parts.hooks]
            return [follow_up(started, names, check_task(task), __version__, SystemClock().now())]
        except UsageError as error:
            say(error.message, error.hint)
            return ()

    def _in_thread(self, work: Callable[[Ask], str | None]) -> str | None:
        """The event loop goes on meanwhile, and asks."""
        leave, before = anyio.Event(), self.interrupt.pause

        def ask(question: str) -> str | None:
            self.interrupt.answered()
            line: str | None = from_thread.run(partial(typed, question, leave=leave))
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

    def _record(self, event: RunEvent) -> None:
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
        left = [] if self.discarded else [one.layer for one in review.pending(reviewer, layers)]
        review.discard(reviewer, [layer for layer in layers if layer not in left])

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
    review.discard(reviewer, [layer for layer in facts.layers if layer not in [one.layer for one in work]])
    if not work:
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
        decider.keep("not applied, because the run did not succeed; ")
    elif ask is not None:
        return decider.put(work)
    else:
        decider.keep()
    return None
