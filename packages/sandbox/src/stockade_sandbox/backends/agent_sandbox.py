"""What every sandbox with our agent in it does: commands go to its session, a death gets its proper name, and what it
asks of the network goes to a proxy of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from stockade_sandbox.agent.programs import RunningProgram, program
from stockade_sandbox.agent.session import AgentSession
from stockade_sandbox.egress.inside import MakeServer, way_out
from stockade_sandbox.errors import SandboxDied, SandboxFailed, StockadeError
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import OnNetwork
from stockade_sandbox.results import CommandOutput, ExecResult, FolderLayer, NetworkRequest
from stockade_sandbox.stoppable import unwrap_exception_group


class SpeakingSandbox(ABC):
    """port.Sandbox on prepared layers, and port.Programs, but for how it starts and ends.

    `_session` is there while the sandbox is. With a network it has to be left by the task that entered it. `egress`
    makes the proxy; tests give one that finds their servers.
    """

    def __init__(self, policy: Policy, layers: Sequence[FolderLayer], run_dir: Path, egress: MakeServer) -> None:
        self.on_network: OnNetwork | None = None
        self._policy = policy
        self._layers = tuple(layers)
        self._run_dir = run_dir
        self._session: AgentSession | None = None
        self._network = AsyncExitStack()
        self._egress = egress

    @abstractmethod
    async def _start(self) -> None:
        """Until `_session` is there; what it leaves when it raises is for `_end`."""

    @abstractmethod
    async def _end(self) -> None:
        """Leaves nothing: idempotent, and not to be cancelled."""

    @abstractmethod
    async def _died(self, error: SandboxDied) -> StockadeError:
        """The same death, with what the host knows of its cause."""

    @property
    def layers(self) -> tuple[FolderLayer, ...]:
        return self._layers

    async def __aenter__(self) -> Self:
        try:
            await self._start()
            await self._open_network()
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

    async def _open_network(self) -> None:
        """Once the session is there; `_network` is left before anything else ends."""
        if self._policy.network.mode != "none":
            server = self._egress(self._policy, self._requested)
            await self._network.enter_async_context(way_out(self._open(), server))

    def _requested(self, event: NetworkRequest) -> None:
        if self.on_network:
            self.on_network(event)

    async def run(self, command: str, timeout_s: float | None = None) -> CommandOutput:
        try:
            return await self._open().run(command, timeout_s)
        except SandboxDied as error:
            raise await self._died(error) from error

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        try:
            return await self._open().exec(argv, stdin, timeout_s, max_output_bytes)
        except SandboxDied as error:
            raise await self._died(error) from error

    @asynccontextmanager
    async def carried(self) -> AsyncIterator[None]:
        """Implements port.Programs."""
        async with unwrap_exception_group(), self._open().carrying():
            yield

    @asynccontextmanager
    async def program(self, argv: Sequence[str]) -> AsyncIterator[RunningProgram]:
        """Implements port.Programs."""
        try:
            async with program(self._open(), argv) as found:
                yield found
        except SandboxDied as error:
            raise await self._died(error) from error
