"""What the user is asked at the terminal while a bot works: its questions, may it do this, a run that is held."""

import os
import sys
import termios
import textwrap
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import anyio
import click
from anyio.abc import TaskGroup
from rich.console import Console
from rich.text import Text

from stockade.approval.approver import Authoriser, Question, authorises, whole
from stockade.cli.ui.console import write_line, write_prose
from stockade.cli.ui.drawing import clip_lines, mark
from stockade.cli.ui.interrupt import Interrupt
from stockade.cli.ui.safe import fit_for_terminal, one_line, safe_text
from stockade.core.actions import Action, EditFile, ToolCall, WriteFile
from stockade.core.events import RunEvent
from stockade.loop.pause import Pause, PausingPrompt
from stockade.loop.run_context import Dependencies

_LINE_BYTES = 65_536
T = TypeVar("T")


async def typed(question: str, *, fresh: bool = False, leave: anyio.Event | None = None) -> str | None:
    """The line, without blanks around it; None at the end of input, or when `leave` is set meanwhile.

    `fresh`: what was typed before the question was shown is thrown away, and only a line that ends counts.
    """
    if fresh:
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    sys.stderr.write(folded(question))
    sys.stderr.flush()
    there = False
    try:
        there = await _readable(leave)
    finally:
        if not there:  # behind the ^C that a terminal shows
            sys.stderr.write("\n")
    if not there:
        return None
    line = os.read(sys.stdin.fileno(), _LINE_BYTES)
    if not line or (fresh and not line.endswith(b"\n")):
        return None
    return line.decode(errors="replace").strip()


def folded(question: str) -> str:
    """In lines that end between words; what is typed stands behind it."""
    columns = os.get_terminal_size(sys.stderr.fileno()).columns
    lines = textwrap.wrap(fit_for_terminal(question), max(20, (columns or 80) - 1), break_on_hyphens=False)
    return "\n".join(lines) + " " * question.endswith(" ")


async def _readable(leave: anyio.Event | None) -> bool:
    """True when there is a line; False when `leave` was set before."""

    async def there() -> bool:
        await anyio.wait_readable(sys.stdin)
        return True

    return await there() if leave is None else bool(await until_left(leave, there))


async def until_left(leave: anyio.Event, work: Callable[[], Awaitable[T]]) -> T | None:
    """What `work` gives; None where `leave` was set before, and at the end of input (click.Abort)."""
    found = None
    async with anyio.create_task_group() as group:

        async def wait() -> None:
            await leave.wait()
            group.cancel_scope.cancel()

        group.start_soon(wait)
        with suppress(click.Abort):
            found = await work()
        group.cancel_scope.cancel()
    return found


Typed = Callable[..., Coroutine[Any, Any, str | None]]
"""`typed`, or what asks in its place."""
ANSWER = "your answer (empty: none): "


@dataclass(frozen=True, slots=True)
class Terminal:
    """Asks on `console`; `quiet` ends what moves there."""

    console: Console
    quiet: Callable[[], None]
    typed: Typed = typed

    def attach(self, parts: Dependencies) -> None:
        """From now on this user is asked."""
        if isinstance(parts.asker, PausingPrompt):
            parts.asker.answer = self.answer

    async def answer(self, question: str) -> str | None:
        """The user's answer to a bot; None for an empty line and at the end of input."""
        self.quiet()
        write_prose(self.console, "The bot asks:", "bold magenta")
        write_prose(self.console, safe_text(question), "")
        return await self.typed(ANSWER, fresh=True) or None


AUTHORISE = "[y] authorise / [y -N] N actions in a row / [n] stop and save / {goals}or feedback for {name}: "
GOALS = "[g] change its goals / "
CHOICE = (
    "[y]es / [y -N] N in a row / [r]un: as long as this run lasts / [a]lways: this bot in this folder"
    " / [n] stop and save / or words for the bot: "
)
STOPPING = "the next action is asked about again; Ctrl-C once more stops and saves"
AUTHORISED = "-=-=-=-=-=-=-= AUTHORISED BY USER -=-=-=-=-=-=-="
SHORT_CHARS, SHORT_CALL_CHARS = 4000, 1500
"""Of an action, and of a call of a tool, beyond which the terminal may show it shortened."""


@dataclass(slots=True)
class AuthorisingUser:
    """Answers an `Authoriser`. A Ctrl-C takes a grant back, or stops the run where the user is being asked; elsewhere
    it is `idle`'s.
    """

    authoriser: Authoriser
    interrupt: Interrupt
    console: Console
    quiet: Callable[[], None]
    idle: Callable[[], None]
    name: str = ""
    typed: Typed = typed
    goals: Callable[[], Awaitable[str]] | None = None
    """Has the user change what the bot is to be, and returns what it is told of that."""
    leave: anyio.Event = field(default_factory=anyio.Event)
    asking: bool = False

    def attach(self) -> None:
        """From now on this user is asked."""
        self.authoriser.ask, self.authoriser.told = self.ask, self.told
        self.interrupt.pause = self.pressed

    def pressed(self) -> None:
        """At a first Ctrl-C, in the event loop."""
        if self.authoriser.goes_on_alone:
            self.authoriser.take_back()
            self.quiet()
            write_prose(self.console, f"\n[{STOPPING}]", "magenta")
        elif self.asking:
            self.interrupt.pressed = True
            self.leave.set()
        else:
            self.idle()

    async def ask(self, question: Question, problem: str | None) -> str | None:
        self.quiet()
        if problem is not None:
            write_prose(self.console, f"[{one_line(problem)}]", "magenta")
        elif self.authoriser.every:
            self._show_rest(question.action)
        else:
            self._show(question)
        self.asking = True
        self.interrupt.answered()
        try:
            name = one_line(self.name, 60) or "the bot"
            goals = GOALS if self.goals else ""
            asked = AUTHORISE.format(name=name, goals=goals) if self.authoriser.every else CHOICE
            line = await self.typed(asked, fresh=True, leave=self.leave)
            if self.goals and line is not None and line.strip().lower() == "g":
                line = await until_left(self.leave, self.goals)
        finally:
            self.asking = False
        if line is not None and self.authoriser.every and authorises(line):
            write_prose(self.console, AUTHORISED, "green")
        return line

    def _show(self, question: Question) -> None:
        write_prose(self.console, "Allow this action?", "bold magenta")
        write_line(self.console, f"{mark(question.action)} {safe_text(whole(question.action))}", "bold")
        for one in question.judgements:
            if one.decision != "allow":
                words = f"  {one_line(one.text)}: {one_line(one.reason)}" if one.text else f"  {one_line(one.reason)}"
                write_prose(self.console, words, "dim")

    def told(self, left: int | None) -> None:
        """After an action that nobody was asked about."""
        write_prose(self.console, f"[authorised actions left: {'any number' if left is None else left}]", "dim")

    def _show_rest(self, action: Action) -> None:
        """An action is shown shortened as it begins; whoever shall authorise it sees every line."""
        if not is_short(action):
            write_prose(self.console, "[all of it, as it will be done:]", "magenta")
            self.console.print(Text(safe_text(whole(action))), soft_wrap=True)


NETWORK = (
    "The sandbox asks for {rule}, which --net does not name. Let it? [y]es, now / [r]un: as long as this run lasts"
    " / [a]lways: this bot in this folder / [n]o / never / or words for the bot: "
)


def one_at_a_time(typed: Typed, turn: anyio.Lock) -> Typed:
    """Where several ask, the next question is put when the one before it was answered."""

    async def asking(question: str, **how: Any) -> str | None:
        async with turn:
            return await typed(question, **how)

    return asking


@dataclass(slots=True)
class NetworkUser:
    """Answers a `NetworkAsker`, while a command runs: what it shows waits. A Ctrl-C is a no, and the last question."""

    turn: anyio.Lock
    prompt: "PausePrompt"
    interrupt: Interrupt
    typed: Typed

    async def ask(self, rule: str, problem: str | None) -> str | None:
        async with self.turn:
            leave, before = anyio.Event(), self.interrupt.pause
            self.prompt.quiet()
            self.prompt.asking, self.interrupt.pause = True, leave.set
            self.interrupt.answered()
            question = NETWORK.format(rule=one_line(rule))
            try:
                return await self.typed(f"{problem}. {question}" if problem else question, fresh=True, leave=leave)
            finally:
                self.interrupt.pause = before
                self.interrupt.answered()
                self.prompt.end()


def is_short(action: Action) -> bool:
    """Whether all of it is seen as it begins (render.py): no line left out, none cut, no path in other words."""
    text = Text(safe_text(whole(action)))
    if isinstance(action, WriteFile | EditFile) and one_line(action.path) != action.path:
        return False
    limit = SHORT_CALL_CHARS if isinstance(action, ToolCall) else SHORT_CHARS
    return len(text) <= limit and clip_lines(text).plain == text.plain


PAUSED = "Pausing after this command. [c]ontinue, [m]essage the bot, [s]top and save: "
WORD = "to the bot: "


@dataclass(slots=True)
class PausePrompt:
    """Asks in the event loop, so that the run can end what it is doing meanwhile. `show` gets events; while the user
    is being asked they wait, in order.
    """

    pause: Pause
    group: TaskGroup
    show: Callable[[RunEvent], None]
    stop: Callable[[], None]
    answered: Callable[[], None]
    quiet: Callable[[], None]
    typed: Typed = typed
    asking: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def event(self, event: RunEvent) -> None:
        self.do(partial(self.show, event))

    def do(self, work: Callable[[], None]) -> None:
        """Now, or when the user has answered."""
        if self.asking:
            self.waiting.append(work)
        else:
            work()

    def begin(self) -> None:
        """At a first Ctrl-C."""
        self.asking = True
        self.pause.hold()
        self.group.start_soon(self._ask)

    def end(self) -> None:
        """Show what came while the user was asked."""
        self.asking = False
        waiting, self.waiting = self.waiting, []
        for work in waiting:
            work()

    async def _ask(self) -> None:
        self.quiet()
        sys.stderr.write("\n")
        while True:
            match await self.typed(PAUSED):
                case None | "s" | "stop":
                    self.end()
                    self.stop()
                    return
                case "" | "c" | "continue":
                    break
                case "m" | "message":
                    word = await self.typed(WORD)
                    self._go_on(word)
                    return
                case text if text.startswith("m "):
                    self._go_on(text.removeprefix("m ").strip())
                    return
                case _:
                    pass
        self._go_on(None)

    def _go_on(self, word: str | None) -> None:
        self.end()
        self.pause.go_on(word)
        self.answered()
