"""Sandboxes that an MCP client opens and closes by their ids: commands in one shell, programs beside it, files."""

import base64
import binascii
import secrets
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Annotated, Any, Literal, Self, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio.abc import TaskGroup
from pydantic import Field

from stockade.core.errors import UsageError
from stockade.loop.observe import clip
from stockade.mcp_server.results import Closed, Executed, FileContent, Opened, Polled, Started, Written
from stockade.mcp_server.service import MAX_TEXT, Command, Folder, Mode, Seconds, Service
from stockade.runtime.policy import make_policy
from stockade.runtime.sandboxes import backend_of
from stockade_sandbox import AsyncSandbox, Sandbox
from stockade_sandbox.running import AsyncProgram

MAX_BOXES, MAX_PROGRAMS = 8, 16
MAX_WAITING = 1 << 20
"""Bytes of a program's output that wait for a poll; of more the beginning is dropped, and counted."""
MAX_FILE = 4 << 20
MAX_TOLD = 16
"""Lines of what comes at once that are told as progress: the last ones."""
_LOOK_S = 0.05
Box = Annotated[str, Field(min_length=1, max_length=64, description="A sandbox's id, of sandbox_open.")]
Number = Annotated[int, Field(ge=1, le=1_000_000, description="A program's number, of sandbox_start.")]
Path = Annotated[str, Field(min_length=1, max_length=4096, description="Inside; relative to the working folder.")]
Wait = Annotated[float, Field(ge=0, le=300, description="Seconds to wait for something new, or the end.")]
OnLine = Callable[[str], None]
T = TypeVar("T")


@dataclass(slots=True)
class _Job:
    """A program beside the shell, standard output and errors together."""

    program: AsyncProgram | None = None
    waiting: bytearray = field(default_factory=bytearray)
    dropped: int = 0
    ended: bool = False
    error: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, piece: bytes) -> None:
        with self.lock:
            self.waiting += piece
            if (over := len(self.waiting) - MAX_WAITING) > 0:
                del self.waiting[:over]
                self.dropped += over

    def take(self) -> tuple[bytes, int]:
        """Whole lines, so that nothing that is masked comes in two pieces; all of it at the end."""
        with self.lock:
            end = len(self.waiting) if self.ended else self.waiting.rfind(b"\n") + 1
            found, dropped = bytes(self.waiting[:end]), self.dropped
            del self.waiting[:end]
            self.dropped = 0
            return found, dropped


@dataclass(slots=True)
class _Open:
    box: Sandbox
    shell: anyio.Lock = field(default_factory=anyio.Lock)
    jobs: dict[int, _Job] = field(default_factory=dict)


class Boxes:
    """Entered as long as the client is there; leaving ends all of them. The methods are tools as they stand."""

    def __init__(self, service: Service) -> None:
        self._service, self._open, self._opening = service, dict[str, _Open](), 0
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tasks.cancel_scope.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)
        finally:
            with anyio.CancelScope(shield=True):
                for name in list(self._open):
                    await self.sandbox_close(name)

    def _found(self, sandbox: str) -> _Open:
        if sandbox not in self._open:
            raise UsageError(f"there is no open sandbox {sandbox!r}", "sandbox_open gives one")
        return self._open[sandbox]

    def _job(self, sandbox: str, program: int) -> _Job:
        jobs = self._found(sandbox).jobs
        if program not in jobs:
            raise UsageError(f"there is no program {program} in {sandbox}", "sandbox_start gives one")
        return jobs[program]

    async def sandbox_open(self, folder: Folder = None, mode: Mode = "overlay") -> Opened:
        """Open a sandbox, with a folder of this server or an empty one. It lives until sandbox_close, or the client's
        end, which throw away what was written.
        """
        if len(self._open) + self._opening >= MAX_BOXES:
            raise UsageError(f"{MAX_BOXES} sandboxes are open", "close one of them")
        options = self._service.options_for(folder, mode)
        box = Sandbox(policy=make_policy(options, mode), backend=backend_of(options.sandbox))
        name = secrets.token_hex(4)
        self._opening += 1
        try:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(box.__enter__)
                self._open[name] = _Open(box)
        finally:
            self._opening -= 1
        return Opened(sandbox=name, workdir=box.policy.workdir)

    async def sandbox_close(self, sandbox: Box) -> Closed:
        """End a sandbox and all that runs in it; what was written is thrown away."""
        found = self._found(sandbox)
        del self._open[sandbox]
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(found.box.__exit__, None, None, None)
        return Closed(closed=sandbox)

    async def run(self, on_line: OnLine, sandbox: str, command: str, timeout_s: float | None) -> Executed:
        """In its shell, whose folder, variables and functions stay; `on_line` hears whole lines while it runs."""
        found, rest, hidden = self._found(sandbox), bytearray(), self._service.redactor.text

        def heard(_: str, piece: bytes) -> None:
            *lines, last = (bytes(rest) + piece).split(b"\n")
            rest[:] = last[-MAX_TEXT:]
            for line in lines[-MAX_TOLD:]:
                on_line(hidden(line.decode(errors="backslashreplace")))

        async def work(box: AsyncSandbox) -> Any:
            live: Any = box.live
            live.on_output = heard
            try:
                return await box.exec(shell=command, timeout=timeout_s)
            finally:
                live.on_output = None

        async with found.shell:
            done = await found.box.awaited(work)
        out, errors = (data.decode(errors="backslashreplace") for data in (done.stdout, done.stderr))
        return Executed(exit_code=done.exit_code, stdout=clip(hidden(out), MAX_TEXT),
                        stderr=clip(hidden(errors), MAX_TEXT), timed_out=done.timed_out,
                        truncated=done.truncated)  # fmt: skip

    async def sandbox_start(self, sandbox: Box, command: Command, timeout_s: Seconds = None) -> Started:
        """Start a command beside the shell, by a bash of its own: a server, a long build. sandbox_poll has its output,
        sandbox_kill ends it.
        """
        found = self._found(sandbox)
        if sum(not job.ended for job in found.jobs.values()) >= MAX_PROGRAMS:
            raise UsageError(f"{MAX_PROGRAMS} programs are running in {sandbox}", "sandbox_kill one of them")
        number, job = len(found.jobs) + 1, _Job()
        found.jobs[number] = job
        self._tasks.start_soon(self._carry, found.box, job, f"exec 2>&1\n{command}", timeout_s)
        return Started(program=number)

    async def _carry(self, box: Sandbox, job: _Job, command: str, timeout_s: float | None) -> None:
        async def work(inner: AsyncSandbox) -> None:
            async with inner.start(shell=command, timeout=timeout_s) as program:
                job.program = program
                async for piece in program:
                    job.add(piece)
                await program.wait()

        try:
            await box.awaited(work)
        except Exception as error:  # noqa: BLE001  (the next poll says it)
            job.error = str(error)
        finally:
            job.ended = True

    async def sandbox_poll(self, sandbox: Box, program: Number, wait_s: Wait = 0) -> Polled:
        """What a started program wrote since the last poll, in whole lines, and how it ended."""
        job = self._job(sandbox, program)
        with anyio.move_on_after(wait_s):
            while not job.ended and b"\n" not in job.waiting:  # noqa: ASYNC110 (it is filled in another thread)
                await anyio.sleep(_LOOK_S)
        ended = job.ended
        data, dropped = job.take()
        code = job.program.exit_code if ended and job.program else None
        text = self._service.redactor.text(data.decode(errors="backslashreplace"))
        return Polled(running=not ended, exit_code=code, output=clip(text, MAX_TEXT), dropped_bytes=dropped,
                      timed_out=bool(ended and job.program and job.program.timed_out), error=job.error)  # fmt: skip

    async def sandbox_kill(self, sandbox: Box, program: Number) -> Polled:
        """End a started program and all that it has started."""
        found, job = self._found(sandbox), self._job(sandbox, program)
        running = job.program
        if running is not None and not job.ended:
            await found.box.awaited(lambda _: running.kill())
        return await self.sandbox_poll(sandbox, program, 5)

    async def sandbox_read(self, sandbox: Box, path: Path) -> FileContent:
        """A file: as text, or where it is none as base64."""
        data = await self._filed(sandbox, lambda box: box.read_file(path, max_bytes=MAX_FILE))
        try:
            return FileContent(text=data.decode(), base64=None)
        except UnicodeDecodeError:
            return FileContent(text=None, base64=base64.b64encode(data).decode())

    async def sandbox_write(
        self, sandbox: Box, path: Path, content: Annotated[str, Field(max_length=2 * MAX_FILE)],
        encoding: Literal["text", "base64"] = "text",
    ) -> Written:  # fmt: skip
        """Write a file, with the folders above it."""
        try:
            data = content.encode() if encoding == "text" else base64.b64decode(content, validate=True)
        except (binascii.Error, UnicodeEncodeError) as error:
            raise UsageError(f"content is no {encoding}: {error}") from None
        await self._filed(sandbox, lambda box: box.write_file(path, data))
        return Written(bytes=len(data))

    async def sandbox_diff(self, sandbox: Box) -> str:
        """What was written to the folder so far, as a unified diff."""
        diff = await self._found(sandbox).box.awaited(AsyncSandbox.diff)
        return clip(self._service.redactor.text(diff), MAX_TEXT) or "nothing was changed"

    async def _filed(self, sandbox: str, call: Callable[[AsyncSandbox], Awaitable[T]]) -> T:
        try:
            return await self._found(sandbox).box.awaited(call)
        except OSError as error:
            raise UsageError(f"{error.filename or 'the file'}: {error.strerror or error}") from None

    def tools(self) -> tuple[Callable[..., Awaitable[Any]], ...]:
        return (self.sandbox_open, self.sandbox_close, self.sandbox_start, self.sandbox_poll, self.sandbox_kill,
                self.sandbox_read, self.sandbox_write, self.sandbox_diff)  # fmt: skip
