"""`stockade sandbox exec` in any sandbox, under the policy of a bot's commands: a program, a terminal, JSON lines."""

import base64
import json
import os
import signal
import sys
import termios
import tty
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from pydantic import Field, ValidationError

from stockade import changes
from stockade.cli.lazy import load
from stockade.cli.ui.changeset import files_of, some_files
from stockade.cli.ui.failures import INTERRUPTED, say
from stockade.cli.ui.interrupt import interruptible
from stockade.cli.ui.summary import refused_line
from stockade.core.data import Data
from stockade.core.errors import ActionFailed, SandboxDied, UsageError
from stockade.core.ports import ExecResult, Sandbox, Toolbox
from stockade.core.secrets import Redactor, named_redactor
from stockade.paths import run_dir
from stockade.run_lock import lock
from stockade.runtime import records, sandboxes
from stockade.runtime.policy import environment_of, make_policy
from stockade.runtime.spec import RunSpec
from stockade.runtime.toolchains import own_toolchain
from stockade_sandbox.agent.jobs import Sink
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import MAX_COMMAND_BYTES, Programs, StartedProgram
from stockade_sandbox.results import CommandOutput, NetworkRequest, Stream
from stockade_sandbox.stoppable import unwrap_exception_group

MAX_OUTPUT = MAX_STDIN = 64 << 20
_MAX_LINE = 8 * MAX_COMMAND_BYTES
_MAX_REFUSALS, _SHOWN_REFUSALS = 1000, 5


class Request(Data):
    """A line for `sandbox exec --jsonl`. `timeout` in seconds."""

    command: str
    timeout: float | None = Field(default=None, gt=0)


T = TypeVar("T")


def stream(options: RunSpec, argv: Sequence[str], source: int | None, sink: Sink) -> ExecResult | None:
    """One program in a sandbox of any kind, with folders, tools or a network; None when it was interrupted."""
    redactor = sandbox_redactor(options) if options.redact else None
    return in_sandbox(options, lambda sandbox: piped(sandbox, argv, source, sink, 0, redactor))


async def piped(
    sandbox: Sandbox, argv: Sequence[str], source: int | None, sink: Sink, limit_s: float | None,
    redactor: Redactor | None = None,
) -> ExecResult:  # fmt: skip
    """What it writes goes to `sink` as it comes; at its end where the sandbox has no streams, and where a `redactor`
    hides values, which it is then without. `limit_s` as of Programs.program.
    """
    if isinstance(sandbox, Programs) and redactor is None:
        async with sandbox.program(argv, "", limit_s, errors=True) as program:
            return await _carried(program, source, sink)
    stdin = b"" if source is None else await anyio.to_thread.run_sync(_whole, source)
    done = await sandbox.exec(argv, stdin, limit_s or None, max_output_bytes=MAX_OUTPUT)
    sink("stdout", redactor.raw(done.stdout) if redactor else done.stdout)
    sink("stderr", redactor.raw(done.stderr) if redactor else done.stderr)
    return done


def on_terminal(options: RunSpec, argv: Sequence[str], sink: Sink, *, limited: bool) -> ExecResult | None:
    """As `stream`, on a terminal in the sandbox that ours is the screen and the keyboard of. Its time has an end only
    where that was asked for. UsageError where we have none, or something has to be hidden.
    """
    if not has_terminal():
        raise UsageError(
            "-t needs a terminal, and there is none here",
            "without one: stockade sandbox exec -- CMD, whose streams are passed on as they are",
        )
    if options.redact:
        raise UsageError("--redact hides nothing on a terminal", "leave -t or --redact out")
    return in_sandbox(options, lambda sandbox: through_terminal(sandbox, argv, sink, 0 if limited else None))


def has_terminal() -> bool:
    """Whether ours can be the screen and the keyboard of a program."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


async def through_terminal(
    sandbox: Sandbox,
    argv: Sequence[str],
    sink: Sink,
    limit_s: float | None,
    resized: Callable[[int, int], None] | None = None,
) -> ExecResult:
    """A program on a terminal in the sandbox, and ours passed through to it and back: keys, size, all that it writes.

    `resized` hears of rows and columns that change. `limit_s` as of Programs.program.
    """
    if not isinstance(sandbox, Programs):
        raise UsageError(f"the sandbox {sandbox.backend} has no terminal", "--sandbox bubblewrap has one")
    words = (
        "sh",
        "-c",
        _ON_A_TERMINAL,
        "sh",
        os.environ.get("TERM") or "xterm",
        os.environ.get("COLORTERM", ""),
        *argv,
    )
    source = sys.stdin.fileno()

    async def followed(program: StartedProgram) -> None:
        with anyio.open_signal_receiver(signal.SIGWINCH) as signals:
            async for _ in signals:
                await program.resize(*(size := terminal_size(source)))
                if resized is not None:
                    resized(*size)

    async with sandbox.program(words, "", limit_s, errors=True, terminal=terminal_size(source)) as program:
        with _raw(source):
            async with unwrap_exception_group(), anyio.create_task_group() as group:
                group.start_soon(followed, program)
                done = await _carried(program, source, sink)
                group.cancel_scope.cancel()
        return done


_ON_A_TERMINAL = 'export TERM="$1"; [ -z "$2" ] || export COLORTERM="$2"; shift 2; exec "$@"'


def terminal_size(terminal: int) -> tuple[int, int]:
    """Rows and columns; of one that does not say, what it had for decades."""
    columns, rows = os.get_terminal_size(terminal)
    return rows or 24, columns or 80


@contextmanager
def _raw(terminal: int) -> Iterator[None]:
    """Inside, each key comes as its bytes, Ctrl-C too, and what is written there changes nothing."""
    before = termios.tcgetattr(terminal)
    tty.setraw(terminal)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _whole(source: int) -> bytes:
    with open(source, "rb", closefd=False) as file:
        data = file.read(MAX_STDIN + 1)
    if len(data) > MAX_STDIN:
        raise UsageError(f"standard input is larger than {MAX_STDIN} bytes", "mount a file with --copy")
    return data


async def _carried(program: StartedProgram, source: int | None, sink: Sink) -> ExecResult:
    """Its streams, until it has ended."""

    async def passed(receive: Callable[[], Awaitable[bytes]], stream: Stream) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                await anyio.to_thread.run_sync(sink, stream, await receive())

    async def fed() -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            while source is not None and (data := await _some(source)):
                await program.send(data)
            await program.send_eof()

    async with unwrap_exception_group(), anyio.create_task_group() as feeding:
        feeding.start_soon(fed)
        async with anyio.create_task_group() as group:
            group.start_soon(passed, program.receive, "stdout")
            group.start_soon(passed, program.receive_error, "stderr")
        status = await program.wait()
        feeding.cancel_scope.cancel()
    if program.error:
        sink("stderr", f"{program.error}\n".encode())
    if status is None:
        raise SandboxDied("the sandbox ended before the program")
    return ExecResult(exit_code=status, stdout=b"", stderr=b"", timed_out=program.timed_out)


async def _some(source: int) -> bytes:
    """The next of it; nothing at its end."""
    with suppress(PermissionError):  # of a regular file, which need not be waited for
        await anyio.wait_readable(source)
    return os.read(source, 1 << 16)


def json_lines(options: RunSpec) -> int:
    """One persistent shell: a `Request` a line in, an answer a line out."""
    if sys.stdin is None:
        raise UsageError("standard input is closed", "pipe the commands in, one JSON object a line")
    redactor = sandbox_redactor(options)

    async def work(sandbox: Sandbox) -> int:
        while line := await anyio.to_thread.run_sync(_read_line, abandon_on_cancel=True):
            print(json.dumps(await _answer(sandbox, line, redactor)), flush=True)
        return 0

    status = in_sandbox(options, work)
    return INTERRUPTED if status is None else status


def _read_line() -> bytes:
    """A line; of one that is too long the beginning, the rest passed over."""
    line = sys.stdin.buffer.readline(_MAX_LINE)
    rest = line
    while len(rest) == _MAX_LINE and not rest.endswith(b"\n"):
        rest = sys.stdin.buffer.readline(_MAX_LINE)
    return line


def sandbox_redactor(options: RunSpec) -> Redactor:
    """What a program says is passed on as it is, but for values that were named."""
    redactor = named_redactor(os.environ, environment_of(options), options.redact)
    for line in redactor.warnings:
        say(line)
    return redactor


async def _answer(sandbox: Sandbox, line: bytes, redactor: Redactor) -> dict[str, Any]:
    try:
        request = Request.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        return {"error": f"{place}: {first['msg']}" if place else first["msg"]}
    try:
        return spelled(redactor.output(await sandbox.run(request.command, request.timeout)))
    except ActionFailed as error:
        return {"error": redactor.text(error.message)}


def spelled(output: CommandOutput) -> dict[str, Any]:
    """A line of `sandbox exec --jsonl`; bytes that are not UTF-8 come as base64 beside the text that shows them."""
    line: dict[str, Any] = {"exit_code": output.exit_code}
    for name, data in (("stdout", output.stdout), ("stderr", output.stderr)):
        line[name] = data.decode(errors="backslashreplace")
        if not _is_utf8(data):
            line[f"{name}_base64"] = base64.b64encode(data).decode()
    return line | {
        "cwd": output.cwd,
        "timed_out": output.timed_out,
        "truncated_bytes": output.truncated_bytes,
        "duration_s": round(output.duration_s, 6),
        "event": output.shell_event,
    }


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def in_sandbox(options: RunSpec, work: Callable[[Sandbox], Awaitable[T]], policy: Policy | None = None) -> T | None:
    """What `work` gives in a fresh sandbox, of `policy` where it is given; None when it was interrupted."""

    async def all_of_it() -> T:
        async with _fresh(options, policy or own_toolchain(options, make_policy(options, "overlay"))) as sandbox:
            return await work(sandbox)

    found = interruptible(all_of_it)
    if found is None:
        say("interrupted")
    return found


class _Refusals:
    """What the network did not let through, told once the program has ended: its own streams stay its own."""

    def __init__(self) -> None:
        self._missing, self._failed = Counter[str](), Counter[str]()

    def hear(self, event: NetworkRequest) -> None:
        if event.allow:
            told, counted = event.allow, self._missing
        else:
            told, counted = f"{event.host or 'unreadable'}:{event.port}: {event.reason}", self._failed
        failed = event.verdict == "refused" or (event.reason and not 0 < event.status < 500)
        if failed and (told in counted or len(counted) < _MAX_REFUSALS):
            counted[told] += 1

    def tell(self) -> None:
        for told, count in self._failed.most_common(_SHOWN_REFUSALS):
            say(f"network: {told}{f' ({count} times)' if count > 1 else ''}")
        if line := refused_line(self._missing):
            say(line)


@asynccontextmanager
async def _fresh(options: RunSpec, policy: Policy) -> AsyncIterator[Sandbox]:
    """A sandbox with the programs of tools in it, whose layers are thrown away at the end."""
    run_id = records.new_run_id()
    installed: Callable[[Sandbox], Toolbox] | None = None
    if options.tool:
        policy, installed = await load("tools.command_file:programs")(options.tool, policy)
    with lock(run_id):
        sandbox = await sandboxes.prepare_sandbox(policy, options.sandbox, run_dir(run_id))
        refusals = _Refusals()
        sandbox.on_network = refusals.hear
        try:
            async with sandbox, AsyncExitStack() as stack:
                if installed is not None:
                    await stack.enter_async_context(installed(sandbox))
                yield sandbox
        finally:
            refusals.tell()
            reviewer = sandboxes.reviewer()
            if work := changes.pending(reviewer, sandbox.layers):
                files = some_files(files_of(reviewer, work))
                say(f"thrown away: {files} changed", "--folder PATH:rw writes to the folder itself")
            changes.discard(reviewer, sandbox.layers)
