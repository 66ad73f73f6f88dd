"""The line that the user types in a chat, at the bottom of the terminal; what happens meanwhile is printed above it.

The one place that knows prompt_toolkit. Names that a terminal would obey are
not offered as completions.
"""

import asyncio
import hashlib
import os
import sys
import textwrap
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path

import anyio
from prompt_toolkit import PromptSession
from prompt_toolkit.application import in_terminal, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from prompt_toolkit.patch_stdout import StdoutProxy
from prompt_toolkit.styles import Style

from stockade.cli.ui.safe import fit_for_terminal
from stockade.paths import current_folder, state_dir

_NAME_CHARS = 16
_SHOWN = 200
_REDRAWN_S = 0.5
_WRITTEN_S = 0.05
PROMPT, ASKED, MORE = "> ", "? ", "  "


class Words(Completer):
    """Slash commands at the beginning, and paths of `folder` where a word holds a slash or Tab asks."""

    def __init__(self, folder: Path, commands: Mapping[str, str]) -> None:
        self._folder, self._commands = folder, commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if text.startswith("/") and " " not in text:
            for name, about in self._commands.items():
                if name.startswith(text):
                    yield Completion(name, -len(text), display_meta=about)
        elif complete_event.completion_requested:
            word = text.split()[-1] if text and not text[-1].isspace() else ""
            yield from self._paths(word.removeprefix("@"))

    def _paths(self, word: str) -> Iterator[Completion]:
        place, _, begun = word.rpartition("/")
        folder = self._folder / place
        if place.startswith("/") or ".." in Path(place).parts:
            return
        with suppress(OSError), os.scandir(folder) as entries:
            found = sorted((one.name, one.is_dir()) for one in entries if one.name.startswith(begun))
            for name, is_folder in found[:_SHOWN]:
                if (begun or not name.startswith(".")) and fit_for_terminal(name) == name:
                    yield Completion(name + ("/" if is_folder else ""), -len(begun))


class _Keys(Vt100Input):
    """A terminal that stays raw while something is written above the line: a Ctrl-D that is typed while cooked comes
    as another key once it is raw again.
    """

    def cooked_mode(self) -> AbstractContextManager[None]:
        return nullcontext()

    def as_found(self) -> AbstractContextManager[None]:
        """Inside, it is as a program expects it."""
        return super().cooked_mode()


class _Above(StdoutProxy):
    """Whole lines above the line. What still waits for the terminal when this ends is written then: the event loop that
    would have written it may end first, and with it the text.
    """

    def __init__(self) -> None:
        self._waiting: deque[str] = deque()
        super().__init__(_WRITTEN_S, raw=True)

    def _write_and_flush(self, loop: asyncio.AbstractEventLoop | None, text: str) -> None:
        self._waiting.append(text)
        if loop is None:
            self._write_waiting()
        else:
            loop.call_soon_threadsafe(lambda: run_in_terminal(self._write_waiting))

    def _write_waiting(self) -> None:
        with suppress(IndexError):
            while True:
                self._output.write_raw(self._waiting.popleft())
        self._output.flush()

    def close(self) -> None:
        super().close()
        self._write_waiting()


class Line:
    """`pressed` is called at Ctrl-C, and says whether that did something; `bar` is what stands below the line."""

    def __init__(self, folder: Path, commands: Mapping[str, str], history: Path) -> None:
        self.pressed: Callable[[], bool] = lambda: False
        self.bar: Callable[[], str] = lambda: ""
        self._prompt = PROMPT
        self._real = sys.stdout, sys.stderr
        self._answer: list[str | None] | None = None
        self._answered = anyio.Event()
        history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        history.touch(mode=0o600)
        self._input = _Keys(sys.stdin)
        self._session: PromptSession[str] = PromptSession(
            lambda: self._prompt, history=FileHistory(str(history)), completer=Words(folder, commands), multiline=True,
            complete_while_typing=Condition(lambda: self._buffer.text.startswith("/")), key_bindings=self._keys(),
            prompt_continuation=MORE, bottom_toolbar=self._bar, refresh_interval=_REDRAWN_S, input=self._input,
            style=Style([("bottom-toolbar", "noreverse fg:ansibrightblack")]),
        )  # fmt: skip

    @property
    def _buffer(self) -> Buffer:
        return self._session.default_buffer

    def _bar(self) -> str:
        return fit_for_terminal(self.bar())

    async def read(self) -> str | None:
        """What the user says, without blanks around it; None when they leave. Answers of `ask` are not among it."""
        while True:
            try:
                text: str | None = (await self._session.prompt_async(handle_sigint=False)).strip()
            except EOFError:
                text = None
            if self._answer is None:
                return text
            self._answer.append(text)
            self._answered.set()

    async def ask(self, question: str, *, fresh: bool = False, leave: anyio.Event | None = None) -> str | None:
        """The line that answers it; None where the user leaves. What was being typed before comes back after."""
        columns = self._session.output.get_size().columns
        print(textwrap.fill(fit_for_terminal(question.strip()), columns), file=sys.stderr)
        before, self._prompt, self._answer, self._answered = self._buffer.text, ASKED, [], anyio.Event()
        self._buffer.reset()
        self._session.app.invalidate()
        try:
            await self._answered.wait()
            return self._answer[0]
        finally:
            self._prompt, self._answer = PROMPT, None
            self._buffer.insert_text(before)
            self._session.app.invalidate()

    @contextmanager
    def above(self) -> Iterator[None]:
        """Inside, all that is printed stands above the line, whole lines at a time; keys wait for the next read."""
        self._real = sys.stdout, sys.stderr
        with self._input.raw_mode(), _Above() as proxy:
            sys.stdout = sys.stderr = proxy
            try:
                yield
            finally:
                sys.stdout, sys.stderr = self._real

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Inside, the terminal is as a program finds it: for questions of another kind, a pager, an editor."""
        above = sys.stdout, sys.stderr
        sys.stderr.flush()
        async with in_terminal():
            sys.stdout, sys.stderr = self._real
            try:
                with self._input.as_found():
                    yield
            finally:
                sys.stdout, sys.stderr = above

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def send(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def another_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        def interrupt(event: KeyPressEvent) -> None:
            if not self.pressed():
                event.current_buffer.reset()

        @keys.add("c-d", filter=Condition(lambda: not self._buffer.text))
        def leave(event: KeyPressEvent) -> None:
            event.app.exit(exception=EOFError)

        return keys


def line_of_here(commands: Mapping[str, str]) -> Line:
    """With the history of the current folder."""
    folder = current_folder()
    name = hashlib.sha256(str(folder).encode(errors="surrogateescape")).hexdigest()[:_NAME_CHARS]
    return Line(folder, commands, state_dir() / "history" / name)
