"""The process that has a kept sandbox, until it is destroyed or expires; keeping.py has its clients."""

import math
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import anyio
import msgspec
from anyio.abc import ByteStream, SocketListener

from stockade_sandbox.api import AsyncSandbox
from stockade_sandbox.backends.remote.messages import Problem, problem
from stockade_sandbox.errors import SandboxFailed, StockadeError, UsageError
from stockade_sandbox.keeping import (
    ASKED,
    BROKEN,
    GREETING_S,
    SOCKET,
    UNUSED_S,
    Asked,
    Attach,
    Destroy,
    Done,
    Ended,
    Exec,
    Executed,
    Held,
    Kill,
    Line,
    Look,
    Ran,
    Reply,
    Resize,
    Run,
    Signal,
    Spec,
    Start,
    Started,
    Stop,
    Take,
    Taken,
    by_descriptor,
)
from stockade_sandbox.port import Program, Programs, StartedProgram
from stockade_sandbox.stoppable import unwrap_exception_group
from stockade_sandbox.unix_streams import UnixStream, taken_over


class _Holder:
    """A sandbox and its clients. What ends it is done by the task that began it."""

    def __init__(self, box: AsyncSandbox, spec: Spec, base: Path) -> None:
        self._box, self._spec, self._base = box, spec, base
        self._made = time.time()
        self._attached, self._busy = 0, 0
        self._left = anyio.current_time()
        self._patience_s = min(UNUSED_S, spec.expires_s)
        self._work = anyio.create_memory_object_stream[tuple[Stop | Destroy | None, anyio.Event]](math.inf)
        self.gone = anyio.Event()
        """Nothing of it is left."""

    async def until_destroyed(self) -> None:
        """Does what is asked of the whole sandbox. Returns when it is to end, or nobody had a use for it."""
        _, asked = self._work
        while True:
            limit = math.inf if self._busy else self._left + self._patience_s - anyio.current_time()
            with anyio.move_on_after(limit) as waited:
                work, done = await asked.receive()
            if waited.cancelled_caught:
                if self._busy:  # somebody came at the last moment
                    continue
                return
            if isinstance(work, Destroy):
                return
            if isinstance(work, Stop):
                await self._box._stop()
            done.set()

    async def _do(self, work: Stop | Destroy) -> anyio.Event:
        done = anyio.Event()
        await self._work[0].send((work, done))
        return done

    def held(self) -> Held:
        """What it holds, now."""
        box, idle = self._box, 0.0 if self._busy else anyio.current_time() - self._left
        alive = box.is_running
        return Held(
            base=str(self._base), policy=box.policy, backend=self._spec.backend, layers=box.layers,
            guarantees=box.live.guarantees if alive else (), made=self._made, expires_s=self._spec.expires_s,
            clients=self._attached, idle_s=idle, alive=alive,
        )  # fmt: skip

    async def end_on_sigterm(self) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                await self._do(Destroy())

    async def answer(self, stream: UnixStream) -> None:
        """One connection; whatever breaks it is its end."""
        async with stream, AsyncExitStack() as stack:
            with suppress(SandboxFailed, *BROKEN):
                line = Line(stream)
                with anyio.fail_after(GREETING_S):
                    ends = await _adopted(stack, await stream.receive_fds(2))
                    request = await line.receive(ASKED)
                if isinstance(request, Look):
                    await line.send(self.held())
                    return
                self._count(1)
                try:
                    await self._answer(line, request, ends)
                finally:
                    self._count(-1)

    def _count(self, more: int) -> None:
        """Somebody begins or ends to use it."""
        self._busy += more
        self._patience_s = self._spec.expires_s
        self._left = anyio.current_time()
        self._work[0].send_nowait((None, anyio.Event()))

    async def _answer(self, line: Line, request: Asked, ends: Sequence[ByteStream]) -> None:
        try:
            match request:
                case Attach():
                    self._attached += 1
                    try:
                        await line.send(self.held())
                        await line.receive(ASKED)
                    finally:
                        self._attached -= 1
                case Run() | Exec():
                    await self._call(line, request)
                case Start() if ends:
                    await self._program(line, request, ends)
                case Take():
                    await line.send(Taken(names=await self._box._taken()))
                case Stop():
                    await (await self._do(request)).wait()
                    await line.send(Done())
                case Destroy():
                    await self._do(request)
                    with anyio.CancelScope(shield=True):
                        await self.gone.wait()
                        await line.send(Done())
                case _:
                    return
        except StockadeError as error:
            await line.send(problem(error))

    async def _call(self, line: Line, request: Run | Exec) -> None:
        """Ended when the client is gone."""
        async with unwrap_exception_group(), anyio.create_task_group() as group:

            async def watch() -> None:
                with suppress(*BROKEN):
                    await line.receive(ASKED)
                group.cancel_scope.cancel()

            group.start_soon(watch)
            live = self._box.live
            if isinstance(request, Run):
                reply: Reply = Ran(output=await self._box._noted(live.run(request.command, request.timeout_s)))
            else:
                argv = [os.fsdecode(word) for word in request.argv]
                if request.root and not self._box.policy.root:
                    raise UsageError("this sandbox has no root", "make one with Policy(root=True)")
                how = {"root": True} if request.root else {}
                work = live.exec(argv, request.stdin, request.timeout_s, request.max_output_bytes, **how)
                reply = Executed(result=await self._box._noted(work))
            await line.send(reply)
            group.cancel_scope.cancel()

    async def _program(self, line: Line, request: Start, ends: Sequence[ByteStream]) -> None:
        box = self._box.live
        if not isinstance(box, Programs):
            raise UsageError(f"the sandbox {box.backend} runs one program at a time", "use exec")
        argv, cwd = (
            [os.fsdecode(word) for word in request.argv],
            None if request.cwd is None else os.fsdecode(request.cwd),
        )
        words = ""
        async with box.program(
            argv, cwd, request.timeout_s, errors=len(ends) > 1, terminal=request.terminal, root=request.root
        ) as program:
            await line.send(Started())
            async with unwrap_exception_group(), anyio.create_task_group() as group:

                async def told() -> None:
                    with suppress(*BROKEN):
                        while await _told(program, await line.receive(ASKED)):
                            pass
                    group.cancel_scope.cancel()

                group.start_soon(told)
                group.start_soon(_fed, ends[0], program)
                async with anyio.create_task_group() as pumps:
                    pumps.start_soon(_pumped, program.receive, ends[0])
                    if len(ends) > 1:
                        pumps.start_soon(_pumped, program.receive_error, ends[1])
                await program.wait()
                words = await program.exit_reason()
                group.cancel_scope.cancel()
        ended = Ended(status=program.status, timed_out=program.timed_out, error=program.error, words=words)
        await self._box._noted(line.send(ended))


async def _told(program: StartedProgram, asked: Asked) -> bool:
    """Whether its client stays."""
    match asked:
        case Kill():
            await program.kill()
        case Signal():
            await program.signal(asked.number)
        case Resize():
            await program.resize(asked.rows, asked.columns)
        case _:
            return False
    return True


async def _adopted(stack: AsyncExitStack, fds: Sequence[int]) -> list[UnixStream]:
    """Descriptors that came with a call, closed with it. BrokenResourceError for what is no socket."""
    ends = list[UnixStream]()
    for number, fd in enumerate(fds):
        try:
            ends.append(await stack.enter_async_context(UnixStream(socket.socket(fileno=fd))))
        except OSError:
            for left in fds[number:]:
                os.close(left)
            raise anyio.BrokenResourceError from None
    return ends


async def _fed(end: ByteStream, program: Program) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        try:
            while True:
                await program.send(await end.receive())
        except anyio.EndOfStream:
            await program.send_eof()


async def _pumped(receive: Callable[[], Awaitable[bytes]], end: ByteStream) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        try:
            while True:
                await end.send(await receive())
        except anyio.EndOfStream:
            await end.send_eof()


async def _hold(spec: Spec) -> None:
    """The holder. Whoever made it reads at its standard output what it holds, or why it does not."""
    box = AsyncSandbox(policy=spec.policy, backend=spec.backend)
    box._origin = spec.origin
    async with unwrap_exception_group(), anyio.create_task_group() as group:
        async with box:
            holder = _Holder(box, spec, box.base)
            group.start_soon(_serve, _listening(box.base), holder)
            group.start_soon(holder.end_on_sigterm)
            _tell(holder.held())
            _let_go()
            await holder.until_destroyed()
            (box.base / SOCKET).unlink(missing_ok=True)
        holder.gone.set()
        group.cancel_scope.cancel()


def _listening(base: Path) -> socket.socket:
    """At a path that is short, however deep the folder lies."""
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    base.chmod(0o700)
    folder = by_descriptor(base)
    try:
        found = socket.socket(socket.AF_UNIX)
        found.bind(f"/proc/self/fd/{folder}/{SOCKET}")
        found.listen(128)
    finally:
        os.close(folder)
    return found


async def _serve(listening: socket.socket, holder: _Holder) -> None:
    async def answer(stream: ByteStream) -> None:
        await holder.answer(await taken_over(stream))

    await (await SocketListener.from_socket(listening)).serve(answer)


def _let_go() -> None:
    """Of whoever made it."""
    os.chdir("/")
    with open(os.devnull, "r+b") as nothing:
        for fd in range(3):
            os.dup2(nothing.fileno(), fd)


def _tell(reply: Held | Problem) -> None:
    with open(1, "wb", closefd=False) as out:
        out.write(msgspec.msgpack.encode(reply))


def main() -> None:
    """A holder, which is nobody's child: this process ends at once."""
    spec = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Spec)
    if os.fork():
        return
    try:
        anyio.run(_hold, spec)
    except StockadeError as error:
        _tell(problem(error))


if __name__ == "__main__":
    main()
