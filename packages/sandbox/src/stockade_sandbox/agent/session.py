"""The host's end of the agent: one persistent shell, and programs beside it, over one stream.

Knows nothing of how the sandbox was made. The agent keeps the time; what is here only notices that it fell silent.
"""

import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, Self

import anyio
from anyio.abc import ByteStream

from stockade_sandbox.agent import frames
from stockade_sandbox.agent.binary import agent_memfd
from stockade_sandbox.agent.clip import Clip
from stockade_sandbox.agent.connections import Connections, Running
from stockade_sandbox.agent.frames import Data, Done, Ended, Exports, Hello, Listening, Malformed, Out, Reply, Taken
from stockade_sandbox.agent.fullscreen import refuse_fullscreen
from stockade_sandbox.agent.jobs import (
    ENDED_FOR_MEMORY,
    HELLO_S,
    SLACK_S,
    STREAMS,
    AgentConfig,
    ProgramJob,
    check_hello,
    check_ready,
    checked,
    milliseconds,
    short,
)
from stockade_sandbox.agent.wire import ENDS, CarriedWire, Inbox
from stockade_sandbox.errors import ActionFailed, SandboxDied, SandboxFailed
from stockade_sandbox.port import MAX_COMMAND_BYTES, OnOutput
from stockade_sandbox.results import Chunk, CommandOutput, ExecResult, ShellEvent, Stream
from stockade_sandbox.unix_streams import Wire

__all__ = ["AgentConfig", "AgentSession", "agent_memfd", "refuse_fullscreen"]

_CANNOT_EXECUTE = 126
_ENDED_S, _TICK_S = 2.0, 0.005
INTERRUPTED = 130
"""The status of a command that was ended by `interrupt`, as of one that Ctrl-C ends."""


def _command_bytes(command: str) -> bytes:
    try:
        text = command.encode()
    except UnicodeEncodeError as error:
        raise ActionFailed("the command holds half a surrogate pair, which is no text") from error
    if b"\0" in text:
        raise ActionFailed("the command holds a NUL byte; write it as \\0 for printf")
    if len(text) > MAX_COMMAND_BYTES:
        raise ActionFailed(
            f"the command is {len(text)} bytes long, over the limit of {MAX_COMMAND_BYTES}", "write a file instead"
        )
    return text


def _shell_event(flags: int) -> ShellEvent | None:
    if flags & frames.OUT_OF_TURN:
        return "shell_impersonated"
    if flags & frames.SHELL_RESTARTED:
        return "shell_restarted"
    return "shell_restored" if flags & frames.SHELL_RESTORED and not flags & frames.KILLED else None


@dataclass(slots=True)
class _Command:
    """The one that the shell does, or (0) its start."""

    number: int
    sink: Clip | None = None
    done: Done | None = None


class AgentSession:
    """Commands of the shell wait for each other; programs beside it are done as they come. After SandboxDied every call
    raises it again.
    """

    def __init__(self, stream: socket.socket | ByteStream, config: AgentConfig) -> None:
        self._wire = Wire(stream) if isinstance(stream, socket.socket) else CarriedWire(stream)
        self._config = config
        self._streams = STREAMS if config.streams == "separate" else STREAMS[:1]
        self._connections = Connections(self)
        self._inbox = Inbox(self._wire, self._take, self._connections.lose)
        self._turn = anyio.Lock(fast_acquire=True)
        self._sending = anyio.Lock(fast_acquire=True)
        self.places = anyio.Semaphore(frames.MAX_PROGRAMS, fast_acquire=True)
        """For programs."""
        self._command: _Command | None = None
        self._ended: _Command | None = None
        self._jobs: dict[int, ProgramJob] = {}
        self._hello: Hello | None = None
        self._listening: list[Listening] = []
        self._cwd = config.cwd
        self._exports: bytes | None = None
        self._dead: str | None = None
        self._endings, self._why = 0, ""
        """How many times all that ran was ended, and why the last time."""
        self.is_readable = False
        """Others inside can open the shell's descriptors: the kernel would not run what nobody may read."""
        self.on_output: OnOutput | None = None
        """Implements port.ShowsOutput."""
        self.ended_for_memory: Callable[[], int] = lambda: 0
        """How many programs of this sandbox the kernel has ended at its limit of memory."""
        self.notes: deque[str] = deque()
        """What to tell at the end of the next command; from any thread."""

    @classmethod
    async def open(cls, stream: socket.socket | ByteStream, config: AgentConfig) -> Self:
        """Waits until the shell is ready. SandboxFailed when the agent or the shell cannot be started.

        Takes over `stream`: a socket is closed when this fails.
        """
        session = cls(stream, config)
        try:
            await session._start()
        except BaseException:
            await session.close()
            raise
        return session

    async def _start(self) -> None:
        self._command = start = _Command(0)
        with anyio.move_on_after(HELLO_S):
            await self.send(self._config.request(), "its start")
            await self._until(lambda: start.done is not None, "its start")
        if self._hello is None or start.done is None:
            raise SandboxFailed(f"the sandbox did not start within {HELLO_S:g} s")
        check_hello(self._hello)
        self.is_readable = bool(check_ready(start.done).flags & frames.READABLE)

    def _take(self, reply: Reply) -> None:
        """From the agent."""
        match reply:
            case Hello() if self._hello is None:
                self._hello = reply
            case Listening() if self._connections.listens and len(self._listening) < frames.MAX_LISTENERS:
                self._listening.append(reply)
            case Out() | Done() if self._command is not None and reply.id == self._command.number:
                if isinstance(reply, Out):
                    if self._command.sink:
                        self._wrote(self._command.sink, STREAMS[reply.stream - 1], reply.data)
                else:
                    self._command.done, self._command, self._cwd = reply, None, reply.cwd
            case Exports() if self._command is not None:
                self._exports = reply.text
            case Hello() | Listening() | Out() | Done() | Exports():
                raise Malformed("a reply out of turn")
            case Data() | Taken() | Ended() if (job := self._jobs.get(reply.number & ~1)) is not None:
                job.take(reply)
            case _:
                self._connections.take(reply)

    async def run(self, command: str, timeout_s: float | None = None, spill: BinaryIO | None = None) -> CommandOutput:
        """In the persistent shell. The output is clipped to `output_bytes`; `spill` gets it whole, up to `spill_bytes`.

        ActionFailed when it is no command at all; SandboxDied when no answer can come any more. Cancelling ends the
        command and leaves the session usable.
        """
        text = _command_bytes(command)
        clip = Clip(self._config.output_bytes, spill, self._config.spill_bytes)
        async with self._turn:
            started, before = anyio.current_time(), self.endings()
            if reason := refuse_fullscreen(command):
                refused = Chunk.of(self._streams[-1], reason.encode())
                return CommandOutput(exit_code=_CANNOT_EXECUTE, chunks=(refused,), cwd=self._cwd)
            limit_s = self._config.seconds(timeout_s)
            job = _Command(self._connections.number(), clip)
            request = frames.run(job.number, milliseconds(limit_s), milliseconds(self._config.grace_s), text)
            done = await self._perform(job, request, limit_s, f"the command {short(command)}")
            self._wrote(clip, self._streams[-1], self.why_ended(done.status, before))
            while self.notes:
                note = f"stockade: {self.notes.popleft()}\n".encode(errors="surrogateescape")
                self._wrote(clip, self._streams[-1], note)
            duration_s = anyio.current_time() - started
        if done.flags & frames.SPAWN_FAILED:
            raise SandboxFailed(f"the sandbox's shell cannot be started again: {done.error}")
        chunks, dropped = clip.finish()
        return CommandOutput(
            exit_code=INTERRUPTED if done.flags & frames.KILLED else done.status,
            chunks=chunks,
            cwd=done.cwd,
            timed_out=bool(done.flags & frames.TIMED_OUT),
            truncated_bytes=dropped,
            duration_s=duration_s,
            shell_event=_shell_event(done.flags),
        )

    def _wrote(self, clip: Clip, stream: Stream, data: bytes) -> None:
        clip.add(stream, data)
        if self.on_output is not None and data:
            self.on_output(stream, data)

    async def _perform(self, job: _Command, request: bytes, limit_s: float, what: str) -> Done:
        def is_done() -> bool:
            return job.done is not None

        self._command = job
        try:
            await self.send(request, what)
        except BaseException:  # nothing was sent
            self._command = None
            raise
        work, kill = partial(self._until, is_done, what), partial(self.send, frames.kill(job.number), what)
        await self._patiently(work, kill, is_done, self._config.patience_s(limit_s), what)
        assert job.done is not None
        return job.done

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20,
        *, root: bool = False,
    ) -> ExecResult:  # fmt: skip
        """A program beside the shell, in its folder. What cannot be executed has status 126 or 127 and the reason.

        Keeps the first `max_output_bytes` of both streams together. SandboxFailed when the sandbox could not start it.
        Any number at once; more than MAX_PROGRAMS wait for their turn.
        """
        number = self._connections.number()
        job = ProgramJob(self._config, number, argv, stdin, timeout_s, max_output_bytes, root=root)

        def is_over() -> bool:
            return job.ended is not None

        async with self.places:
            before = self.endings()
            self._jobs[job.number] = job
            try:
                await self.send(job.request + job.due(), job.what)
                stop = partial(self.send, job.stop(), job.what)
                await self._patiently(partial(self._feed, job), stop, is_over, job.patience_s, job.what)
            finally:
                del self._jobs[job.number]
        return job.result(self.why_ended(job.ended.status, before) if job.ended else b"")

    async def _feed(self, job: ProgramJob) -> None:
        """Until it has ended: its input as it takes it, room for its output."""
        while job.ended is None:
            await self._until(lambda: job.ended is not None or job.has_due(), job.what)
            if due := job.due():
                await self.send(due, job.what)

    @asynccontextmanager
    async def listening(self, port: int, everywhere: Iterable[int] = ()) -> AsyncIterator[Connections]:
        """Carries connections to `port` of the sandbox's own 127.0.0.1, and to those that are `everywhere` on its
        loopback, inside; once a session, out of commands.

        SandboxFailed when one cannot be listened on. An end of the sandbox is told by whatever is asked of it next.
        """
        self._connections.listens, what = True, "its start"
        wanted = [(port, False), *((one, True) for one in everywhere)]
        async with self._turn:
            await self.send(b"".join(frames.listen(one, everywhere=all_) for one, all_ in wanted), what)
            with anyio.move_on_after(HELLO_S):
                await self._until(lambda: len(self._listening) == len(wanted), what)
        if len(self._listening) < len(wanted):
            raise await self._died(f"the sandbox fell silent during {what}")
        for (one, _), reply in zip(wanted, self._listening, strict=True):
            if reply.error:
                raise SandboxFailed(f"the sandbox cannot listen on port {one} of its loopback: {reply.error}")
        yield self._connections

    async def start(
        self, argv: Sequence[str] | None, cwd: str, timeout_s: float = 0, terminal: frames.Size | None = None,
        *, root: bool = False,
    ) -> Running:  # fmt: skip
        """A program beside the shell, for as long as it is wanted, or `timeout_s`; `places` has to have room for it.
        An empty `cwd` is where the shell is; no `argv` is an agent with a shell of its own. In a `terminal` all its
        streams are one.

        ActionFailed for what are no arguments. Cancelled, it was not started.
        """
        words, running = () if argv is None else checked(argv), self._connections.start()
        try:
            limit, grace = milliseconds(timeout_s), milliseconds(self._config.grace_s if timeout_s else 0)
            request = frames.start(running.number, limit, grace, cwd, words, terminal, root=root)
            await self.send(request, f"the start of {short(words[0]) if words else 'a shell'}")
        except BaseException:
            self._connections.forget(running)
            raise
        return running

    async def stop(self, running: Running) -> None:
        """Ends it and all that it has started; `is_over` tells when that is done."""
        await self.send(frames.kill(running.number), "the end of a program")

    async def resize(self, running: Running, size: frames.Size) -> None:
        """Its terminal."""
        await self.send(frames.resize(running.number, size), "a new size of a terminal")

    async def signal(self, running: Running, number: int) -> None:
        """To whom its terminal would send it, else to its own group."""
        await self.send(frames.signal(running.number, number), "a signal")

    async def end_commands(self, why: str) -> None:
        """All that runs inside, at once, and is told why; its status is 137. The shell is as before its command."""
        self._endings += 1
        self._why, self._ended = why, self._command
        await self.send(frames.kill(0), "the end of what runs")

    async def until_ended(self) -> None:
        """Waits, not for long, until the command of the shell that `end_commands` ended is over."""
        with anyio.move_on_after(_ENDED_S):
            while self._ended and self._ended.done is None and not self._dead:  # noqa: ASYNC110 (once in a run)
                await anyio.sleep(_TICK_S)

    async def interrupt(self, why: str) -> bool:
        """Implements port.Interruptible."""
        if (command := self._command) is None or not command.number:
            return False
        self.notes.append(why)
        await self.send(frames.kill(command.number), "the end of a command")
        return True

    @property
    def exports(self) -> str | None:
        """Implements port.TellsExports."""
        return None if self._exports is None else self._exports.decode(errors="replace")

    @property
    def config(self) -> AgentConfig:
        """What it was started with."""
        return self._config

    @property
    def workdir(self) -> str:
        """The first folder."""
        return self._config.cwd

    def seconds(self, wanted: float | None) -> float:
        """AgentConfig.seconds."""
        return self._config.seconds(wanted)

    def endings(self) -> tuple[int, int]:
        """So far: how many times all that ran was ended, how many programs at the limit of memory."""
        return self._endings, self.ended_for_memory()

    def why_ended(self, status: int, before: tuple[int, int]) -> bytes:
        """What the kernel does not say, of what began when the `endings` were those: all was ended, or it met a
        limit.
        """
        endings, for_memory = self.endings()
        if endings != before[0]:
            return f"stockade: {self._why}\n".encode()
        return ENDED_FOR_MEMORY if for_memory > before[1] else self._config.why_ended(status)

    async def close(self) -> None:
        """Ends the agent and with it all that runs; idempotent."""
        self._dead = self._dead or "the sandbox was closed"
        self._wire.close()

    async def _patiently(
        self, work: Callable[[], Awaitable[None]], end: Callable[[], Awaitable[None]], is_over: Callable[[], bool],
        patience_s: float, what: str,
    ) -> None:  # fmt: skip
        """Does the work, until it `is_over`. Cancelled, it is ended first, so that the next finds order."""
        try:
            with anyio.move_on_after(patience_s):
                return await work()
        except anyio.get_cancelled_exc_class():
            with suppress(SandboxDied), anyio.CancelScope(shield=True):
                with anyio.move_on_after(self._config.grace_s + SLACK_S):
                    await end()
                    await self._until(is_over, what)
                if not is_over():
                    raise await self._died(f"the sandbox fell silent during {what}") from None
            raise
        raise await self._died(f"the sandbox fell silent during {what}")

    async def _until(self, ready: Callable[[], bool], what: str) -> None:
        if self._dead:
            raise SandboxDied(self._dead)
        try:
            await self._inbox.until(ready)
        except Malformed as error:
            raise await self._died(f"the sandbox's agent sent nonsense during {what}") from error
        except ENDS as error:
            raise await self._died(f"the sandbox ended during {what}") from error

    async def until(self, ready: Callable[[], bool]) -> None:
        """Implements connections.Link, as the next two."""
        await self._inbox.until(ready)

    def wake(self) -> None:
        self._inbox.wake()

    async def send(self, frame: bytes, what: str = "a transfer") -> None:
        """Whole or not at all: a request cut by cancelling would be the end of the session."""
        if self._dead:
            raise SandboxDied(self._dead)
        try:
            async with self._sending:
                sent = self._wire.send_now(frame)
                if sent == len(frame):
                    return
                with anyio.move_on_after(SLACK_S, shield=True):
                    await self._wire.send(frame[sent:])
                    return
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise await self._died(f"the sandbox ended during {what}") from error
        raise await self._died(f"the sandbox fell silent during {what}")

    async def _died(self, message: str) -> SandboxDied:
        self._dead = self._dead or message
        await self.close()
        return SandboxDied(self._dead)
