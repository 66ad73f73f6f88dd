"""The person at the terminal authorises what a bot wants to do, action by action."""

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
from rich.console import Console
from rich.text import Text

from stockade.approval.authorise import Authoriser, authorises
from stockade.cli.clipped import clip_lines
from stockade.cli.interrupt import Interrupt
from stockade.cli.safe import one_line, safe_text
from stockade.cli.typed import typed
from stockade.core.actions import Action, EditFile, Shell, ToolCall, WriteFile

QUESTION = "[y] authorise / [y -N] N actions in a row / [n] stop and save / or feedback for {name}: "
STOPPING = "the next action is asked about again; Ctrl-C once more stops and saves"
AUTHORISED = "-=-=-=-=-=-=-= AUTHORISED BY USER -=-=-=-=-=-=-="
SHORT_CHARS, SHORT_CALL_CHARS = 4000, 1500
"""Of an action, and of a call of a tool, beyond which the terminal may show it shortened."""


@dataclass(slots=True)
class AuthorisingUser:
    """Answers an `Authoriser`. A Ctrl-C takes a grant back, or stops the run where the person is being asked."""

    authoriser: Authoriser
    interrupt: Interrupt
    console: Console
    quiet: Callable[[], None]
    stop: Callable[[], None]
    name: str = ""
    leave: anyio.Event = field(default_factory=anyio.Event)
    asking: bool = False

    def attach(self) -> None:
        """From now on this person is asked."""
        self.authoriser.ask, self.authoriser.told = self.ask, self.told
        self.interrupt.pause = self.pressed

    def pressed(self) -> None:
        """At a first Ctrl-C, in the event loop."""
        if self.authoriser.goes_on_alone:
            self.authoriser.take_back()
            self.quiet()
            self._line(f"\n[{STOPPING}]", "yellow")
            return
        self.interrupt.pressed = True
        if self.asking:
            self.leave.set()
        else:
            self.stop()

    async def ask(self, action: Action, problem: str | None) -> str | None:
        self.quiet()
        if problem is None:
            self._show_rest(action)
        else:
            self._line(f"[{one_line(problem)}]", "yellow")
        self.asking = True
        self.interrupt.answered()
        try:
            name = one_line(self.name, 60) or "the bot"
            line = await typed(QUESTION.format(name=name), fresh=True, leave=self.leave)
        finally:
            self.asking = False
        if line is not None and authorises(line):
            self._line(AUTHORISED, "bold green")
        return line

    def told(self, left: int | None) -> None:
        """After an action that nobody was asked about."""
        self._line(f"[authorised actions left: {'any number' if left is None else left}]", "dim")

    def _show_rest(self, action: Action) -> None:
        """An action is shown shortened as it begins; whoever shall authorise it sees every line."""
        if not is_short(action):
            self._line("[all of it, as it will be done:]", "yellow")
            self.console.print(Text(safe_text(whole(action))), soft_wrap=True)

    def _line(self, words: str, style: str) -> None:
        self.console.print(Text(words, style), soft_wrap=True)


def is_short(action: Action) -> bool:
    """Whether all of it is seen as it begins (render.py): no line left out, none cut, no path in other words."""
    text = Text(safe_text(whole(action)))
    if isinstance(action, WriteFile | EditFile) and one_line(action.path) != action.path:
        return False
    limit = SHORT_CALL_CHARS if isinstance(action, ToolCall) else SHORT_CHARS
    return len(text) <= limit and clip_lines(text).plain == text.plain


def whole(action: Action) -> str:
    """An action as it will be done, every line of it."""
    match action:
        case Shell(command=command):
            return command
        case WriteFile(path=path, content=content):
            return f"write_file {path}\n{content}"
        case EditFile(path=path, old=old, new=new):
            return f"edit_file {path}\n--- old\n{old}\n+++ new\n{new}"
        case ToolCall(name=name, arguments=arguments):
            return f"{name} {arguments}"
        case _:
            return action.model_dump_json()
