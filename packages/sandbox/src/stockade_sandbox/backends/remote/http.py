"""A sandbox of another machine over HTTP: `--sandbox https://HOST:8711` (docs/remote.md). Needs the extra `remote`.

Each request can be sent again: what is begun has a name that this side chose, and input says where it belongs. So a
connection may break anywhere, and comes back.
"""

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import anyio
import anyio.to_thread

from stockade_sandbox.agent.jobs import check_room
from stockade_sandbox.backends.remote.calls import MAX_INPUT, PIECE, Resize, Signal, Start, State, encoded
from stockade_sandbox.backends.remote.connection import CLOSE_S, Connection, RemoteGone
from stockade_sandbox.backends.remote.folders import Taking, piped, whole, write_tar
from stockade_sandbox.backends.remote.messages import error_of
from stockade_sandbox.errors import ActionFailed, SandboxDied, SandboxFailed, StockadeError, UsageError
from stockade_sandbox.overlay.safe_fs import DirTree
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import OnNetwork, OnOutput
from stockade_sandbox.results import CommandOutput, ExecResult, FolderLayer, NetworkRequest, Stream
from stockade_sandbox.stoppable import unwrap_exception_group

PATIENCE_S = 60.0
"""How long a broken connection is tried again before the sandbox counts as dead."""
FETCH_S = 120.0
"""How long the end of a sandbox waits for what was last written in it."""
_HELD_BYTES = 256 << 10
_LAST_SIGNAL = 64
_TOO_MUCH = f"input and output of a program are at most {MAX_INPUT >> 20} MiB each"
_GONE = "a restart of its server ended the sandbox"


class HttpSandbox:
    """Implements port.Sandbox, ShowsOutput and Programs. Folders of the policy are folders of the serving machine, but
    with `layers`: then each is this machine's, and its layer a copy. The copy is sent there at the start, and gets what
    was written there when a command or a program has ended.

    When the server was started anew, a new sandbox takes the place of the one that went with it, on the same folders:
    what was in flight raises ActionFailed, as nobody knows whether it was done, and the next command of the shell says
    `shell_restarted`. With `restarts` false it is SandboxDied, as a lost connection is.
    """

    def __init__(
        self, policy: Policy, url: str, token: str, patience_s: float = PATIENCE_S, *, restarts: bool = True,
        layers: Sequence[FolderLayer] = (),
    ) -> None:  # fmt: skip
        self.on_network: OnNetwork | None = None
        self.on_output: OnOutput | None = None
        self._policy, self._restarts = policy, restarts
        self._sent = tuple(layers)
        self._have = [""] * len(self._sent)
        """The snapshots over there that the layers are at."""
        self._fetching = anyio.Lock()
        self._line = Connection(url, token, patience_s, self._tell_network)
        self._count, self._restarted = 0, False
        self._turn, self._reopening = anyio.Lock(), anyio.Lock()

    def _tell_network(self, event: NetworkRequest) -> None:
        if self.on_network is not None:
            self.on_network(event)

    @property
    def backend(self) -> str:
        return self._line.url

    @property
    def layers(self) -> tuple[FolderLayer, ...]:
        return self._sent or (self._line.opened.layers if self._line.opened else ())

    @property
    def guarantees(self) -> tuple[str, ...]:
        if self._line.opened is None:
            return ()
        return (f"on {self._line.url}, by {self._line.opened.backend}", *self._line.opened.guarantees)

    async def __aenter__(self) -> Self:
        """SandboxFailed when no server answers, UsageError when it does not take the token or the policy."""
        self._line.start()
        try:
            await self._open()
        except BaseException:
            await self._line.end()
            raise
        return self

    async def _open(self) -> None:
        """With the folders as the layers have them now."""
        self._have = [""] * len(self._sent)
        hosts = (replace(rule, host="") for rule in self._policy.folders) if self._sent else self._policy.folders
        bodies = {number: partial(_packed, layer) for number, layer in enumerate(self._sent)}
        await self._line.open(replace(self._policy, folders=tuple(hosts)), bodies)

    async def _fetch(self) -> None:
        """What was written over there since, into the layers. RemoteGone; SandboxFailed, UsageError."""
        async with self._fetching:
            for number, layer in enumerate(self._sent):
                with tempfile.TemporaryFile(dir=layer.layer) as file:
                    name = await self._line.changes(number, self._have[number], file)
                    if name is not None:
                        with anyio.CancelScope(shield=True):  # all of it, or nothing
                            await anyio.to_thread.run_sync(_taken, layer, file)
                        self._have[number] = name

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._sent and self._line.dead is None:
                with anyio.CancelScope(shield=True), anyio.move_on_after(FETCH_S) as waited, suppress(SandboxDied):
                    await self._fetch()
                if waited.cancelled_caught and kind is None:
                    raise SandboxFailed("what was last written in the sandbox did not come back in time")
        finally:
            await self._line.end()

    async def run(self, command: str, timeout_s: float | None = None) -> CommandOutput:
        async with self._turn:
            start = Start(shell=command, timeout_s=timeout_s)
            state = await self._done(start, b"", shown=self.on_output is not None)
            if state.output is None:
                raise self._line.died("the server answered out of turn")
            restarted, self._restarted = self._restarted, False
            return replace(state.output, shell_event="shell_restarted") if restarted else state.output

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        if len(stdin) > MAX_INPUT:
            raise ActionFailed(_TOO_MUCH)
        check_room(max_output_bytes)
        start = Start(
            argv=tuple(argv), timeout_s=timeout_s, max_output_bytes=min(max_output_bytes, MAX_INPUT),
            stdin=stdin if len(stdin) <= PIECE else None,
        )  # fmt: skip
        state = await self._done(start, stdin if start.stdin is None else b"", shown=False)
        if state.result is None:
            raise self._line.died("the server answered out of turn")
        if state.result.truncated_bytes and max_output_bytes > MAX_INPUT:
            raise ActionFailed(_TOO_MUCH)
        return state.result

    @asynccontextmanager
    async def program(
        self, argv: Sequence[str], cwd: str | None = None, timeout_s: float | None = None, *, errors: bool = False,
        terminal: tuple[int, int] | None = None, root: bool = False,
    ) -> AsyncIterator["_HttpProgram"]:  # fmt: skip
        """Implements port.Programs."""
        if root:
            raise UsageError("no program can be root in a sandbox of another machine")
        n = self._next()
        start = Start(argv=tuple(argv), cwd=cwd, timeout_s=timeout_s, stderr=errors, pty=terminal)
        found = _HttpProgram(self._line, n, terminal is not None)
        async with unwrap_exception_group(), anyio.create_task_group() as group:
            try:
                await self._begin(n, start)
                group.start_soon(found.listen)
                yield found
            finally:
                with anyio.move_on_after(CLOSE_S, shield=True), suppress(SandboxFailed):
                    await self._line.ask("DELETE", f"/programs/{n}")
                with anyio.move_on_after(FETCH_S, shield=True), suppress(SandboxDied):
                    await self._fetch()
                group.cancel_scope.cancel()

    def _next(self) -> str:
        self._count += 1
        return str(self._count)

    async def _done(self, start: Start, stdin: bytes, *, shown: bool) -> State:
        """Its end, with what came of it. Cancelling ends it over there first, so that the next one finds order."""
        n = self._next()
        try:
            begun_in = await self._begin(n, start)
            if start.stdin is None and start.shell is None:
                await self._send_all(n, stdin)
            if shown:
                await self._shown(n)
            state = await self._line.state(n)
            await self._fetch()
        except RemoteGone as error:
            raise await self._lost(begun_in) from error
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(CLOSE_S, shield=True) as waited, suppress(SandboxFailed):
                await self._line.ask("DELETE", f"/programs/{n}")
            if waited.cancelled_caught:
                self._line.died("the server did not end a command")
            raise
        await self.forget(n)
        if state.problem is not None:
            problem = error_of(state.problem)
            if isinstance(problem, SandboxDied):
                self._line.dead = problem.message
            raise problem
        return state

    async def forget(self, n: str) -> None:
        with suppress(RemoteGone):
            await self._line.ask("DELETE", f"/programs/{n}")

    async def _begin(self, n: str, start: Start) -> str:
        """In which sandbox. What was not begun there can be begun in the one that takes its place."""
        body = encoded(start)
        while True:
            name = self._line.name
            try:
                await self._line.ask("POST", "/programs", body, {"Idempotency-Key": n})
            except RemoteGone:
                await self._reopen(name)
            else:
                return name

    async def _lost(self, name: str) -> ActionFailed | SandboxDied:
        """What is to be raised for something that was in flight there."""
        try:
            await self._reopen(name)
        except SandboxDied as error:
            return error
        if self._sent:
            return ActionFailed("its server was started anew: this is a new sandbox, on the files as they were before")
        words = (
            "its server was started anew, and it may have been done or not: this is a new sandbox, look at the files"
        )
        return ActionFailed(words)

    async def _reopen(self, name: str) -> None:
        """A new sandbox in place of that one. SandboxDied where there is none to be had."""
        async with self._reopening:
            if self._line.name != name:
                return
            if not self._restarts or self._line.dead:
                raise self._line.died("the sandbox is gone over there: its server was started anew, or waited too long")
            try:
                await self._open()
            except StockadeError as error:
                raise self._line.died(f"{_GONE}, and there is no new one: {error.message}") from error
            self._restarted = True

    async def _send_all(self, n: str, data: bytes) -> None:
        for at in range(0, max(1, len(data)), PIECE):
            await self._line.send(n, at, data[at : at + PIECE], end=at + PIECE >= len(data))

    async def _shown(self, n: str) -> None:
        had = 0
        async with aclosing(self._line.events(n)) as events:
            async for at, stream, data in events:
                if self.on_output is not None:
                    if (missing := at - len(data) - had) > 0:
                        self.on_output(stream, b"\n[... %d bytes came too fast ...]\n" % missing)
                    self.on_output(stream, data)
                had = at


def _packed(layer: FolderLayer) -> AsyncIterator[bytes]:
    def write(out: BinaryIO) -> None:
        with DirTree(Path(layer.source)) as tree:
            write_tar(whole(tree), out)

    return piped(write)


def _taken(layer: FolderLayer, file: BinaryIO) -> None:
    file.seek(0)
    try:
        Taking(Path(layer.source)).take(file)
    except OSError as error:
        raise SandboxFailed(f"cannot write what came back to {layer.layer}: {error.strerror}") from error


class _HttpProgram:
    """Implements port.StartedProgram."""

    def __init__(self, line: Connection, n: str, on_terminal: bool) -> None:
        self._line, self._n, self._on_terminal = line, n, on_terminal
        self._held: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._changed = anyio.Event()
        self._all_came = False
        self._sent = self._signals = 0
        self._state: State | None = None

    @property
    def status(self) -> int | None:
        return self._state.status if self._state else None

    @property
    def timed_out(self) -> bool:
        return self._state is not None and self._state.timed_out

    @property
    def error(self) -> str:
        return self._state.error if self._state else ""

    async def listen(self) -> None:
        """Takes what comes, as far as there is room for it."""
        try:
            with suppress(SandboxFailed):
                async with aclosing(self._line.events(self._n)) as events:
                    async for _, stream, data in events:
                        while len(self._held[stream]) > _HELD_BYTES:
                            await self._changed.wait()
                        self._held[stream] += data
                        self._tell()
        finally:
            self._all_came = True
            self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        return await self._receive("stdout", max_bytes)

    async def receive_error(self, max_bytes: int = 65536) -> bytes:
        return await self._receive("stderr", max_bytes)

    async def _receive(self, stream: Stream, max_bytes: int) -> bytes:
        held = self._held[stream]
        while not held:
            if self._all_came:
                raise anyio.EndOfStream
            await self._changed.wait()
        found = bytes(held[:max_bytes])
        del held[:max_bytes]
        self._tell()
        return found

    async def send(self, item: bytes) -> None:
        for at in range(0, len(item), PIECE):
            await self._feed(item[at : at + PIECE], end=False)

    async def send_eof(self) -> None:
        await (self.send(b"\x04") if self._on_terminal else self._feed(b"", end=True))

    async def _feed(self, piece: bytes, *, end: bool) -> None:
        """BrokenResourceError where nobody reads it any more."""
        try:
            await self._line.send(self._n, self._sent, piece, end=end)
        except SandboxFailed as error:
            raise anyio.BrokenResourceError from error
        self._sent += len(piece)

    async def kill(self) -> None:
        await self._signal(9, tree=True)

    async def signal(self, number: int) -> None:
        if not 0 < number <= _LAST_SIGNAL:
            raise ValueError(f"no signal has the number {number}")
        await self._signal(number, tree=False)

    async def _signal(self, number: int, *, tree: bool) -> None:
        self._signals += 1
        body = encoded(Signal(number=number, count=self._signals, tree=tree))
        with suppress(SandboxFailed):
            await self._line.ask("POST", f"/programs/{self._n}/signal", body)

    async def resize(self, rows: int, columns: int) -> None:
        if not (0 < rows < 1 << 16 and 0 < columns < 1 << 16):
            raise ValueError(f"no terminal has {rows} rows and {columns} columns")
        with suppress(SandboxFailed):
            await self._line.ask("POST", f"/programs/{self._n}/resize", encoded(Resize(rows=rows, columns=columns)))

    async def wait(self) -> int | None:
        if self._state is None:
            with suppress(SandboxFailed):
                self._state = await self._line.state(self._n)
        return self.status

    async def exit_reason(self) -> str:
        await self.wait()
        return self._state.words if self._state else ""
