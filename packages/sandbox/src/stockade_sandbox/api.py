"""A sandbox from Python: `with Sandbox(folder="data:ro") as box: box.exec(["wc", "-l", "data.csv"])`, or AsyncSandbox.

One sandbox with one persistent shell. What is written to an overlay is thrown away at the end, unless it was applied.
"""

import concurrent.futures.thread  # noqa: F401  (what it does at the end comes after what was registered later)
import secrets
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, cast

import anyio.from_thread
from anyio import to_thread
from anyio.from_thread import BlockingPortal

from stockade_sandbox.errors import PolicyNotEnforceable, SandboxDied, UsageError
from stockade_sandbox.files import FILE_S, Files
from stockade_sandbox.policy import MAX_OUTPUT, Policy, policy_of
from stockade_sandbox.port import Backend, Freezable, Kept, Programs, Reviewer, Rooted, Shells, SnapshotStore
from stockade_sandbox.port import Sandbox as SandboxPort
from stockade_sandbox.processes import BOX, boxes_dir, own_prefix
from stockade_sandbox.registry import DEFAULT, backend_named, load
from stockade_sandbox.results import ExecResult, FolderLayer, Moved, Snapshot
from stockade_sandbox.running import AsyncProgram, AsyncShell, Result, command_words, forwarded, words_of_user
from stockade_sandbox.stoppable import in_a_task_of, stoppable

DAY_S = 86_400.0
T = TypeVar("T")


class AsyncSandbox(Files):
    """`async with AsyncSandbox(folder="data:ro", net=["pypi.org"]) as box`. Commands of the shell wait for each
    other; programs are done at once, as they are asked for.

    `credentials` are secrets that never enter, NAME@HOST[:HEADER]. `policy` replaces these three. With `keep` it
    outlives its maker: a process of its own has it until `destroy`, or until nobody has used it for `expires_s`;
    leaving lets go of it, and `attach` takes it up again. With a network it is ended (`apply`, `close`, `destroy`) by
    the task that entered it; Sandbox sees to that.

    Raises UsageError here; entering raises UsageError, PolicyNotEnforceable and SandboxFailed; every call SandboxDied.
    """

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
        if policy is not None and (folder is not None or net or credentials):
            raise UsageError("folder=, net= and credentials= are parts of a policy", "give either them or policy=")
        if keep and not isinstance(backend, str):
            raise UsageError("keep= goes with the name of a backend", "its holder is another process")
        if keep and expires_s <= 0:
            raise UsageError(f"expires_s={expires_s} is no time", "give seconds: 3600 is an hour")
        self.policy = policy or policy_of(folder, net, credentials)
        self._backend = backend if isinstance(backend, Backend) else backend_named(backend)
        self._keep = (backend, expires_s) if keep and isinstance(backend, str) else None
        self._kept: Kept | None = None
        self._named = backend
        self._origin: Snapshot | None = None
        self._history: SnapshotStore | None = None
        self._is_applied = False
        self._base: Path | None = None
        self.layers: tuple[FolderLayer, ...] = ()
        self._box: SandboxPort | None = None
        self._shells = set[str]()
        self._snapshots: SnapshotStore | None = None
        self._running = AsyncExitStack()
        self._portal: BlockingPortal | None = None
        """Of a twin that does not await: each of its calls is a task."""
        self._task: int | None = None
        """Which alone can end it."""

    @classmethod
    def attach(cls, id: str) -> Self:
        """`async with AsyncSandbox.attach(id) as box`: a kept sandbox of this user, also of another process, and beside
        others that use it. UsageError when there is none.
        """
        box = cls()
        box._kept = load("keeping:find")(id)
        return box

    async def __aenter__(self) -> Self:
        if self._keep is not None and self._kept is None:
            self._kept = await load("keeping:hold")(self.policy, *self._keep, self._origin)
        if self._kept is not None:
            self._box = kept = await self._running.enter_async_context(self._kept)
            self._base, self.layers, self.policy = kept.base, kept.layers, kept.policy
            return self
        base = boxes_dir() / f"{own_prefix(BOX)}{secrets.token_hex(4)}"
        self._base, prepare = base, partial(self._backend.prepare, self.policy, base)
        try:
            box = await stoppable(prepare)
            self.layers = box.layers
            if self._origin is not None:
                await to_thread.run_sync(self._go_on_from, self._origin)
            await self._enter(box)
            self._snapshots = load("overlay.snapshots:base_snapshots")(box.layers) if box.layers else None
        except BaseException:
            await self._end()
            raise
        return self

    async def _enter(self, box: SandboxPort) -> None:
        """A way to the network is tasks of whoever enters it."""
        entered: AbstractAsyncContextManager[SandboxPort] = box
        if self.policy.network.mode != "none":
            if self._portal is not None:
                entered = in_a_task_of(self._portal, box)
            else:
                self._task = anyio.get_current_task().id
        self._box = await self._running.enter_async_context(entered)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def base(self) -> Path:
        """Its folder on the host, where what it writes is. SandboxDied before it was entered."""
        if self._base is None:
            raise SandboxDied("this sandbox is not running", "use it inside `with`")
        return self._base

    @property
    def id(self) -> str:
        """By which it is attached to, where it is kept."""
        return self.base.name.rpartition("-")[2]

    @property
    def is_running(self) -> bool:
        return self._box is not None

    async def close(self) -> None:
        """As leaving `with` does: lets go of one that is kept, ends any other. Nothing when that was done before."""
        if self._kept is None:
            await self._end()
        elif self._is_applied:
            await self.destroy()
        else:
            await self._stop()

    async def destroy(self) -> None:
        """Ends it, kept or not. Nothing of it is left but what undo needs."""
        if self._kept is None:
            await self._end()
            return
        await self._stop()
        await self._kept.destroy()

    async def _end(self) -> None:
        """Nothing runs in it any more, and its layers are gone; what undo needs stays."""
        try:
            if self._task is not None:  # its proxy's tasks were begun outside of the scope below
                await self._stop()
        finally:
            with anyio.CancelScope(shield=True):
                await self._stop()
                if self._base is not None:
                    await to_thread.run_sync(self._throw_away, self._base)

    async def _stop(self) -> None:
        if self._task not in (None, anyio.get_current_task().id):
            raise UsageError("a sandbox with a network is ended by the task that entered it", "call it there")
        self._box = self._task = None
        await self._running.aclose()

    def _reviewer(self) -> Reviewer:
        """Imported where there is a folder: most sandboxes of programs have none."""
        reviewer: Reviewer = load("overlay.review:Review")()
        return reviewer

    def _throw_away(self, base: Path) -> None:
        if not base.exists():
            return
        review = self._reviewer()
        for layer in self.layers:
            if layer.layer is not None and not layer.is_lost:
                review.discard(layer)
        if base.exists() and not any(review.decisions(layer) for layer in self.layers):
            load("overlay.discard:remove_tree")(base)

    @property
    def live(self) -> SandboxPort:
        """The sandbox as a bot has it that works in it. SandboxDied when it was not entered, or has ended."""
        if self._box is None:
            raise SandboxDied("this sandbox is not running", "use it inside `with`, before `apply`")
        return self._box

    async def exec(
        self,
        argv: Sequence[str] | None = None,
        *,
        shell: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        user: str | None = None,
        timeout: float | None = None,
        max_output: int | None = None,
    ) -> Result:
        """A program by its `argv`, where the shell is; or a `shell` command, in the shell that persists: what it sets
        stays. `timeout` in seconds, at most the policy's; `max_output` in bytes, of both streams together. `user` goes
        with a policy that has `root`: a name or number of the sandbox's /etc/passwd, else the status is 125.

        A program that cannot be started has the status 126 or 127, one that was ended for its time 124. UsageError
        for what is not possible; PolicyNotEnforceable for a `user` that this sandbox cannot have.
        """
        if (argv is None) == (shell is None):
            raise UsageError("exec takes argv or shell=", 'write exec(["ls", "-l"]) or exec(shell="ls -l")')
        if isinstance(argv, str):
            raise UsageError("argv is one text", f"write exec(shell={argv!r}), or a list of words")
        if shell is not None:
            of_programs = {"cwd": cwd, "env": env, "stdin": stdin, "max_output": max_output, "user": user}
            if given := [name for name, value in of_programs.items() if value is not None]:
                raise UsageError(f"{given[0]}= goes with argv", "the shell keeps its folder and variables: cd, export")
            return Result.of(await self._noted(self.live.run(shell, timeout)))
        limit = MAX_OUTPUT if max_output is None else max_output
        words = command_words(argv or (), cwd, env)
        if user is None:
            return Result.of(await self._noted(self.live.exec(words, stdin or b"", timeout, limit)))
        words, box = self._words_of(user, words), cast(Rooted, self.live)
        return Result.of(await self._noted(box.exec(words, stdin or b"", timeout, limit, root=True)))

    def _words_of(self, user: str, words: list[str]) -> list[str]:
        """For its root. PolicyNotEnforceable where it has none."""
        if not self.policy.root:
            what = f"no program can run as {user!r}: this sandbox has one user, and nobody in it is root"
            raise PolicyNotEnforceable("user", what, "leave out user=, or make it with policy=Policy(root=True)")
        return words_of_user(words, user)

    @asynccontextmanager
    async def start(
        self,
        argv: Sequence[str] | None = None,
        *,
        shell: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = None,
        pty: bool | tuple[int, int] = False,
    ) -> AsyncIterator[AsyncProgram]:
        """`async with box.start(["cat"]) as program`: it runs beside the shell and beside other programs, and is ended
        when this is left. `shell` is run by a bash of its own. `timeout` in seconds; None is as long as it is wanted.
        `pty`: it has a terminal, of 24 rows and 80 columns or as given, and all that it writes comes by `read`.
        `user` as in `exec`.

        UsageError for what is not possible, and where the sandbox has one program at a time.
        """
        if (argv is None) == (shell is None) or isinstance(argv, str):
            raise UsageError("start takes argv or shell=", 'write start(["ls", "-l"]) or start(shell="ls -l")')
        box = self.live
        if not isinstance(box, Programs):
            raise UsageError(f"the sandbox {box.backend} runs one program at a time", "use exec")
        size = (24, 80) if pty is True else pty or None
        if size is not None and not all(0 < one < 1 << 16 for one in size):
            raise UsageError(f"no terminal has {size[0]} rows and {size[1]} columns", "write pty=(24, 80)")
        variables = env if size is None else {"TERM": "xterm", **(env or {})}
        words = command_words(argv or ("/bin/bash", "-c", shell or ""), cwd, variables)
        if user is not None:
            words = self._words_of(user, words)
        async with box.program(words, "", timeout, errors=True, terminal=size, root=user is not None) as program:
            yield AsyncProgram(program)
        if self._snapshots is not None and self._box is not None:
            await self._snapshots.keep()

    @asynccontextmanager
    async def shell(self, name: str, *, user: str | None = None) -> AsyncIterator[AsyncShell]:
        """`async with box.shell("server") as shell`: one more persistent shell, in the working folder, beside the
        sandbox's own (`exec(shell=)`) and others of another name; ended when this is left. `user="root"` as in `exec`.

        UsageError where the name is in use, and where the sandbox has one shell.
        """
        if user not in (None, "root"):
            raise UsageError(f"a shell is root's or the bot's, not {user!r}'s", 'use start(["bash"], user=...)')
        if user is not None:
            self._words_of(user, [])
        box = self.live
        if not isinstance(box, Shells):
            raise UsageError(f"the sandbox {box.backend} has one shell", "use exec(shell=...)")
        if name in self._shells:
            raise UsageError(f"there is a shell {name!r}", "give this one another name")
        self._shells.add(name)
        try:
            async with box.shell(root=user is not None) as found:
                yield AsyncShell(name, found, self._noted)
        finally:
            self._shells.remove(name)

    @asynccontextmanager
    async def forward(self, port: int) -> AsyncIterator[int]:
        """`async with box.forward(8000) as near`: until it is left, connections to 127.0.0.1:`near` of this machine end
        at `port` of the sandbox's 127.0.0.1, whoever makes them. UsageError for one not in the policy's `ports`.
        """
        if port not in self.policy.ports:
            raise UsageError(f"the policy does not let port {port} be reached", f"give it Policy(ports=({port},))")
        box = self.live
        if not isinstance(box, Programs):
            raise UsageError(f"the sandbox {box.backend} runs one program at a time", "its ports cannot be reached")
        async with forwarded(box, port) as near:
            yield near

    async def _noted(self, work: Awaitable[T]) -> T:
        """What the folders had where something was written: what is changed there from now on is the user's."""
        done = await work
        if self._snapshots is not None:
            await self._snapshots.keep()
        return done

    async def _run(self, argv: Sequence[str], stdin: bytes, max_output: int) -> ExecResult:
        return await self._noted(self.live.exec(argv, stdin, FILE_S, max_output))

    async def snapshot(self) -> Snapshot:
        """What is written now, while everything in it stands still. It costs what was written since the last one, not
        what the folders hold. UsageError for folders that are given rw.
        """
        names = await (self._taken() if self._kept is None else self._kept.snapshot())
        return Snapshot(policy=self.policy, layers=self.layers, names=names)

    async def _taken(self) -> tuple[str | None, ...]:
        box = self.live
        if any(rule.mode == "rw" for rule in self.policy.folders):
            raise UsageError("a folder that is given rw has no snapshots", "give it as overlay")
        if not isinstance(box, Freezable):
            raise UsageError(f"the sandbox {box.backend} has no snapshots", 'use backend="bubblewrap"')
        if self._history is None:
            self._history = load("overlay.snapshots:LayerSnapshots")(self.layers)
        async with box.frozen():
            return await self._history.keep()

    async def fork(self, snapshot: Snapshot | None = None, *, keep: bool = False, expires_s: float = DAY_S) -> Self:
        """`async with await box.fork() as other`: one like this, with what is written in this one now, or was at a
        `snapshot`, and its own from then on. It starts with a fresh shell. Enter it before this one ends.
        """
        found = snapshot or await self.snapshot()
        box = type(self)(policy=found.policy, backend=self._named, keep=keep, expires_s=expires_s)
        box._origin = found
        return box

    def _go_on_from(self, origin: Snapshot) -> None:
        restore = load("overlay.restore:restore")
        for new, old, name in zip(self.layers, origin.layers, origin.names, strict=True):
            if name is not None and old.layer is not None:
                restore(new, name, Path(old.layer))

    async def diff(self) -> str:
        """What was written to the folder so far, as git shows it. Bytes that are not UTF-8 are surrogates."""
        return await to_thread.run_sync(self._diff)

    def _diff(self) -> str:
        review = self._reviewer()
        work = [(layer, change) for layer in self.layers for change in review.changes(layer)]
        return "".join(review.unified_diff(layer, change) for layer, change in work)

    async def apply(self, *, flagged: bool = False, force: bool = False, merge: bool = False) -> tuple[str, ...]:
        """Ends the sandbox and writes its changes to the folder; the paths. Not what runs by itself on the host (git
        hooks, start-up files) unless `flagged`. ChangedOnHost, and nothing written, where the host's content differs
        from the one that the sandbox met, unless `merge`, or `force` writes over it.
        """
        self.live  # noqa: B018  (says so when it is not running)
        if self._kept is not None:
            await self._kept.stop()
            self._is_applied = True
        await self._stop()
        return await to_thread.run_sync(partial(self._apply, flagged=flagged, force=force, merge=merge))

    def _apply(self, *, flagged: bool, force: bool, merge: bool) -> tuple[str, ...]:
        review, done = self._reviewer(), list[str]()
        for layer in self.layers:
            chosen = [one for one in review.changes(layer) if not one.refused and (flagged or not one.held)]
            if chosen:
                done += review.apply(layer, chosen, force=force, merge=merge)
        return tuple(done)

    async def undo(self, *, force: bool = False) -> Moved:
        """Takes back what was applied, also after the end; what was edited since stays, and is named in `left`."""
        return await to_thread.run_sync(self._undo, force)

    def _undo(self, force: bool) -> Moved:
        review, found = self._reviewer(), Moved()
        for layer in self.layers:
            found.add(review.undo(layer, force=force))
        return found
