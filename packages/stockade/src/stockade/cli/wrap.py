"""`stockade wrap`: another agent, or any program, in a run's sandbox; the user's terminal is passed through to it."""

import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from stockade.cli import flags
from stockade.cli.run import carry_out, read_task
from stockade.cli.sandbox import has_terminal, piped, sandbox_redactor, terminal_size, through_terminal
from stockade.cli.talk import Talk
from stockade.cli.ui.asciicast import ScreenCast
from stockade.cli.ui.console import can_ask
from stockade.cli.ui.failures import INTERRUPTED, piped_source, say
from stockade.cli.ui.review import YES, ask_person
from stockade.core.errors import PolicyNotEnforceable, SandboxFailed, UsageError
from stockade.core.ports import ExecResult, RunStore, Sandbox
from stockade.loop.conversation import Conversation
from stockade.plugins.wrap.bot import Wrapped, bot_spec, status_of
from stockade.plugins.wrap.preset import Preset
from stockade.runtime import factory, presets, records
from stockade.runtime.factory import Prepared
from stockade.runtime.settings import Settings
from stockade.runtime.spec import Objects
from stockade_sandbox.results import Stream

SANDBOX_FAILED = 125


def begin(
    argv: Sequence[str], prompt: str | None, given: Mapping[str, Any], *, home: str | None, cast: Path | None
) -> int:
    """The program's own exit status; 1 where it succeeded and --check did not."""
    if not argv:
        raise UsageError("which program?", "stockade wrap [FLAGS] -- COMMAND ...")
    if prompt is None and given.get("max_turns"):
        raise UsageError("--max-turns is kept with -p only: a program that has your terminal counts its own",
                         "leave it out; --timeout S bounds it")  # fmt: skip
    task = shlex.join(argv) if prompt is None else read_task(prompt)
    settings = flags.settings({**given, "task": task, "bot": "wrap"}, here=True)
    attended = can_ask(no_input=settings.front.no_input)
    preset = presets.of_program(argv[0])
    place = _home(home, preset, attended=attended) if home is not None else None
    if cast is not None and (prompt is not None or not has_terminal()):
        raise UsageError("--cast keeps what a program shows on your terminal, and it has none here", "leave it out")
    with closing(ScreenCast(cast, f"stockade wrap: {task}", terminal_size(0))) if cast else nullcontext() as tape:
        talk = Talk() if prompt is not None else _Beside(settings, tape)
        wrapped = Wrapped(preset, argv, presets.PATH_INSIDE, talk.carry if isinstance(talk, _Beside) else None, place)
        spec = settings.options.model_copy(update={"objects": Objects(bot=bot_spec(wrapped))})
        store = records.open_store(spec.store)
        try:
            status = carry_out(settings, store, partial(factory.prepare, spec, store, attended=attended), talk=talk)
            return _status(store, talk.watch.run_id, status)
        except (SandboxFailed, PolicyNotEnforceable) as error:
            say(error.message, error.hint)
            return SANDBOX_FAILED
        finally:
            anyio.run(store.close)


def _home(name: str, preset: Preset, *, attended: bool) -> Path:
    """The named home; where it is new, the user is asked once whether their login goes along."""
    path, new = presets.open_home(name)
    found = presets.logins(preset, Path.home()) if new and attended else {}
    if found:
        say(f"{preset.name} keeps its login in {', '.join(f'~/{name}' for name in found)}")
        question = f"Copy it into the home {name}, where the program and all that it starts can read it? [y]es / [N]o: "
        if ask_person(question) in YES:
            presets.take_over(found, path)
    return path


def _status(store: RunStore, run_id: str, ours: int) -> int:
    own = status_of(anyio.run(store.events, run_id)) if run_id else None
    if ours == INTERRUPTED or own is None:
        return SANDBOX_FAILED if ours == SandboxFailed.exit_status else ours
    return own or ours


class _Beside(Talk):
    """With a user whose terminal is the program's until it ends; then they are asked what becomes of the changes."""

    live = False

    def __init__(self, settings: Settings, tape: ScreenCast | None) -> None:
        super().__init__()
        self._settings, self._tape = settings, tape

    def attach(self, prepared: Prepared, group: TaskGroup) -> Prepared:
        if not self.asks:
            return prepared
        parts = replace(prepared.parts, conversation=Conversation(self.next, still=self.still))
        return replace(prepared, parts=parts)

    def way_on(self) -> str | None:
        """A program goes on in its own way."""
        return None

    async def carry(self, sandbox: Sandbox, argv: Sequence[str]) -> ExecResult:
        """Implements plugins.wrap.bot.Carry."""
        options = self._settings.options
        if not has_terminal():
            redactor = sandbox_redactor(options) if options.redact else None
            return await piped(sandbox, argv, piped_source(), _pass_on, None, redactor)
        if options.redact:
            raise UsageError("--redact hides nothing on a terminal", "leave it out, or give the program pipes")
        say("your terminal is the program's now: what it writes there is passed on as it is")
        console, tape = self.watch.renderer.console, self._tape
        screen = _Screen(_pass_on if tape is None else partial(_kept, tape))
        console.quiet = True  # what happens meanwhile is not drawn over it
        try:
            return await through_terminal(sandbox, argv, screen.pass_on, None, tape.resized if tape else None)
        finally:
            screen.leave()
            console.quiet = False


def _pass_on(stream: Stream, data: bytes) -> None:
    out = (sys.stdout if stream == "stdout" else sys.stderr).buffer
    out.write(data)
    out.flush()


def _kept(tape: ScreenCast, stream: Stream, data: bytes) -> None:
    tape.output(data)
    _pass_on(stream, data)


_MODE = re.compile(rb"\x1b\[\?([\d;]+)([hl])")
_KEYBOARD = re.compile(rb"\x1b\[(>\d*u|<\d*u|>4(?:;\d+)?m)")
_USUAL = frozenset((b"7", b"25"))
"""Modes that a terminal has on: wrapped lines, a cursor that is seen."""
_LONGEST = 32


class _Screen:
    """Knows which modes a program has set (the other screen, the mouse, pasted text, keys), to take them back where it
    did not.
    """

    def __init__(self, sink: Callable[[Stream, bytes], None]) -> None:
        self._sink, self._rest = sink, b""
        self._changed: dict[bytes, bytes] = {}
        self._keys = 0

    def pass_on(self, stream: Stream, data: bytes) -> None:
        text = self._rest + data
        at = 0
        for match in re.finditer(rb"%s|%s" % (_MODE.pattern, _KEYBOARD.pattern), text):
            at = match.end()
            for mode in (match[1] or b"").split(b";"):
                usual = match[2] == (b"h" if mode in _USUAL else b"l")
                if usual or not mode:
                    self._changed.pop(mode, None)
                else:
                    self._changed[mode] = b"\x1b[?%s%s" % (mode, b"h" if mode in _USUAL else b"l")
            if match[3] is not None and match[3].endswith(b"u"):
                self._keys = max(0, self._keys + (1 if match[3].startswith(b">") else -1))
        self._rest = text[max(at, len(text) - _LONGEST) :]
        self._sink(stream, data)

    def leave(self) -> None:
        """The terminal as it was, in the colours that it had."""
        keys = b"\x1b[<%du" % self._keys if self._keys else b""
        self._sink("stdout", b"".join((*reversed(self._changed.values()), keys, b"\x1b[0m")))
