"""What every sandbox on this machine has in common: an agent that speaks over a child process of ours, its life, its
death and its last words, and a proxy of its own for what it asks of the network.

A backend says how it starts (`_start`, which calls `_connect`) and what it lets go of at the end (`_let_go`).
"""

import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

from stockade_sandbox import registry
from stockade_sandbox.agent.child import Child, channel, death
from stockade_sandbox.agent.programs import RunningProgram, program, shell
from stockade_sandbox.agent.session import AgentConfig, AgentSession
from stockade_sandbox.backends.rootfs import network_variables
from stockade_sandbox.egress.inside import MakeServer, way_out
from stockade_sandbox.errors import SandboxDied, SandboxFailed, StockadeError, UsageError
from stockade_sandbox.limits.disk import DiskWatch, nothing_in, written_places
from stockade_sandbox.policy import CopyRule, Policy
from stockade_sandbox.port import Doorkeeper, OnNetwork, OnOutput
from stockade_sandbox.processes import COPIES, frozen, private_folder
from stockade_sandbox.results import CommandOutput, ExecResult, FolderLayer, NetworkRequest
from stockade_sandbox.stoppable import Progress, stoppable

if TYPE_CHECKING:
    from stockade_sandbox.backends.oci import Image
    from stockade_sandbox.egress.credentials import Credentials
    from stockade_sandbox.egress.ssh_agent import SshAgent

_DEATH_NOTE_S = 5.0
_END_S = 20.0


class AgentSandbox(ABC):
    """port.Sandbox, port.Programs and port.TellsExports on prepared layers. The caller owns layers and `run_dir`.

    `_session` and `_child` are there while the sandbox is. With a network it has to be left by the task that entered
    it. `egress` makes the proxy; tests give one that finds their servers.
    """

    _is_freezable = True
    """Its programs are processes of this machine, which signals reach."""

    def __init__(
        self, policy: Policy, layers: Sequence[FolderLayer], run_dir: Path, egress: MakeServer = registry.egress
    ) -> None:
        self.on_network: OnNetwork | None = None
        self.on_record: Callable[[], Awaitable[None]] | None = None
        """Implements port.RecordsFirst."""
        self.doorkeeper: Doorkeeper | None = None
        """Implements port.HasDoorkeeper."""
        self.on_output: OnOutput | None = None
        """Implements port.ShowsOutput."""
        self._policy = policy
        self._layers = tuple(layers)
        self._run_dir = run_dir
        self._egress = egress
        self._network = AsyncExitStack()
        self._session: AgentSession | None = None
        self._child: Child | None = None
        self._watch: DiskWatch | None = None
        self._private: Path | None = None
        self._pid: int | None = None
        self._cwd = policy.workdir

    @property
    @abstractmethod
    def backend(self) -> str: ...

    @property
    @abstractmethod
    def guarantees(self) -> tuple[str, ...]:
        """What holds, one line each; complete after entering."""

    @property
    def _totals(self) -> frozenset[str]:
        """Which limits a control group holds, once `_connect` is called."""
        return frozenset()

    @abstractmethod
    async def _start(self) -> None:
        """Until `_session` is there; what it leaves when it raises is for `_let_go`."""

    @abstractmethod
    def _let_go(self, status: int | None) -> None:
        """After the child's end with `status`; None when there was no child. Blocks. Also after a failed start."""

    @abstractmethod
    def _kill(self) -> None:
        """From any thread: the sandbox ends now."""

    @abstractmethod
    def _reason(self, stderr: str) -> str:
        """The line that says why, of what the child said."""

    def _of_shell(self) -> tuple[str, ...]:
        """For `guarantees`, once it is known."""
        if self._session is None:
            return ()
        if self._session.is_readable:
            return ("NOT HELD: what the bot starts can open its shell's descriptors (no program runs here unread)",)
        return ("what the bot starts cannot open its shell's descriptors",)

    @property
    def layers(self) -> tuple[FolderLayer, ...]:
        return self._layers

    @property
    def host_pid(self) -> int | None:
        """The agent or what holds it, as the host sees it; None while there is none."""
        return self._pid

    def _guard(self) -> int | None:
        """The process whose descendants are the sandbox's."""
        return self.host_pid

    def _stoppable(self) -> Iterable[int]:
        """The processes inside, as far as the host may stop them for a moment."""
        return ()

    async def __aenter__(self) -> Self:
        try:
            trusts = self._policy.credentials or self._policy.authorities
            credentials = await anyio.to_thread.run_sync(self._trust) if trusts else None
            ssh_agent = await anyio.to_thread.run_sync(self._ssh_agent) if self._policy.ssh_agent else None
            if self._policy.files:
                await anyio.to_thread.run_sync(self._write_files)
            await self._start()
            if self._policy.network.mode != "none":
                server = self._egress(self._policy, self._requested)
                if credentials is not None:
                    server = server.with_credentials(credentials)
                if self.doorkeeper is not None:
                    server = server.asking(self.doorkeeper)
                if ssh_agent is not None:
                    server = ssh_agent.beside(server)
                await self._network.enter_async_context(way_out(self._open(), server))
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._network.__aexit__(kind, error, trace)
        finally:
            await self._end()

    def _open(self) -> AgentSession:
        if self._session is None:
            raise SandboxFailed("the sandbox is not running", "use it inside `async with`")
        return self._session

    def _requested(self, event: NetworkRequest) -> None:
        if self.on_network:
            self.on_network(event)

    async def _recorded(self) -> None:
        if self.on_record:
            await self.on_record()

    async def run(self, command: str, timeout_s: float | None = None) -> CommandOutput:
        try:
            session = self._open()
            session.on_output = self.on_output
            return await session.run(command, timeout_s)
        except SandboxDied as error:
            raise await self._died(error) from error

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20,
        *, root: bool = False,
    ) -> ExecResult:  # fmt: skip
        """Implements port.Sandbox and port.Rooted."""
        try:
            return await self._open().exec(argv, stdin, timeout_s, max_output_bytes, root=root)
        except SandboxDied as error:
            raise await self._died(error) from error

    async def interrupt(self, why: str) -> bool:
        """Implements port.Interruptible."""
        return self._session is not None and await self._session.interrupt(why)

    @property
    def exports(self) -> str | None:
        """Implements port.TellsExports."""
        return self._open().exports

    @asynccontextmanager
    async def program(
        self,
        argv: Sequence[str],
        cwd: str | None = None,
        timeout_s: float | None = None,
        *,
        errors: bool = False,
        terminal: tuple[int, int] | None = None,
        root: bool = False,
    ) -> AsyncIterator[RunningProgram]:
        """Implements port.Programs and port.Rooted."""
        opened = program(self._open(), argv, cwd, timeout_s, errors=errors, terminal=terminal, root=root)
        try:
            async with opened as found:
                yield found
        except SandboxDied as error:
            raise await self._died(error) from error

    @asynccontextmanager
    async def shell(self, *, root: bool = False) -> AsyncIterator[AgentSession]:
        """Implements port.Shells and port.Rooted."""
        try:
            async with shell(self._open(), root=root) as found:
                yield found
        except SandboxDied as error:
            raise await self._died(error) from error

    @asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """Implements port.Freezable."""
        guard = self._guard()
        if guard is None or not self._is_freezable:
            what = f"the programs of the sandbox {self.backend} cannot be made to stand still"
            raise UsageError(what, 'there are no snapshots: use backend="bubblewrap"')
        with ExitStack() as stack:
            try:
                await anyio.to_thread.run_sync(stack.enter_context, frozen(guard))
            except OSError as error:
                raise SandboxFailed(f"the sandbox cannot be made to stand still: {error.strerror or error}") from error
            yield

    def _private_folder(self) -> Path:
        """A folder in `run_dir` of its own, removed at the end; what killed processes left of theirs goes. Blocks."""
        if self._private is None:
            self._run_dir.mkdir(parents=True, exist_ok=True)
            registry.load("leftovers:remove_stale")(self._run_dir)
            self._private = private_folder(COPIES, self._run_dir)
        return self._private

    def _trust(self) -> "Credentials | None":
        """The policy's credentials; from here on it has what stands for them inside, and whom to trust. Blocks."""
        policy, found = self._policy, None
        if policy.credentials:
            found = registry.load("egress.credentials:Credentials")(policy.credentials, policy.authorities)
            self._policy = found.put_into(policy)
        elif policy.authorities:
            self._policy = registry.load("egress.trust:put_trust")(policy)
        return found

    def _ssh_agent(self) -> "SshAgent":
        """The user's; from here on the policy has what programs need to find it. Blocks."""
        made = registry.load("egress.ssh_agent:SshAgent")
        found: SshAgent = made(self._policy.ssh_agent, self._requested, self._recorded)
        self._policy = found.put_into(self._policy)
        return found

    def _write_files(self) -> None:
        """The policy's, in a private folder, to be copied in with the rest. Blocks."""
        folder, copies = self._private_folder() / "files", list(self._policy.copies)
        folder.mkdir()
        for number, (inside, text) in enumerate(self._policy.files.items()):
            file = folder / str(number)
            file.write_text(text)
            file.chmod(0o644)
            copies.append(CopyRule(host=str(file), inside=inside))
        self._policy = replace(self._policy, copies=tuple(copies), files={})

    def _copy_in(self, uid: int | None, progress: Progress) -> tuple[str, ...]:
        """The policy's copies, for the user `uid`, in a private folder. Blocks."""
        if not self._policy.copies:
            return ()
        folder = self._private_folder() / "copies"
        folder.mkdir()
        copied: tuple[str, ...] = registry.load("backends.copies:copy_in")(
            self._policy.copies, folder, uid, self._policy.limits.disk_bytes, progress
        )
        return copied

    async def _take_image(self) -> "Image":
        """The policy's, whose folder it is from now on, with its variables and the folder that it begins in."""
        reference, unpacked = self._policy.rootfs, registry.load("backends.oci:unpacked")
        image: Image = await stoppable(lambda progress: unpacked(reference, progress))
        given = {**image.environment, **network_variables(self._policy.network), **self._policy.environment}
        self._policy = replace(self._policy, rootfs=image.root, environment=given)
        if not self._policy.folders and image.workdir:
            self._cwd = image.workdir
        return image

    async def _connect(self, start: Callable[[socket.socket], Child], config: AgentConfig | None = None) -> None:
        """Starts the child with one end of a stream, and waits for the agent at the other."""
        ours, theirs = channel()
        try:
            with theirs:
                self._child = start(theirs)
        except BaseException:
            ours.close()
            raise
        config = config or replace(AgentConfig.of(self._policy, self._totals), cwd=self._cwd)
        self._session = await AgentSession.open(ours, config)

    async def _last_words(self) -> tuple[int | None, str]:
        """The child's status, None when it does not end; and what it said. `_child` is there."""
        child, status = self._child, None
        assert child is not None
        with anyio.move_on_after(_DEATH_NOTE_S):
            await anyio.wait_readable(child.pidfd)
            status = child.status()
        return status, child.stderr().strip()

    async def _disk_watch(self, more: Sequence[str]) -> DiskWatch | None:
        """Of the layers and `more` folders, to be started; None where nothing can be written. Made in a thread, as it
        counts what is there already; where that is nothing, a thread costs more."""
        written, limit = written_places(self._layers, more), self._policy.limits.disk_bytes
        token = anyio.lowlevel.current_token()

        def end_commands(why: str) -> None:
            """From the watch's thread."""
            if session := self._session:
                stopped = any(self._stoppable())
                with suppress(SandboxDied, anyio.RunFinishedError):  # what writes is gone then
                    anyio.from_thread.run(
                        session.end_commands, f"{why}: what ran was ended; deleting makes room", token=token
                    )
                    if not stopped:  # what it writes until it is over is not the next command's
                        anyio.from_thread.run(session.until_ended, token=token)
            else:
                self._kill()

        def made() -> DiskWatch:
            return DiskWatch(written, limit, end_commands, self._kill, self._guard, self._stoppable)

        if written:
            self._watch = made() if nothing_in(written) else await anyio.to_thread.run_sync(made)
        return self._watch

    async def _watch_disk(self, copies: Sequence[str]) -> None:
        if watch := await self._disk_watch(copies):
            watch.start()

    async def _end(self) -> None:
        """Leaves nothing: idempotent, and not to be cancelled."""
        with anyio.CancelScope(shield=True):
            session, self._session = self._session, None
            child, self._child = self._child, None
            try:
                if self._watch:
                    await anyio.to_thread.run_sync(self._watch.stop)
                if session:
                    await session.close()
            finally:
                await anyio.to_thread.run_sync(self._leave, child)

    def _leave(self, child: Child | None) -> None:
        try:
            self._let_go(child.end(_END_S) if child else None)
        finally:
            self._pid = None
            private, self._private = self._private, None
            if private:
                registry.load("overlay.discard:remove_tree")(private)

    async def _died(self, error: SandboxDied) -> StockadeError:
        """The same death, with what the host knows of its cause."""
        if self._child is None:
            return error
        status, said = await self._last_words()
        if self._watch and self._watch.reason:
            return SandboxFailed(self._watch.reason, "free some space, or raise --disk if the task needs it")
        return death(error, status, self._reason(said) if said else "")
