"""Every way a command can fail, in one line and an exit status. No traceback reaches a user.

And the streams that it is told on, as whoever called us left them: closed, full, or without a reader.
"""

import contextlib
import errno
import io
import os
import re
import signal
import stat
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stockade.cli.lazy import load
from stockade.cli.ui.safe import fit_for_terminal, one_line, without_secrets
from stockade.core.errors import NO_MEMORY, CommandFailed, SandboxFailed, StockadeError, UsageError, did_you_mean

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def prepare_streams() -> None:
    """A closed one is /dev/null, what cannot be spelled in the encoding is escaped, and stderr never fails."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (as long as the process)
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if isinstance(sys.stderr, io.TextIOWrapper):
        raw = io.BufferedWriter(_Unfailing(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(
            raw, encoding=sys.stderr.encoding, errors="backslashreplace", line_buffering=True, write_through=True
        )


class _Unfailing(io.FileIO):
    """A run goes on without its picture: what cannot be written is lost, and is no error of what was being done."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def piped_input(limit: int) -> bytes:
    """What was piped in, or redirected from a file, up to `limit` bytes and one; nothing from a terminal or device."""
    return b"" if piped_source() is None else sys.stdin.buffer.read(limit + 1)


def piped_source() -> int | None:
    """Where that can be read as it comes."""
    try:
        source = sys.stdin.fileno() if sys.stdin is not None else None
        return source if source is not None and not stat.S_ISCHR(os.fstat(source).st_mode) else None
    except (OSError, ValueError):  # no file, or one that is closed
        return None


INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a command to end."""
BROKEN_PIPE = 141
BUG = 4
UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF)
"""Numbers of an OSError without a file: of writing to what is open already."""
UNREACHABLE = (errno.ENAMETOOLONG, errno.EACCES)
"""Of an OSError with a file: what no program can reach by the name that it was given."""


class OutputLost(Exception):
    """Standard output could not be written."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause.strerror)
        self.cause = cause


def is_lost_output(error: OSError) -> bool:
    """Whether it comes of writing to what is open already. click raises BrokenPipeError without a number."""
    return isinstance(error, BrokenPipeError) or (error.filename is None and error.errno in UNWRITABLE)


def folder_is_gone() -> bool:
    """Whether the current folder was deleted."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def guarded(work: Callable[[], int]) -> int:
    """What `work` returns, or the status of how it failed, said on stderr."""
    try:
        status = work()
        try:
            sys.stdout.flush()
        except OSError as error:
            return _output_lost(error)
        return status
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.Abort:
        say("interrupted")
        return INTERRUPTED
    except click.ClickException as error:
        return _usage(error)
    except OutputLost as lost:
        return _output_lost(lost.cause)
    except BaseException as error:  # noqa: BLE001 (the outermost edge: whatever it is, a user gets one line)
        return report(error)


def report(error: BaseException) -> int:
    """An error in one line, its hint in another; what is not ours is a bug and leaves its trace in a file."""
    known = expected(error)
    if known is not None:
        say(known.message, known.hint, known.output if isinstance(known, CommandFailed) else ())
        return known.exit_status
    if isinstance(error, SystemExit):
        raise error
    if isinstance(inner := unwrap_exception_group(error), BrokenPipeError):
        return _output_lost(inner)
    if isinstance(unwrap_exception_group(error), KeyboardInterrupt):
        say("interrupted")
        return INTERRUPTED
    cause = unwrap_exception_group(error)
    say(f"this is a bug in Stockade: {type(cause).__name__}: {one_line(str(cause), 300)}; {_leave_trace(error)}")
    return BUG


def say(message: str, hint: str | None = None, output: Sequence[str] = ()) -> None:
    """One line on stderr, what a failed command said below it, and the way out in a last line."""
    with contextlib.suppress(BrokenPipeError):
        click.echo(_between_words(f"stockade: {one_line(message)}"), err=True)
        for line in output:
            click.echo(f"    {one_line(line, 300)}", err=True)
        if hint:
            click.echo(f"hint: {one_line(hint)}", err=True)


def _between_words(line: str) -> str:
    """On a terminal as lines that end between words; a hint stays one, as it may be copied."""
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):  # it is none
        return line
    return line if len(line) <= columns or columns <= 0 else textwrap.fill(line, columns, break_on_hyphens=False)


def unwrap_exception_group(error: BaseException) -> BaseException:
    """The one error inside groups that task groups put around it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def expected(error: BaseException) -> StockadeError | None:
    """The StockadeError that this is or comes to, or the first one in a group."""
    if isinstance(error, StockadeError):
        return error
    if isinstance(error, MemoryError):
        return SandboxFailed(NO_MEMORY, "free some, or raise its limit: ulimit -v")
    if isinstance(error, OSError) and error.errno in UNREACHABLE and error.filename is not None:
        return UsageError(f"{error.filename}: {error.strerror}", "name a file or folder that can be opened")
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := expected(inner)) is not None), None)
    return None


_CHOSEN = re.compile(r"'([^']*)' is not one of ")


def _usage(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(fit_for_terminal(error.format_message()), err=True)
        return error.exit_code
    if isinstance(error, click.NoSuchOption) and (new := renamed(error)):
        say(error.format_message(), f"it is {new} now")
        return 2
    context, kind = getattr(error, "ctx", None), getattr(getattr(error, "param", None), "type", None)
    way_out = f"{context.command_path} --help" if isinstance(context, click.Context) else None
    if isinstance(kind, click.Choice) and (typed := _CHOSEN.search(error.format_message())):
        way_out = did_you_mean(typed[1], map(str, kind.choices), way_out or "")
    say(error.format_message(), way_out)
    return 2


def renamed(error: click.NoSuchOption) -> str | None:
    """What a flag of version 1 is called now."""
    old = error.option_name.removeprefix("--").replace("-", "_")
    if old.removeprefix("no_") == "advice":
        return f"-o small-models={'false' if old.startswith('no_') else 'true'}"
    new = load("core.settings:RENAMED").get(old)
    return f"--{new.replace('_', '-')}" if new else None


def _output_lost(error: OSError) -> int:
    """Nobody reads our output any more, or it has no room. Python would complain once more while closing stdout."""
    null = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError):
        os.dup2(null, sys.stdout.fileno())
    os.close(null)
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    say(f"standard output cannot be written: {error.strerror}", "what was done is on record: stockade runs list")
    return BUG


def _leave_trace(error: BaseException) -> str:
    import tempfile
    import traceback

    text = without_secrets("".join(traceback.format_exception(error)))
    name = time.strftime("bug-%Y%m%d-%H%M%S.txt", time.gmtime())
    for place in (load("paths:state_dir"), tempfile.gettempdir):
        try:
            folder = Path(place())
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with (folder / name).open("w", errors="backslashreplace") as file:
                file.write(text)
        except (OSError, UsageError):
            continue
        return f"the trace is in {folder / name}"
    return "the trace could not be written anywhere"
