"""The host's end of the agent: one persistent shell, and programs beside it, over one stream.

Knows nothing of how the sandbox was made. The agent keeps the time; what is here only notices that it fell silent.
"""

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import BinaryIO, Self

import anyio

from stockade_sandbox.agent import frames
from stockade_sandbox.agent.binary import agent_memfd
from stockade_sandbox.agent.clip import Clip
from stockade_sandbox.agent.connections import Connections, Running
from stockade_sandbox.agent.frames import Done, Listening, Malformed, Out, Reply, Started
from stockade_sandbox.agent.fullscreen import refuse_fullscreen
from stockade_sandbox.agent.jobs import (
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
from stockade_sandbox.agent.wire import Inbox, Wire
from stockade_sandbox.errors import ActionFailed, SandboxDied, SandboxFailed
from stockade_sandbox.port import MAX_COMMAND_BYTES
from stockade_sandbox.results import Chunk, CommandOutput, ExecResult, ShellEvent

__all__ = ["AgentConfig", "AgentSession", "agent_memfd", "refuse_fullscreen"]

_CANNOT_EXECUTE = 126


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
    if flags & frames.SHELL_RESTARTED:
        return "shell_restarted"
    return "shell_restored" if flags & frames.SHELL_RESTORED else None


class AgentSession:
    """One job at a time; callers wait for each other. After SandboxDied every call raises it again."""

    def __init__(self, stream: socket.socket, config: AgentConfig) -> None:
        self._wire = Wire(stream)
        self._config = config
        self._streams = STREAMS if config.streams == "separate" else STREAMS[:1]
        self._inbox = Inbox(self._wire)
        self._turn = anyio.Lock(fast_acquire=True)
        self._sending = anyio.Lock(fast_acquire=True)
        self._carried: Connections | None = None
        self._job = 0
        self._cwd = config.cwd
        self._dead: str | None = None

    @classmethod
    async def open(cls, stream: socket.socket, config: AgentConfig) -> Self:
        """Waits until the shell is ready. SandboxFailed when the agent or the shell cannot be started.

        Takes over `stream`: it is closed when this fails.
        """
        session = cls(stream, config)
        try:
            await session._start()
        except BaseException:
            await session.close()
            raise
        return session

    async def _start(self) -> None:
        with anyio.move_on_after(HELLO_S):
            await self._send(self._config.request(), "its start")
            check_hello(await self._receive("its start"))
            done = check_ready(await self._receive("its start"))
            self._cwd = done.cwd
            return
        raise SandboxFailed(f"the sandbox did not start within {HELLO_S:g} s")

    async def run(self, command: str, timeout_s: float | None = None, spill: BinaryIO | None = None) -> CommandOutput:
        """In the persistent shell. The output is clipped to `output_bytes`; `spill` gets it whole, up to `spill_bytes`.

        ActionFailed when it is no command at all; SandboxDied when no answer can come any more. Cancelling ends the
        command and leaves the session usable.
        """
        text = _command_bytes(command)
        clip = Clip(self._config.output_bytes, spill, self._config.spill_bytes)
        async with self._turn:
            started = anyio.current_time()
            if reason := refuse_fullscreen(command):
                refused = Chunk.of(self._streams[-1], reason.encode())
                return CommandOutput(exit_code=_CANNOT_EXECUTE, chunks=(refused,), cwd=self._cwd)
            limit_s = self._config.seconds(timeout_s)
            job = self._next_job()
            request = frames.run(job, milliseconds(limit_s), milliseconds(self._config.grace_s), text)
            done = await self._perform(job, request, clip, limit_s, f"the command {short(command)}")
            clip.add(self._streams[-1], self._config.why_ended(done))
            duration_s = anyio.current_time() - started
        if done.flags & frames.SPAWN_FAILED:
            raise SandboxFailed(f"the sandbox's shell cannot be started again: {done.error}")
        chunks, dropped = clip.finish()
        return CommandOutput(
            exit_code=done.status,
            chunks=chunks,
            cwd=done.cwd,
            timed_out=bool(done.flags & frames.TIMED_OUT),
            truncated_bytes=dropped,
            duration_s=duration_s,
            shell_event=_shell_event(done.flags),
        )

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        """A program beside the shell, in its folder. What cannot be executed has status 126 or 127 and the reason.

        Keeps the first `max_output_bytes` of both streams together. SandboxFailed when the sandbox could not start it.
        """
        async with self._turn:
            job = ProgramJob(self._config, self._next_job(), argv, stdin, timeout_s, max_output_bytes)
            done = await self._perform(job.number, job.request, job, job.limit_s, job.what)
        return job.result(done)

    @asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[Connections]:
        """Carries connections to `port` of the sandbox's own 127.0.0.1, inside; once a session, out of jobs.

        SandboxFailed when it cannot be listened on. An end of the sandbox is told by whatever is asked of it next.
        """
        async with self.carrying() as connections:
            await self._listen(port)
            yield connections

    @asynccontextmanager
    async def carrying(self) -> AsyncIterator[Connections]:
        """What the agent says is read all the time. Inside another it is the same one, which has to last as long."""
        if self._carried is not None:
            yield self._carried
            return
        self._carried = connections = Connections(self._carry)
        pumping = anyio.CancelScope(shield=True)  # programs that are cancelled are still to be ended
        started = anyio.Event()

        async def pump() -> None:
            with pumping:
                await self._inbox.pump(connections, started)

        try:
            async with anyio.create_task_group() as group:
                try:
                    async with self._turn:
                        group.start_soon(pump)
                        await started.wait()
                    yield connections
                finally:
                    pumping.cancel()
        finally:
            self._carried = None

    async def start(self, argv: Sequence[str]) -> Running:
        """A program beside the shell, for as long as it is wanted; only within `carrying`.

        ActionFailed when there is no room for it. Cancelled, it was started or not, and ends with the sandbox.
        """
        what = f"the start of {short(argv[0])}"
        async with self._turn:
            assert self._carried is not None
            await self._send(frames.start(checked(argv)), what)
            with anyio.move_on_after(SLACK_S, shield=True):
                reply = await self._receive(what)
                if not isinstance(reply, Started):
                    raise await self._died(f"the sandbox's agent answered out of turn during {what}")
                if reply.error or self._carried.newest is None:
                    raise ActionFailed(f"{argv[0]} cannot be started: {reply.error}")
                return self._carried.newest
        raise await self._died(f"the sandbox fell silent during {what}")

    async def stop(self, program: Running) -> None:
        """Kills it; `program.over` tells when that is done."""
        await self._send(frames.stop(program.number), "the end of a program")

    async def _listen(self, port: int) -> None:
        async with self._turn:
            await self._send(frames.listen(port), "its start")
            with anyio.move_on_after(HELLO_S):
                reply = await self._receive("its start")
                if not isinstance(reply, Listening):
                    raise await self._died("the sandbox's agent answered out of turn during its start")
                if reply.error:
                    raise SandboxFailed(f"the sandbox cannot listen on its loopback: {reply.error}")
                return
        raise await self._died("the sandbox fell silent during its start")

    async def _carry(self, frame: bytes) -> None:
        await self._send(frame, "a transfer")

    async def close(self) -> None:
        """Ends the agent and with it all that runs; idempotent."""
        self._dead = self._dead or "the sandbox was closed"
        self._wire.close()

    def _next_job(self) -> int:
        self._job = self._job % (2**32 - 1) + 1
        return self._job

    async def _perform(self, job: int, request: bytes, sink: "Clip | ProgramJob", limit_s: float, what: str) -> Done:
        """Sends a request and reads until its end. A cancelled one is ended first, so that the next finds order."""
        patience_s = self._config.patience_s(limit_s)
        await self._send(request, what)
        try:
            with anyio.move_on_after(patience_s):
                return await self._until_done(job, sink, what)
        except anyio.get_cancelled_exc_class():
            with suppress(SandboxDied):
                await self._cancel(job, what)
            raise
        raise await self._died(f"the sandbox fell silent during {what}")

    async def _cancel(self, job: int, what: str) -> None:
        with anyio.move_on_after(self._config.grace_s + SLACK_S, shield=True):
            await self._send(frames.kill(job), what)
            await self._until_done(job, None, what)
            return
        raise await self._died(f"the sandbox fell silent during {what}")

    async def _until_done(self, job: int, sink: "Clip | ProgramJob | None", what: str) -> Done:
        while True:
            reply = await self._receive(what)
            if not isinstance(reply, Out | Done) or reply.id != job:
                raise await self._died(f"the sandbox's agent answered out of turn during {what}")
            if isinstance(reply, Done):
                self._cwd = reply.cwd
                return reply
            if sink:
                sink.add(STREAMS[reply.stream - 1], reply.data)

    async def _send(self, request: bytes, what: str) -> None:
        """Whole or not at all: a request cut by cancelling would be the end of the session."""
        if self._dead:
            raise SandboxDied(self._dead)
        try:
            async with self._sending:
                sent = self._wire.send_now(request)
                if sent == len(request):
                    return
                with anyio.move_on_after(SLACK_S, shield=True):
                    await self._wire.send(request[sent:])
                    return
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise await self._died(f"the sandbox ended during {what}") from error
        raise await self._died(f"the sandbox fell silent during {what}")

    async def _receive(self, what: str) -> Reply:
        if self._dead:
            raise SandboxDied(self._dead)
        try:
            return await self._inbox.next()
        except Malformed as error:
            raise await self._died(f"the sandbox's agent sent nonsense during {what}") from error
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise await self._died(f"the sandbox ended during {what}") from error

    async def _died(self, message: str) -> SandboxDied:
        self._dead = self._dead or message
        await self.close()
        return SandboxDied(self._dead)
