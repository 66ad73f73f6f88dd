"""What every sandbox with our agent in it does with a command: hand it to the session, and name a death properly."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from stockade.core.actions import CommandOutput
from stockade.core.errors import SandboxDied, SandboxFailed, StockadeError
from stockade.core.ports import ExecResult
from stockade.sandboxes.session import AgentSession


class SpeakingSandbox(ABC):
    """The `run` and `exec` of core.ports.Sandbox. `_session` is there while the sandbox is."""

    _session: AgentSession | None

    @abstractmethod
    async def _died(self, error: SandboxDied) -> StockadeError:
        """The same death, with what the host knows of its cause."""

    def _open(self) -> AgentSession:
        if self._session is None:
            raise SandboxFailed("the sandbox is not running", "use it inside `async with`")
        return self._session

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
