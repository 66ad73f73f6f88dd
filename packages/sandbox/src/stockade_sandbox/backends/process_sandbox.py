"""What sandboxes have in common whose agent speaks over a child process of ours: its life, its death, its last words.

A backend says how it starts (`_start`, which calls `_connect`) and what it lets go of at the end (`_let_go`).
"""

import socket
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import anyio.to_thread

from stockade_sandbox import registry
from stockade_sandbox.agent.child import Child
from stockade_sandbox.agent.session import AgentConfig, AgentSession
from stockade_sandbox.backends.agent_sandbox import SpeakingSandbox
from stockade_sandbox.backends.bubblewrap.argv import written_places
from stockade_sandbox.backends.bubblewrap.explain import death
from stockade_sandbox.backends.bubblewrap.process import channel
from stockade_sandbox.egress.inside import MakeServer
from stockade_sandbox.errors import SandboxDied, SandboxFailed, StockadeError
from stockade_sandbox.limits.disk import DiskWatch
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.policy import Policy
from stockade_sandbox.results import FolderLayer

PRIVATE = "sandbox-"
"""How the names of the folders begin that a sandbox has beside its layers, in the run's folder."""
_DEATH_NOTE_S = 5.0
_END_S = 20.0


class CarriedSandbox(SpeakingSandbox):
    """Implements `port.Sandbox` but for how it starts. The caller owns layers and `run_dir`.

    `host_pid`: the agent or what holds it, as the host sees it; None while there is none, or on another machine.
    """

    def __init__(
        self, policy: Policy, layers: Sequence[FolderLayer], run_dir: Path, egress: MakeServer = registry.egress
    ) -> None:
        super().__init__(policy, layers, run_dir, egress)
        self._child: Child | None = None
        self._watch: DiskWatch | None = None
        self._private: Path | None = None
        self.host_pid: int | None = None

    @property
    @abstractmethod
    def backend(self) -> str: ...

    @property
    @abstractmethod
    def guarantees(self) -> tuple[str, ...]: ...

    @abstractmethod
    async def _let_go(self, status: int | None) -> None:
        """After the child's end with `status`; None when there was no child. Also after a start that failed."""

    @abstractmethod
    def _kill(self) -> None:
        """From any thread: the sandbox ends now."""

    @abstractmethod
    def _reason(self, stderr: str) -> str:
        """The line that says why, of what the child said."""

    def _private_folder(self) -> Path:
        """A new folder in `run_dir`, removed at the end."""
        self._run_dir.mkdir(parents=True, exist_ok=True)
        self._private = Path(tempfile.mkdtemp(prefix=PRIVATE, dir=self._run_dir))
        return self._private

    async def _connect(self, start: Callable[[socket.socket], Child], config: AgentConfig) -> None:
        """Starts the child with one end of a stream, and waits for the agent at the other."""
        ours, theirs = channel()
        try:
            with theirs:
                self._child = start(theirs)
        except BaseException:
            ours.close()
            raise
        self._session = await AgentSession.open(ours, config)

    async def _last_words(self, child: Child) -> tuple[int | None, str]:
        """Its status, None when it does not end; and what it said."""
        status: int | None = None
        with anyio.move_on_after(_DEATH_NOTE_S):
            await anyio.wait_readable(child.pidfd)
            status = child.status()
        return status, child.stderr().strip()

    async def _watch_disk(self, copies: Sequence[str]) -> None:
        places = written_places(self._layers, copies)
        limit = self._policy.limits.disk_bytes
        self._watch = await anyio.to_thread.run_sync(
            lambda: DiskWatch(places, limit, self._kill, lambda: self.host_pid)
        )
        self._watch.start()

    async def _end(self) -> None:
        with anyio.CancelScope(shield=True):
            session, self._session = self._session, None
            child, self._child = self._child, None
            if self._watch:
                await anyio.to_thread.run_sync(self._watch.stop)
            if session:
                await session.close()
            await self._let_go(await anyio.to_thread.run_sync(child.end, _END_S) if child else None)
            self.host_pid = None
            private, self._private = self._private, None
            if private:
                await anyio.to_thread.run_sync(remove_tree, private)

    async def _died(self, error: SandboxDied) -> StockadeError:
        child = self._child
        if child is None:
            return error
        status, said = await self._last_words(child)
        if self._watch and self._watch.reason:
            return SandboxFailed(self._watch.reason, "free some space, or raise --disk if the task needs it")
        return death(error, status, self._reason(said) if said else "")
