"""Programs of a sandbox while they run, for who uses it from Python: streams out, input in, an end. And ports inside,
which a program there speaks to for each client of this machine.
"""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.from_thread import BlockingPortal

from stockade_sandbox import port
from stockade_sandbox.errors import ActionFailed, SandboxDied, UsageError
from stockade_sandbox.results import CommandOutput, ExecResult
from stockade_sandbox.stoppable import Twin, blocking, unwrap_exception_group

_GONE = (anyio.EndOfStream, anyio.BrokenResourceError)


_IN_FOLDER = 'cd -- "$1" && shift && exec "$@"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a program or a command did. Streams are bytes; a shell command has one, `stdout`, as it came, unless the
    policy says `streams="separate"`.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool
    truncated: bool

    @property
    def text(self) -> str:
        """`stdout` decoded; bytes that are not UTF-8 as `\\xNN`."""
        return self.stdout.decode(errors="backslashreplace")

    @classmethod
    def of(cls, done: CommandOutput | ExecResult) -> "Result":
        return cls(
            exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr, timed_out=done.timed_out,
            truncated=bool(done.truncated_bytes),
        )  # fmt: skip


def command_words(argv: Sequence[str], cwd: str | None, env: Mapping[str, str] | None) -> list[str]:
    """The program with its variables, in its folder."""
    words = list(argv)
    if env:
        words = ["env", "--", *(f"{name}={value}" for name, value in _checked(env).items()), *words]
    return words if cwd is None else ["sh", "-c", _IN_FOLDER, "sh", cwd, *words]


_AS_USER = """wanted=$1; shift
case $wanted in root|0) export HOME=/root USER=root LOGNAME=root; exec "$@";; esac
while IFS=: read -r name _ uid gid _ home _ <&9; do
  [ "$name" = "$wanted" ] || [ "$uid" = "$wanted" ] || continue
  export HOME="$home" USER="$name" LOGNAME="$name"
  exec 9<&-
  exec setpriv --inh-caps=-all --bounding-set=-all --reuid "$uid" --regid "$gid" --init-groups -- "$@"
done 9< /etc/passwd
echo "there is no user $wanted" >&2
exit 125"""


def words_of_user(words: Sequence[str], user: str) -> list[str]:
    """What root of a sandbox runs for a user of its /etc/passwd, by name or number: status 125 where there is none."""
    return ["sh", "-c", _AS_USER, "sh", user, *words]


def _checked(env: Mapping[str, str]) -> Mapping[str, str]:
    for name in env:
        if not name.replace("_", "a").isalnum() or name[0].isdigit():
            raise UsageError(f"{name!r} is not the name of a variable", "a name is of letters, digits and _")
    return env


class AsyncProgram:
    """What `AsyncSandbox.start` gives. Both streams have to be read where a program writes much: it waits for that."""

    def __init__(self, program: port.StartedProgram) -> None:
        self._program = program

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._program.status

    @property
    def timed_out(self) -> bool:
        return self._program.timed_out

    async def read(self, max_bytes: int = 65536) -> bytes:
        """Some of what it wrote to standard output, as soon as there is any; nothing at the end."""
        try:
            return await self._program.receive(max_bytes)
        except _GONE:
            return b""

    async def read_error(self, max_bytes: int = 65536) -> bytes:
        """The same of standard error."""
        try:
            return await self._program.receive_error(max_bytes)
        except _GONE:
            return b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Standard output, piece by piece."""
        while data := await self.read():
            yield data

    async def write(self, data: bytes) -> None:
        """To its standard input. BrokenPipeError when it has ended."""
        try:
            await self._program.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise BrokenPipeError("the program has ended, or its input was closed") from None

    async def close_stdin(self) -> None:
        """It finds the end of its input; on a terminal this is Ctrl-D."""
        try:
            await self._program.send_eof()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def kill(self) -> None:
        """Ends it and all that it has started: SIGTERM, and SIGKILL a second later."""
        await self._program.kill()

    async def signal(self, number: int) -> None:
        """To who is in the foreground of its terminal, else to it and its process group. Nothing once it has ended."""
        await self._program.signal(number)

    async def resize(self, rows: int, columns: int) -> None:
        """Its terminal (`pty=`); nothing where it has none."""
        await self._program.resize(rows, columns)

    async def wait(self, timeout: float | None = None) -> int:
        """For its end; its exit code: 126 or 127 where it could not be started, 124 where its time was over.

        TimeoutError after `timeout` seconds, and it goes on. SandboxDied.
        """
        with anyio.fail_after(timeout):
            status = await self._program.wait()
        if status is None:
            raise SandboxDied("the sandbox ended before the program")
        return status


class Program(Twin[AsyncProgram]):
    """AsyncProgram without `await`."""

    def __init__(self, program: AsyncProgram, portal: BlockingPortal) -> None:
        self._awaited, self._portal = program, portal

    def _running(self) -> BlockingPortal:
        return self._portal

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._awaited.exit_code

    @property
    def timed_out(self) -> bool:
        return self._awaited.timed_out

    def __iter__(self) -> Iterator[bytes]:
        """Standard output, piece by piece."""
        while data := self.read():
            yield data

    read = blocking(AsyncProgram.read)
    read_error = blocking(AsyncProgram.read_error)
    write = blocking(AsyncProgram.write)
    close_stdin = blocking(AsyncProgram.close_stdin)
    kill = blocking(AsyncProgram.kill)
    signal = blocking(AsyncProgram.signal)
    resize = blocking(AsyncProgram.resize)
    wait = blocking(AsyncProgram.wait)


class AsyncShell:
    """What `AsyncSandbox.shell` gives. Its commands wait for each other, and for nobody else's."""

    def __init__(
        self, name: str, shell: port.Shell, noted: Callable[[Awaitable[CommandOutput]], Awaitable[CommandOutput]]
    ):
        self.name, self._shell, self._noted = name, shell, noted

    async def exec(self, command: str, timeout: float | None = None) -> Result:
        """As `AsyncSandbox.exec(shell=command)`."""
        return Result.of(await self._noted(self._shell.run(command, timeout)))


class Shell(Twin[AsyncShell]):
    """AsyncShell without `await`."""

    def __init__(self, shell: AsyncShell, portal: BlockingPortal) -> None:
        self._awaited, self._portal = shell, portal

    def _running(self) -> BlockingPortal:
        return self._portal

    @property
    def name(self) -> str:
        return self._awaited.name

    exec = blocking(AsyncShell.exec)


_RELAY = 'exec 3<>"/dev/tcp/127.0.0.1/$1" || exit; cat <&0 >&3 & exec cat <&3'
_SILENT_S = 60.0


@asynccontextmanager
async def forwarded(box: port.Programs, number: int) -> AsyncIterator[int]:
    """A port of this machine's 127.0.0.1 whose connections end at port `number` of the sandbox's."""
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        unwrap_exception_group(),
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, partial(_carried, box, number))
        yield listener.extra(SocketAttribute.local_port)
        group.cancel_scope.cancel()


async def _carried(box: port.Programs, number: int, client: ByteStream) -> None:
    """One connection. A client that sends no more is not told to the server, which has a minute to answer then."""
    async with client:
        with suppress(ActionFailed, SandboxDied, *_GONE, anyio.ClosedResourceError):
            async with box.program(["/bin/bash", "-c", _RELAY, "bash", str(number)], "") as program:
                async with unwrap_exception_group(), anyio.create_task_group() as group:

                    async def up() -> None:
                        with suppress(*_GONE, anyio.ClosedResourceError):
                            while True:
                                await program.send(await client.receive())
                        patience.deadline = anyio.current_time() + _SILENT_S

                    group.start_soon(up)
                    with anyio.CancelScope() as patience, suppress(*_GONE):
                        while True:
                            await client.send(await program.receive())
                            if patience.deadline != math.inf:
                                patience.deadline = anyio.current_time() + _SILENT_S
                    group.cancel_scope.cancel()
