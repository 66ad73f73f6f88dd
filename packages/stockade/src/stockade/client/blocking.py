"""Client: AsyncClient without `await`, in a thread of its own."""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, Unpack

from anyio import to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from stockade.api.results import RunResult
from stockade.client.runs import AsyncClient, AsyncRun, Options
from stockade.core.errors import UsageError
from stockade.core.events import RunEvent
from stockade.server.models import Approval, Asked, Output, RunLine, State
from stockade_sandbox.stoppable import Twin, blocking

T = TypeVar("T")
OnAsked = Callable[[Asked], Approval | str]


class Client(Twin[AsyncClient]):
    """`with Client("https://host:8711", token) as client`. The same arguments, errors and results as AsyncClient."""

    def __init__(
        self,
        url: str,
        token: str | Path | None = None,
        *,
        ca: str | Path | None = None,
        fingerprint: str | None = None,
        patience_s: float = 60.0,
    ) -> None:
        self._awaited = AsyncClient(url, token, ca=ca, fingerprint=fingerprint, patience_s=patience_s)
        self._portal: BlockingPortal | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(portal.wrap_async_context_manager(self._awaited))
            self._portal, self._stack = portal, stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal = None
        self._stack.__exit__(kind, error, trace)

    def _running(self) -> BlockingPortal:
        if self._portal is None:
            raise UsageError("this client is not open", "use it inside `with Client(...) as client:`")
        return self._portal

    def start(self, task: str, **options: Unpack[Options]) -> "Run":
        """AsyncClient.start."""
        return Run(self, self._running().call(partial(self._awaited.start, task, **options)))

    def run(
        self, task: str, *, on_event: Callable[[RunEvent], None] | None = None, on_asked: OnAsked | None = None,
        **options: Unpack[Options],
    ) -> RunResult:  # fmt: skip
        """AsyncClient.run."""
        return self.start(task, **options).result(on_event, on_asked)

    def attach(self, id: str) -> "Run":
        """AsyncClient.attach."""
        return Run(self, self._awaited.attach(id))

    def runs(
        self, status: State | None = None, folder: str | None = None, words: str | None = None
    ) -> Iterator[RunLine]:
        """AsyncClient.runs."""
        return _each(self, self._awaited.runs(status, folder, words))

    upload = blocking(AsyncClient.upload)
    remove_upload = blocking(AsyncClient.remove_upload)
    models = blocking(AsyncClient.models)
    bots = blocking(AsyncClient.bots)
    tools = blocking(AsyncClient.tools)
    doctor = blocking(AsyncClient.doctor)


class Run(Twin[AsyncRun]):
    """AsyncRun without `await`."""

    def __init__(self, client: Client, run: AsyncRun) -> None:
        self._client, self._awaited = client, run

    def _running(self) -> BlockingPortal:
        return self._client._running()

    @property
    def id(self) -> str:
        return self._awaited.id

    def events(self, after: int = -1) -> Iterator[RunEvent]:
        """AsyncRun.events."""
        return _each(self._client, self._awaited.events(after))

    def live(self, after: int = -1) -> Iterator[RunEvent | Output]:
        """AsyncRun.live."""
        return _each(self._client, self._awaited.live(after))

    def result(self, on_event: Callable[[RunEvent], None] | None = None, on_asked: OnAsked | None = None) -> RunResult:
        """AsyncRun.result. `on_asked` is called in a thread, and may take its time."""

        async def ask(asked: Asked) -> Approval | str:
            assert on_asked is not None
            return await to_thread.run_sync(on_asked, asked, abandon_on_cancel=True)

        return self._running().call(self._awaited.result, on_event, ask if on_asked is not None else None)

    def rewind(self, turn: int, task: str | None = None) -> "Run":
        """AsyncRun.rewind."""
        return Run(self._client, self._running().call(self._awaited.rewind, turn, task))

    show = blocking(AsyncRun.show)
    approvals = blocking(AsyncRun.approvals)
    approve = blocking(AsyncRun.approve)
    message = blocking(AsyncRun.message)
    pause = blocking(AsyncRun.pause)
    resume = blocking(AsyncRun.resume)
    cancel = blocking(AsyncRun.cancel)
    diff = blocking(AsyncRun.diff)
    files = blocking(AsyncRun.files)
    read_file = blocking(AsyncRun.read_file)
    read_bytes = blocking(AsyncRun.read_bytes)
    apply = blocking(AsyncRun.apply)
    undo = blocking(AsyncRun.undo)
    discard = blocking(AsyncRun.discard)
    remove = blocking(AsyncRun.remove)


def _each(client: Client, found: AsyncGenerator[T]) -> Iterator[T]:
    """One after the other, as they are asked for."""
    portal = client._running()
    while True:
        future = portal.start_task_soon(anext, found, None)
        try:
            one = future.result()
        finally:
            future.cancel()  # where Ctrl-C ended the wait
        if one is None:
            return
        try:
            yield one
        except GeneratorExit:
            if client._portal is not None:
                portal.call(found.aclose)
            raise
