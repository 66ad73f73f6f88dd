"""`stockade sandbox exec`. For a sandbox that nothing is prepared for it imports what that takes, and no more: an event
loop, records and the checks of settings where they are wanted.
"""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

import click

from stockade.cli import flags
from stockade.cli.help import Passing
from stockade.cli.lazy import load
from stockade.cli.ui.failures import INTERRUPTED, SIGNALS, piped_source, say
from stockade.cli.ui.safe import TerminalBytes
from stockade.core.errors import PolicyNotEnforceable, SandboxFailed, UsageError
from stockade.core.settings import RunSettings
from stockade.runtime.policy import make_policy
from stockade.runtime.sources import plain_settings
from stockade_sandbox.agent.jobs import Sink
from stockade_sandbox.agent.once import Stopped
from stockade_sandbox.backends.bubblewrap.once import run_once, suits
from stockade_sandbox.results import ExecResult, Stream

NOT_FOUND, SANDBOX_FAILED = 127, 125
_OWN = ("auto", "bubblewrap")
"""Sandboxes of this machine's programs."""


@click.command("exec", cls=Passing, short_help="Run one program; its output and exit status are passed on.")
@click.argument("argv", nargs=-1, metavar="-- CMD ...", type=click.UNPROCESSED)
@click.option("--timeout", type=flags.Number(0), default=None, metavar="S", help="Seconds; 0 is unlimited.")
@click.option("--raw", is_flag=True, help="To a terminal too as it is; else what it would obey is spelled out.")
@click.option("-t", "terminal", is_flag=True, help="On a terminal of its own, with your keys; implies --raw.")
@click.option("--jsonl", is_flag=True, help="Instead of CMD: commands for one shell as JSON lines.")
@flags.offered(flags.SANDBOX, flags.TOOL, (flags.OPTION,))
def exec_(
    argv: tuple[str, ...], timeout: float | None, raw: bool, terminal: bool, jsonl: bool = False, **values: Any
) -> int:
    """One program in the sandbox, with its own output and exit status, each stream as it comes.

    Standard input is passed on when it is not a terminal. 124: timed out. 125: the sandbox failed.

    \b
    --jsonl, in:  {"command": "cd src; ls", "timeout": 10}
            out:  {"exit_code": 0, "stdout": "...", "stderr": "", "cwd": "/workspace/src", ...}

    There stdout has both streams in exact order; -o streams=separate tells stderr apart.
    """
    if jsonl == bool(argv):
        raise UsageError(
            "--jsonl reads its commands from standard input" if jsonl else "which command?",
            "leave the command out" if jsonl else "stockade sandbox exec [FLAGS] -- COMMAND ...",
        )
    output = _Output(raw=raw or terminal)
    given = flags.given(values) | ({} if timeout is None else {"command_timeout": timeout})
    settings: RunSettings | None = None if terminal or jsonl else plain_settings(given)
    if settings is None or not _is_all(settings):
        settings = flags.settings(given).options
    try:
        if jsonl:
            if sys.stdin is not None and sys.stdin.isatty():
                say('a command a line, as {"command": "ls"}', "Ctrl-D ends it")
            return int(load("cli.sandbox:json_lines")(settings))
        done: ExecResult | None
        if terminal:
            done = load("cli.sandbox:on_terminal")(settings, argv, output.pass_on, limited=timeout is not None)
        else:
            run = _once if _is_all(settings) else load("cli.sandbox:stream")
            done = run(settings, argv, piped_source(), output.pass_on)
    except (SandboxFailed, PolicyNotEnforceable) as error:
        say(error.message, error.hint)
        return SANDBOX_FAILED
    finally:
        output.end()
    if done is None:
        return INTERRUPTED
    if done.exit_code == NOT_FOUND and settings.toolchain is None and settings.sandbox in _OWN and not settings.image:
        _say_where(argv[0])
    return _ended(done, settings.command_timeout)


@click.command("shell", short_help="An interactive shell in the sandbox.")
@flags.offered(flags.SANDBOX, flags.TOOL)
def shell(**values: Any) -> int:
    """A bash of your own on a terminal, under the very policy of a bot's commands: `sandbox exec -t -- bash`."""
    assert exec_.callback is not None
    return int(exec_.callback(argv=("bash",), timeout=None, raw=True, terminal=True, **values))


def _say_where(program: str) -> None:
    """Why it was not found, where the user's shell has it."""
    own = shutil.which(program)
    if own and "/" not in program and not own.startswith(("/usr/", "/bin/", "/sbin/")):
        say(
            f"{own} is not seen inside",
            "--toolchain auto shows what package managers installed, --toolchain FOLDER that one",
        )


def _is_all(settings: RunSettings) -> bool:
    """Whether the program is all there is: no folder, network or tool, nothing to hide, no other kind of sandbox."""
    plain = settings.sandbox in _OWN and not (settings.tool or settings.redact or settings.toolchain)
    return plain and suits(make_policy(settings, "overlay"))


def _once(settings: RunSettings, argv: tuple[str, ...], source: int | None, sink: Sink) -> ExecResult | None:
    """None when it was interrupted."""
    with _stopping() as stop_fd:
        try:
            return run_once(make_policy(settings, "overlay"), argv, source, sink, stop_fd)
        except Stopped:
            say("interrupted")
            return None


@contextmanager
def _stopping() -> Iterator[int]:
    """A descriptor, readable once somebody wants this to end. The next time it quits: what we started dies with us."""
    descriptor, pressed = os.eventfd(0), False

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            os.write(2, b"\nstockade: quit at once\n")
            os._exit(INTERRUPTED)
        pressed = True
        os.eventfd_write(descriptor, 1)

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield descriptor
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(descriptor)


class _Output:
    """Passes on what comes as it comes; to a terminal fit for it, unless it is to be `raw`."""

    def __init__(self, *, raw: bool) -> None:
        self._outs: dict[Stream, TextIO] = {"stdout": sys.stdout, "stderr": sys.stderr}
        self._fit = {name: TerminalBytes() for name, out in self._outs.items() if out.isatty() and not raw}

    def pass_on(self, stream: Stream, data: bytes, *, final: bool = False) -> None:
        out = self._outs[stream].buffer
        out.write(self._fit[stream].fit(data, final=final) if stream in self._fit else data)
        out.flush()

    def end(self) -> None:
        """What waited for more of it."""
        for stream in self._fit:
            self.pass_on(stream, b"", final=True)


def _ended(done: ExecResult, limit_s: float | None) -> int:
    if done.truncated_bytes:
        say(f"{done.truncated_bytes} bytes of output were cut")
    if done.timed_out:
        say(f"timed out after {limit_s:g} s" if limit_s else "timed out")
        return 124
    return done.exit_code
