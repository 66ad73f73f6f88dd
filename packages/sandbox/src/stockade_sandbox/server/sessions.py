"""The sandboxes that a server has, each with its programs. They outlive their clients' connections for a while."""

import secrets
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup, TaskStatus

from stockade_sandbox.backends.remote.allowed import Allowed, granted
from stockade_sandbox.backends.remote.calls import MAX_INPUT, PIECE, Heard, Opened, Start, State
from stockade_sandbox.backends.remote.messages import problem
from stockade_sandbox.errors import ActionFailed, SandboxDied, SandboxFailed, StockadeError, UsageError
from stockade_sandbox.leftovers import remove_boxes
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import OnNetwork, Programs, Sandbox, ShowsOutput, StartedProgram
from stockade_sandbox.processes import BOX, boxes_dir, own_prefix
from stockade_sandbox.results import NetworkRequest, Stream
from stockade_sandbox.running import command_words
from stockade_sandbox.server.folders import Inbox, SentFolder
from stockade_sandbox.stoppable import unwrap_exception_group

KEEP_S = 120.0
"""How long a sandbox is kept that no request is about."""
MAX_SANDBOXES = 32
MAX_PROGRAMS = 256
"""Of one sandbox at once, and as many again that have ended and that nobody has taken away."""
ROOM = 1 << 20
"""Of a program's output that nobody has yet; then the program waits."""
SHOWN = 4 << 20
"""The same of a command of the shell, which never waits: the oldest is left out."""
_MAX_NEWS = 10_000
_MAX_GONE = 10_000
_OVERHEAD = 128
_EVENT, _SMALL = 64 << 10, 8 << 10

OpenBox = Callable[[Policy, OnNetwork], AbstractAsyncContextManager[Sandbox]]
"""A sandbox for a policy that was granted; leaving takes everything of it away."""


class NotThere(SandboxDied):
    """No sandbox, or program, of that name, or not of this client."""


class Conflicting(UsageError):
    """What is asked for does not fit what was asked before."""


def to_stderr(line: str) -> None:
    print(f"stockade: {line}", file=sys.stderr, flush=True)


class Output:
    """What a program writes, until its client has it. A place in it is a number of bytes, of both streams together."""

    def __init__(self, room: int, *, waits: bool) -> None:
        self._room, self._waits = room, waits
        self._pieces = deque[tuple[int, Stream, bytes]]()
        self._kept = self.written = 0
        self.over = False
        self._changed = anyio.Event()

    def add(self, stream: Stream, data: bytes) -> None:
        """Implements port.OnOutput. Small pieces of one stream are put together, large ones are cut."""
        for at in range(0, len(data), _EVENT):
            self._add(stream, data[at : at + _EVENT])
        while not self._waits and self._kept > self._room:
            self._drop()
        self._tell()

    def _add(self, stream: Stream, data: bytes) -> None:
        self.written += len(data)
        last = self._pieces[-1] if self._pieces else None
        if last is not None and last[1] == stream and len(last[2]) + len(data) <= _SMALL:
            self._pieces[-1] = (self.written, stream, last[2] + data)
        else:
            self._pieces.append((self.written, stream, data))
            self._kept += _OVERHEAD
        self._kept += len(data)

    async def put(self, stream: Stream, data: bytes) -> None:
        """The same, when there is room."""
        while self._kept >= self._room:
            await self._changed.wait()
        self.add(stream, data)

    def end(self) -> None:
        self.over = True
        self._tell()

    def had(self, at: int) -> None:
        """The client has all before that place, and will not ask for it again."""
        while self._pieces and self._pieces[0][0] <= at:
            self._drop()
        self._tell()

    async def behind(self, at: int, patience_s: float) -> list[tuple[int, Stream, bytes]]:
        """What there is behind that place, each with its own end; nothing when nothing came in time, or it is over."""
        with anyio.move_on_after(patience_s):
            while self.written <= at and not self.over:
                await self._changed.wait()
        return [(end, stream, data[max(0, len(data) - (end - at)) :]) for end, stream, data in self._pieces if end > at]

    def _drop(self) -> None:
        self._kept -= len(self._pieces.popleft()[2]) + _OVERHEAD

    def _tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


@dataclass
class Running:
    """A program or a command, from its request until the client takes it away."""

    start: Start
    state: State
    output: Output
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)
    changed: anyio.Event = field(default_factory=anyio.Event)
    program: StartedProgram | None = None
    fed: int = 0
    """How much of its input came."""
    closed: bool = False
    waiting: deque[bytes] = field(default_factory=deque)
    signals: int = 0
    reader: int = 0
    """The last who reads its events: an earlier one is told no more."""

    @property
    def collects(self) -> bool:
        return self.start.max_output_bytes is not None

    async def feed(self, at: int, data: bytes, end: bool, patience_s: float) -> bool:
        """Input behind the first `at` bytes, which is taken once; whether there was room for it in time."""
        if at > self.fed or (self.closed and at + len(data) > self.fed):
            raise Conflicting(f"its input is at {self.fed} and not at {at}", "send what is behind that")
        with anyio.move_on_after(patience_s):
            while not self.collects and self.waiting and not self.ended.is_set():
                await self.changed.wait()
        if not self.collects and self.waiting and not self.ended.is_set():
            return False
        new = data[self.fed - at :]
        if self.collects and self.fed + len(new) > MAX_INPUT:
            raise ActionFailed(f"its input is over the limit of {MAX_INPUT >> 20} MiB")
        if new:
            self.waiting.append(new)
        self.fed += len(new)
        self.closed = self.closed or end
        self.tell()
        return True

    async def pieces(self) -> AsyncIterator[bytes]:
        """Its input as it comes, until its end."""
        while True:
            while self.waiting:
                piece = self.waiting[0]
                yield piece
                self.waiting.popleft()
                self.tell()
            if self.closed:
                return
            await self.changed.wait()

    def tell(self) -> None:
        changed, self.changed = self.changed, anyio.Event()
        changed.set()

    def end(self, **found: object) -> None:
        self.state = replace_state(self.state, ended=True, **found)
        self.program = None
        self.waiting.clear()
        self.output.end()
        self.ended.set()
        self.tell()


def replace_state(state: State, **changes: object) -> State:
    return State(**{name: getattr(state, name) for name in state.__struct_fields__} | changes)


class Session:
    """One sandbox of one client."""

    def __init__(self, name: str, owner: str, policy: Policy, server: "Sessions", sent: tuple[int, ...] = ()) -> None:
        self.name, self.owner, self.policy = name, owner, policy
        self.inbox = Inbox(boxes_dir() / f"{own_prefix(BOX)}{secrets.token_hex(4)}", sent)
        self.folders: dict[int, SentFolder] = {}
        self._server = server
        self.programs: dict[str, Running] = {}
        self._gone = deque[str](maxlen=_MAX_GONE)
        self._scope = anyio.CancelScope()
        self._group: TaskGroup | None = None
        self._box: Sandbox | None = None
        self._shell = anyio.Lock()
        self.opened: Opened | None = None
        self.failed: StockadeError | None = None
        self.is_open, self.over = anyio.Event(), anyio.Event()
        self._news = deque[NetworkRequest](maxlen=_MAX_NEWS)
        self._told = 0
        self._busy, self._left = 0, anyio.current_time()
        self._used, self._unused = anyio.Event(), anyio.Event()

    @contextmanager
    def used(self) -> Iterator[None]:
        """While a request is about it, nobody takes it away."""
        self._busy += 1
        if self._busy == 1:
            self._unused = anyio.Event()
            self._used.set()
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._left, self._used = anyio.current_time(), anyio.Event()
                self._unused.set()

    @property
    def box(self) -> Sandbox:
        """SandboxDied, or why it never was there."""
        if self._box is None:
            raise self.failed or SandboxDied("the sandbox is gone over there", "it was closed")
        return self._box

    def heard(self, at: int) -> Heard:
        """What it asked of the network behind the first `at`; those before are forgotten."""
        while self._news and self._told < at:
            self._news.popleft()
            self._told += 1
        return Heard(at=self._told, events=tuple(self._news))

    def _on_network(self, event: NetworkRequest) -> None:
        if len(self._news) == _MAX_NEWS:
            self._told += 1
        self._news.append(event)

    async def live(self) -> None:
        """From its start to its end, whatever ends it; then nothing of it is left."""
        try:
            with self._scope:
                await self._until_all_here()
                policy = self.inbox.given(self.policy)
                async with unwrap_exception_group(), self._server.open_box(policy, self._on_network) as box:
                    async with anyio.create_task_group() as group:
                        self.folders = await to_thread.run_sync(self.inbox.folders, box)
                        self._box, self._group = box, group
                        self.opened = Opened(
                            id=self.name, backend=box.backend, guarantees=box.guarantees,
                            layers=() if self.folders else tuple(one for one in box.layers if one.strategy != "direct"),
                        )  # fmt: skip
                        self.is_open.set()
                        await self._until_unused()
                        group.cancel_scope.cancel()
        except StockadeError as error:
            self.failed = error
        except (OSError, ValueError, RuntimeError, ExceptionGroup) as bug:  # of one sandbox; the others go on
            self._server.log(f"a sandbox ended by a bug: {type(bug).__name__}: {bug}")
            self.failed = SandboxFailed("the serving machine has failed: its log says how")
        finally:
            self._box = self._group = None
            for running in self.programs.values():
                if not running.ended.is_set():
                    running.end(problem=problem(self.failed or SandboxDied("the sandbox was closed over there")))
            for folder in self.folders.values():
                folder.close()
            with anyio.CancelScope(shield=True):
                await self.inbox.remove()
            self._server.forget(self)
            self.is_open.set()
            self.over.set()

    async def _until_all_here(self) -> None:
        """SandboxFailed when its client went away before it had sent its folders."""
        async with anyio.create_task_group() as group:

            async def give_up() -> None:
                await self._until_unused()
                group.cancel_scope.cancel()

            group.start_soon(give_up)
            await self.inbox.all_here.wait()
            group.cancel_scope.cancel()
        if not self.inbox.all_here.is_set():
            raise SandboxFailed("the sandbox's folders were not sent", "PUT …/folders/{n}")

    def folder(self, number: int) -> SentFolder:
        """SandboxDied; NotThere."""
        if self.box and number not in self.folders:
            raise NotThere(f"no folder {number} was sent to the sandbox")
        return self.folders[number]

    async def _until_unused(self) -> None:
        while True:
            if self._busy:
                await self._unused.wait()
            with anyio.CancelScope(deadline=self._left + self._server.keep_s) as waited:
                await self._used.wait()
            if waited.cancelled_caught and not self._busy:
                return

    async def close(self) -> None:
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await self.over.wait()

    def running(self, n: str) -> Running:
        try:
            return self.programs[n]
        except KeyError:
            raise NotThere(f"the sandbox has no program {n}") from None

    def begin(self, n: str | None, start: Start) -> Running:
        """One that has begun already is that one."""
        box, name = self.box, n or secrets.token_hex(8)
        if (found := self.programs.get(name)) is not None:
            if found.start != start:
                raise Conflicting(f"program {name} is another one", "a name is used once")
            return found
        if name in self._gone:
            raise NotThere(f"program {name} was taken away")
        if (start.shell is None) == (not start.argv):
            raise UsageError("a program is argv or shell", 'write {"argv": ["ls"]} or {"shell": "ls"}')
        if start.shell is None and start.max_output_bytes is None and not isinstance(box, Programs):
            raise UsageError(f"the sandbox {box.backend} runs one program at a time", "give max_output_bytes")
        if sum(not one.ended.is_set() for one in self.programs.values()) >= MAX_PROGRAMS:
            raise ActionFailed(f"{MAX_PROGRAMS} programs run already")
        if len(self.programs) >= 2 * MAX_PROGRAMS:
            self.forget(next(name for name, one in self.programs.items() if one.ended.is_set()))
        assert self._group is not None
        shown = start.shell is not None
        made = Running(start, State(n=name, ended=False), Output(SHOWN if shown else ROOM, waits=not shown))
        if start.stdin is not None:
            made.waiting.append(start.stdin)
            made.fed, made.closed = len(start.stdin), made.collects
        self.programs[name] = made
        self._group.start_soon(self._do, box, made)
        return made

    def forget(self, n: str) -> None:
        self._gone.append(n)
        self.programs.pop(n, None)

    async def end(self, n: str) -> None:
        """It is over, and forgotten; also one that was never begun."""
        running = self.programs.get(n)
        if running is not None:
            running.scope.cancel()
            await running.ended.wait()
        self.forget(n)

    async def _do(self, box: Sandbox, running: Running) -> None:
        found: dict[str, object] = {"problem": problem(ActionFailed("it was ended"))}
        try:
            with running.scope:
                work = self._command if running.start.shell is not None else self._collected
                if not (running.collects or running.start.shell is not None):
                    work = self._program
                found = await work(box, running)
        except StockadeError as error:
            found = {"problem": problem(error)}
        finally:
            running.end(**found)

    async def _command(self, box: Sandbox, running: Running) -> dict[str, object]:
        async with self._shell:
            if isinstance(box, ShowsOutput):
                box.on_output = running.output.add
            try:
                return {"output": await box.run(running.start.shell or "", running.start.timeout_s)}
            finally:
                if isinstance(box, ShowsOutput):
                    box.on_output = None

    async def _collected(self, box: Sandbox, running: Running) -> dict[str, object]:
        start, given = running.start, bytearray()
        async for piece in running.pieces():
            given += piece
        argv = command_words(start.argv, start.cwd, start.env)
        return {"result": await box.exec(argv, bytes(given), start.timeout_s, start.max_output_bytes or 0)}

    async def _program(self, box: Sandbox, running: Running) -> dict[str, object]:
        assert isinstance(box, Programs)
        start, output = running.start, running.output
        argv, cwd = list(start.argv), start.cwd
        if start.env:
            argv = command_words(argv, None, start.env)
        async with box.program(argv, cwd, start.timeout_s, errors=start.stderr, terminal=start.pty) as program:
            running.program = program
            running.tell()
            async with unwrap_exception_group(), anyio.create_task_group() as group:
                group.start_soon(_fed, program, running)
                async with anyio.create_task_group() as pumps:
                    pumps.start_soon(_pumped, program.receive, partial(output.put, "stdout"))
                    if start.stderr:
                        pumps.start_soon(_pumped, program.receive_error, partial(output.put, "stderr"))
                await program.wait()
                words = await program.exit_reason()
                group.cancel_scope.cancel()
        return {
            "status": program.status, "timed_out": program.timed_out, "error": program.error, "words": words,
        }  # fmt: skip


async def _fed(program: StartedProgram, running: Running) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for piece in running.pieces():
            await program.send(piece)
        await program.send_eof()


async def _pumped(receive: Callable[[int], Awaitable[bytes]], put: Callable[[bytes], Awaitable[None]]) -> None:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            await put(await receive(PIECE))


class Sessions:
    """All that a server has. `allowed` bounds what may be asked for; one that is not used is kept `keep_s`."""

    def __init__(
        self, allowed: Allowed, open_box: OpenBox, keep_s: float = KEEP_S, log: Callable[[str], None] = to_stderr
    ) -> None:
        self.allowed, self.open_box, self.keep_s, self.log = allowed, open_box, keep_s, log
        self._known: dict[tuple[str, str], Session] = {}
        self._gone = deque[tuple[str, str]](maxlen=_MAX_GONE)
        self._group: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled; then every sandbox ends. What servers that were killed had of clients is removed first."""
        await to_thread.run_sync(remove_boxes, boxes_dir())
        async with anyio.create_task_group() as group:
            self._group = group
            task_status.started()
            try:
                await anyio.sleep_forever()
            finally:
                self._group = None

    @property
    def all(self) -> list[Session]:
        return list(self._known.values())

    def of(self, owner: str) -> list[Session]:
        return [one for (of, _), one in self._known.items() if of == owner]

    def find(self, owner: str, name: str) -> Session:
        """NotThere for what is not there, or another's."""
        try:
            return self._known[owner, name]
        except KeyError:
            raise NotThere(
                "the sandbox is gone over there", "its server was started anew, or waited too long"
            ) from None

    def begin(self, owner: str, name: str | None, policy: Policy, sent: tuple[int, ...] = ()) -> Session:
        """One that has begun already is that one."""
        if self._group is None:
            raise SandboxFailed("the server is ending")
        key = (owner, name or secrets.token_hex(16))
        if (found := self._known.get(key)) is not None:
            return found
        if key in self._gone:
            raise NotThere("the sandbox is gone over there", "it was closed")
        if len(self._known) >= MAX_SANDBOXES:
            raise SandboxFailed(f"the serving machine has {MAX_SANDBOXES} sandboxes already", "try again later")
        found = Session(key[1], owner, granted(policy, self.allowed, frozenset(sent)), self, tuple(sorted({*sent})))
        self._known[key] = found
        self._group.start_soon(found.live)
        return found

    async def end(self, owner: str, name: str) -> Session | None:
        """It is over; also one that was never begun."""
        found = self._known.get((owner, name))
        if found is None:
            self._gone.append((owner, name))
        else:
            await found.close()
        return found

    def forget(self, session: Session) -> None:
        self._gone.append((session.owner, session.name))
        self._known.pop((session.owner, session.name), None)
