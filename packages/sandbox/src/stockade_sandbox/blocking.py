"""Sandbox: AsyncSandbox without `await`, in a thread of its own."""

import concurrent.futures.thread  # noqa: F401  (what it does at the end comes after what was registered later)
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import anyio.from_thread
from anyio import CapacityLimiter, to_thread
from anyio.from_thread import BlockingPortal

from stockade_sandbox.api import DAY_S, AsyncSandbox
from stockade_sandbox.errors import SandboxDied
from stockade_sandbox.policy import Policy
from stockade_sandbox.port import Backend
from stockade_sandbox.port import Sandbox as SandboxPort
from stockade_sandbox.registry import DEFAULT
from stockade_sandbox.results import Moved, Snapshot
from stockade_sandbox.running import Program, Shell
from stockade_sandbox.stoppable import Twin, blocking

T = TypeVar("T")
_entered = set[ExitStack]()
"""What the interpreter would wait for, where a framework never leaves it."""


def _leave_all() -> None:
    for stack in list(_entered):
        try:
            stack.close()
        except RuntimeError as error:  # 3.12.1 lets no thread begin here any more: what is left the next one removes
            if "at interpreter shutdown" not in str(error):
                raise


threading._register_atexit(_leave_all)  # type: ignore[attr-defined]  # atexit's own come when no thread may begin


class Sandbox(Twin[AsyncSandbox]):
    """AsyncSandbox without `await`: `with Sandbox(folder="data:ro") as box`. The same arguments, errors and results."""

    def __init__(
        self,
        folder: str | Path | None = None,
        net: Sequence[str] = (),
        *,
        credentials: Sequence[str] = (),
        policy: Policy | None = None,
        backend: str | Backend = DEFAULT,
        keep: bool = False,
        expires_s: float = DAY_S,
    ) -> None:
        self._awaited = AsyncSandbox(
            folder, net, credentials=credentials, policy=policy, backend=backend, keep=keep, expires_s=expires_s
        )
        self._portal: BlockingPortal | None = None
        self._stack = ExitStack()

    @classmethod
    def attach(cls, id: str) -> Self:
        """AsyncSandbox.attach."""
        box = cls()
        box._awaited = AsyncSandbox.attach(id)
        return box

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            portal = stack.enter_context(anyio.from_thread.start_blocking_portal())
            self._awaited._portal = portal
            stack.enter_context(portal.wrap_async_context_manager(self._awaited))
            self._portal, self._stack = portal, stack.pop_all()
        _entered.add(self._stack)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal = None
        _entered.discard(self._stack)
        self._stack.__exit__(kind, error, trace)

    @property
    def policy(self) -> Policy:
        """What it holds."""
        return self._awaited.policy

    @property
    def live(self) -> SandboxPort:
        """AsyncSandbox.live, for calls in `portal`."""
        return self._awaited.live

    @property
    def portal(self) -> BlockingPortal | None:
        """Calls in the event loop that it lives in, from other threads; None when it is not running."""
        return self._portal

    async def awaited(self, call: Callable[[AsyncSandbox], Awaitable[T]]) -> T:
        """What `call` gives of its twin, from any event loop and task; cancelled, it is cancelled too."""
        future = self._running().start_task_soon(call, self._awaited)
        try:
            own = CapacityLimiter(1)  # what waits here, for hours maybe, takes no thread of others' limit
            return await to_thread.run_sync(future.result, abandon_on_cancel=True, limiter=own)
        finally:
            future.cancel()

    def _running(self) -> BlockingPortal:
        if self._portal is None:
            raise SandboxDied("this sandbox is not running", "use it inside `with Sandbox(...) as box:`")
        return self._portal

    @contextmanager
    def start(
        self,
        argv: Sequence[str] | None = None,
        *,
        shell: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = None,
        pty: bool | tuple[int, int] = False,
    ) -> Iterator[Program]:
        """AsyncSandbox.start."""
        portal = self._running()
        work = self._awaited.start(argv, shell=shell, cwd=cwd, env=env, user=user, timeout=timeout, pty=pty)
        with portal.wrap_async_context_manager(work) as program:
            yield Program(program, portal)

    @property
    def id(self) -> str:
        """AsyncSandbox.id."""
        return self._awaited.id

    @property
    def base(self) -> Path:
        """AsyncSandbox.base."""
        return self._awaited.base

    def close(self) -> None:
        """AsyncSandbox.close; not inside a block of `start`."""
        self.__exit__(None, None, None)

    destroy = blocking(AsyncSandbox.destroy)

    @contextmanager
    def shell(self, name: str, *, user: str | None = None) -> Iterator[Shell]:
        """AsyncSandbox.shell."""
        portal = self._running()
        with portal.wrap_async_context_manager(self._awaited.shell(name, user=user)) as shell:
            yield Shell(shell, portal)

    @contextmanager
    def forward(self, port: int) -> Iterator[int]:
        """AsyncSandbox.forward."""
        with self._running().wrap_async_context_manager(self._awaited.forward(port)) as near:
            yield near

    def fork(self, snapshot: Snapshot | None = None, *, keep: bool = False, expires_s: float = DAY_S) -> Self:
        """`with box.fork() as other`: AsyncSandbox.fork."""
        box = type(self)()
        work = partial(self._awaited.fork, snapshot, keep=keep, expires_s=expires_s)
        box._awaited = self._running().call(work)
        return box

    snapshot = blocking(AsyncSandbox.snapshot)
    exec = blocking(AsyncSandbox.exec)
    read_file = blocking(AsyncSandbox.read_file)
    write_file = blocking(AsyncSandbox.write_file)
    stat = blocking(AsyncSandbox.stat)
    list_dir = blocking(AsyncSandbox.list_dir)
    make_dir = blocking(AsyncSandbox.make_dir)
    remove = blocking(AsyncSandbox.remove)
    exists = blocking(AsyncSandbox.exists)
    copy_in = blocking(AsyncSandbox.copy_in)
    copy_out = blocking(AsyncSandbox.copy_out)
    diff = blocking(AsyncSandbox.diff)
    apply = blocking(AsyncSandbox.apply)

    def undo(self, *, force: bool = False) -> Moved:
        """AsyncSandbox.undo; also after the end."""
        if self._portal is None:
            return self._awaited._undo(force)
        return self._portal.call(partial(self._awaited.undo, force=force))
