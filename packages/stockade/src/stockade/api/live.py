"""A sandbox between the tasks of a bot: it stays up, and what runs in it stands still until the next one."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup, TaskStatus
from anyio.from_thread import BlockingPortal

from stockade import changes
from stockade.api.results import RunResult
from stockade.core.errors import SandboxFailed, UsageError
from stockade.core.ports import Sandbox
from stockade.run_lock import cleanup, lock
from stockade.runtime import sandboxes
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import Freezable
from stockade_sandbox.stoppable import unwrap_exception_group


class LiveSandbox:
    """`group`: what the sandbox starts are tasks of it, whoever calls."""

    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self._up: tuple[Sandbox, Policy] | None = None
        self._leave, self._left = anyio.Event(), anyio.Event()
        self._still = AsyncExitStack()

    @property
    def up(self) -> tuple[Sandbox, Policy] | None:
        """What is up, with its policy."""
        return self._up

    @asynccontextmanager
    async def entered(self, sandbox: Sandbox, policy: Policy) -> AsyncIterator[Sandbox]:
        """Around a run; the first one starts it. A sandbox that failed does not stay."""
        if self._up is None:
            self._leave, self._left = anyio.Event(), anyio.Event()
            await self._group.start(self._host, sandbox)
            self._up = sandbox, policy
        await self._still.aclose()
        try:
            yield sandbox
        except SandboxFailed:
            await self.close()
            raise
        finally:
            with anyio.CancelScope(shield=True), suppress(UsageError, SandboxFailed):
                if self._up is not None and isinstance(sandbox, Freezable):
                    await self._still.enter_async_context(sandbox.frozen())

    async def close(self) -> None:
        """Does nothing the second time."""
        if self._up is None:
            return
        with anyio.CancelScope(shield=True):
            self._up = None
            self._leave.set()
            await self._left.wait()  # what stands still is ended so: what was reviewed is what is there
            await self._still.aclose()

    async def _host(self, sandbox: Sandbox, *, task_status: TaskStatus[Any]) -> None:
        try:
            async with sandbox:
                task_status.started()
                await self._leave.wait()
        finally:
            self._left.set()


@dataclass(slots=True)
class Conversation:
    """A conversation: one run, in one sandbox. `portal`: of the event loop that it lives in, for other threads."""

    live: LiveSandbox
    portal: BlockingPortal | None = None
    run_id: str = ""
    last: RunResult | None = None
    _lock: ExitStack = field(default_factory=ExitStack)

    @contextmanager
    def holding(self, run_id: str) -> Iterator[None]:
        """It stays locked: nobody else goes on with it while its sandbox is up."""
        if not self.run_id:
            self._lock.enter_context(lock(run_id))
            self.run_id = run_id
        yield

    async def close(self) -> None:
        await self.live.close()
        self._lock.close()
        if self.last is not None:
            await to_thread.run_sync(forget_unchanged, self.last)


def forget_unchanged(result: RunResult) -> None:
    """Layers are removed where nothing was written to any."""
    reviewer = sandboxes.reviewer()
    changes.discard_decided(reviewer, result.layers)
    cleanup(result.run_id)


@asynccontextmanager
async def together() -> AsyncIterator[TaskGroup]:
    """A task group that raises the first error as it is."""
    async with unwrap_exception_group(), anyio.create_task_group() as group:
        yield group
