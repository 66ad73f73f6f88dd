"""A run held by a Ctrl-C: the person goes on, gives the bot a word, or stops it and saves."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from anyio.abc import TaskGroup

from stockade.cli.typed import typed
from stockade.core.events import RunEvent
from stockade.loop.pause import Pause

QUESTION = "paused: what is under way ends, nothing new begins. [c]ontinue / [w]ord to the bot / [s]top and save: "
WORD = "to the bot: "


@dataclass(slots=True)
class Asker:
    """Asks in the event loop, so that the run can end what it is doing meanwhile. `show` gets events; while the person
    is being asked they wait, in order.
    """

    pause: Pause
    group: TaskGroup
    show: Callable[[RunEvent], None]
    stop: Callable[[], None]
    answered: Callable[[], None]
    quiet: Callable[[], None]
    asking: bool = False
    waiting: list[RunEvent] = field(default_factory=list)

    def event(self, event: RunEvent) -> None:
        if self.asking:
            self.waiting.append(event)
        else:
            self.show(event)

    def begin(self) -> None:
        """At a first Ctrl-C."""
        self.asking = True
        self.pause.hold()
        self.group.start_soon(self._ask)

    def end(self) -> None:
        """Show what came while the person was asked."""
        self.asking = False
        waiting, self.waiting = self.waiting, []
        for event in waiting:
            self.show(event)

    async def _ask(self) -> None:
        self.quiet()
        sys.stderr.write("\n")
        while True:
            match await typed(QUESTION):
                case None | "s" | "stop":
                    self.end()
                    self.stop()
                    return
                case "" | "c" | "continue":
                    break
                case "w" | "word":
                    word = await typed(WORD)
                    self._go_on(word)
                    return
                case text if text.startswith("w "):
                    self._go_on(text.removeprefix("w ").strip())
                    return
                case _:
                    pass
        self._go_on(None)

    def _go_on(self, word: str | None) -> None:
        self.end()
        self.pause.go_on(word)
        self.answered()
