"""A sandbox by itself: commands run in it, files go in and out. Microbots calls it an environment."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio.from_thread
from anyio import to_thread
from anyio.from_thread import BlockingPortal
from pydantic import ValidationError

from stockade import changes
from stockade.api.archive import MAX_COPY_BYTES, check_free, pack, unpack
from stockade.core.data import first_refused
from stockade.core.errors import SandboxDied, UsageError
from stockade.core.ports import Sandbox as SandboxPort
from stockade.core.ports import SnapshotStore
from stockade.paths import run_dir
from stockade.run_lock import lock
from stockade.runtime import records, sandboxes
from stockade.runtime.policy import make_policy
from stockade.runtime.spec import RunSpec
from stockade.tools.command_file import programs
from stockade_sandbox.overlay.snapshot_store import base_snapshots
from stockade_sandbox.policy import FolderMode, Policy
from stockade_sandbox.results import Change, FolderLayer

COPY_S = 600.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of this machine. `mode`: `ro`, `overlay` (changes are reviewed) or `rw`."""

    path: str | Path
    mode: FolderMode = "overlay"

    def __post_init__(self) -> None:
        if self.mode not in ("ro", "overlay", "rw"):
            raise ValueError(f"the mode of a folder is ro, overlay or rw, not {self.mode!r}")

    def __str__(self) -> str:
        return f"{self.path}:{self.mode}"


@dataclass(frozen=True, slots=True)
class Execution:
    """What a command did. `error` is its stderr; 124 is the return code of one that took too long."""

    return_code: int
    output: str
    error: str


class Sandbox:
    """`with Sandbox(folder=Folder("data", "ro")) as box: box.execute("wc -l data.csv")`, or with `async with` and
    `aexecute`. What is written to an overlay is thrown away at the end unless `apply` is called before.

    RunSpec are those of the command line by name (`net`, `memory`, `tool`, ...). UsageError for one that is none;
    UsageError, PolicyNotEnforceable and SandboxFailed from entering.
    """

    def __init__(self, folder: Folder | str | Path | None = None, *more: Folder, **options: Any) -> None:
        folders = [] if folder is None else [folder if isinstance(folder, Folder) else Folder(folder)]
        given = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
        self._options = options_of({**given, "folder": tuple(str(one) for one in (*folders, *more))})
        self.policy: Policy = make_policy(self._options, "overlay")
        self._async, self._running = AsyncExitStack(), AsyncExitStack()
        self._layers: tuple[FolderLayer, ...] = ()
        self._sync = ExitStack()
        self._portal: BlockingPortal | None = None
        self._box: SandboxPort | None = None
        self._snapshots: SnapshotStore | None = None

    @property
    def live(self) -> SandboxPort:
        """The sandbox itself. SandboxDied when it was not entered, or was killed."""
        if self._box is None:
            raise SandboxDied("this sandbox is not running", "use it inside `with Sandbox(...) as box:`")
        return self._box

    @property
    def portal(self) -> BlockingPortal | None:
        """The event loop that it lives in, where it was entered by a plain `with`."""
        return self._portal

    async def __aenter__(self) -> Self:
        run_id = records.new_run_id()
        async with AsyncExitStack() as stack:
            stack.enter_context(lock(run_id))
            base = run_dir(run_id)
            self.policy, installed = await programs(self._options.tool, self.policy)
            box = await sandboxes.prepare_sandbox(self.policy, self._options.sandbox, base)
            self._layers = box.layers
            stack.callback(changes.discard, sandboxes.reviewer(), box.layers)
            self._running = AsyncExitStack()
            stack.push_async_callback(self._running.aclose)
            self._box = await self._running.enter_async_context(box)
            await self._running.enter_async_context(installed(box))
            self._snapshots = base_snapshots(box.layers)
            self._async = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.akill()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            portal = stack.enter_context(anyio.from_thread.start_blocking_portal())
            live: AbstractContextManager[Any] = portal.wrap_async_context_manager(self)
            stack.enter_context(live)
            self._portal = portal
            self._sync = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    async def aexecute(self, command: str, timeout: float | None = None) -> Execution:
        """A command in the persistent shell: what it changes there stays. `timeout` in seconds."""
        done = await self.live.run(command, timeout)
        await self._note()
        return Execution(done.exit_code, _text(done.stdout), _text(done.stderr))

    async def _note(self) -> None:
        """What the folders had where something was written: what is changed there from now on is the user's."""
        if self._snapshots is not None:
            await self._snapshots.keep()

    def execute(self, command: str, timeout: float | None = None) -> Execution:
        return self._wait(partial(self.aexecute, command, timeout))

    async def acopy_in(self, host: str | Path, inside: str) -> None:
        """A file or folder of this machine, to the path `inside`; what is there under that name is written over."""
        packed = await to_thread.run_sync(pack, host, Path(inside).name)
        script = 'mkdir -p -- "$1" && tar -x -f - -C "$1" --no-same-owner'
        argv = ["sh", "-c", script, "sh", str(Path(inside).parent)]
        done = await self.live.exec(argv, packed, COPY_S)
        await self._note()
        if done.exit_code:
            raise UsageError(f"{host} cannot be copied to {inside}: {_text(done.stderr).strip()[:300]}")

    def copy_in(self, host: str | Path, inside: str) -> None:
        self._wait(partial(self.acopy_in, host, inside))

    async def acopy_out(self, inside: str, host: str | Path) -> None:
        """A file or folder of the sandbox, to the path `host`, which must not be there yet.

        What came out is not trusted: devices, links that lead out and modes of other users are refused (PEP 706).
        """
        await to_thread.run_sync(check_free, host)
        argv = ["tar", "-c", "-f", "-", "-C", str(Path(inside).parent), "--", Path(inside).name]
        done = await self.live.exec(argv, b"", COPY_S, MAX_COPY_BYTES)
        if done.truncated_bytes:
            raise UsageError(f"{inside} is larger than {MAX_COPY_BYTES} bytes")
        if done.exit_code:
            raise UsageError(f"{inside} cannot be copied: {_text(done.stderr).strip()[:300]}")
        await to_thread.run_sync(unpack, done.stdout, Path(inside).name, host)

    def copy_out(self, inside: str, host: str | Path) -> None:
        self._wait(partial(self.acopy_out, inside, host))

    @property
    def changes(self) -> tuple[Change, ...]:
        """What was written to the folders so far."""
        work = changes.pending(sandboxes.reviewer(), self.live.layers)
        return tuple(change for one in work for change in one.changes)

    def apply(self, *, flagged: bool = False, force: bool = False) -> tuple[str, ...]:
        """Ends the sandbox, then writes its changes to the host's folders; see RunResult.apply. Blocks."""
        self._wait(self.aend)
        done, reviewer = changes.Applied(), sandboxes.reviewer()
        try:
            changes.apply(reviewer, changes.pending(reviewer, self._layers), done, flagged=flagged, force=force)
        finally:
            self.kill()
        return tuple(done.paths)

    def undo(self, *, force: bool = False) -> tuple[str, ...]:
        """Takes back what was applied; see RunResult.undo. Blocks."""
        return tuple(changes.move(sandboxes.reviewer(), self._layers, back=True, force=force).paths)

    async def aend(self) -> None:
        """Ends all that runs in it: nothing writes any more to what is looked at then."""
        self._box = None
        await self._running.aclose()

    async def akill(self) -> None:
        """Ends it and all that runs in it. Does nothing the second time."""
        self._box = None
        await self._async.aclose()

    def kill(self) -> None:
        self._box, self._portal = None, None
        self._sync.close()

    def _wait(self, work: Callable[[], Awaitable[T]]) -> T:
        if self._portal is None:
            self.live  # noqa: B018  (says so when it is not running)
            raise UsageError("this sandbox was entered with `async with`", "use aexecute, acopy_in, acopy_out")
        return self._portal.call(work)


def options_of(given: Mapping[str, Any]) -> RunSpec:
    """RunSpec by the names of the command line. UsageError for a name or value that is none."""
    try:
        return RunSpec.model_validate({key: value for key, value in given.items() if value is not None})
    except ValidationError as error:
        key, words = first_refused(error, RunSpec)
        raise UsageError(f"{key}{words}") from None


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")
