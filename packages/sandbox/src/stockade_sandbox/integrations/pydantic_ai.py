"""A sandbox as a workspace of pydantic-ai (https://ai.pydantic.dev/workspaces): pass
`workspace=box` to `agent.run`, inside `async with StockadeBackend(folder="repo") as box`.

The environment is made by the first operation. Without `async with` it outlives this process: whoever has its ref
reaches it, until `destroy`, `stockade sandbox rm ID`, or until nobody was attached for `expires_s` seconds.
"""

import posixpath
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Self, TypeVar

import anyio
from anyio import to_thread
from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)
from pydantic_ai.workspaces.protocol import validate_timeout

from stockade_sandbox import AsyncSandbox, FileStat, Policy, Sandbox
from stockade_sandbox.errors import SandboxDied, UsageError
from stockade_sandbox.policy import policy_of

MAX_OUTPUT = 10 << 20
T = TypeVar("T")


class StockadeBackend:
    """Implements WorkspaceBackend, SupportsCommands, SupportsFilesystem and SupportsRealpath. `folder` and `net` as of
    `stockade_sandbox.Sandbox`; a `policy` replaces both. With a `ref` it is the environment that this names.
    """

    def __init__(
        self,
        ref: WorkspaceRef | None = None,
        *,
        folder: str | None = None,
        net: Sequence[str] = (),
        policy: Policy | None = None,
        backend: str = "bubblewrap",
        expires_s: float = 3600.0,
    ) -> None:
        self._ref = ref
        self._box: Sandbox | None = None
        self._expires_s = expires_s
        given = policy or policy_of(folder, net)
        self._policy = replace(given, limits=replace(given.limits, command_timeout_s=0.0))
        self._backend = backend
        self._making = anyio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.destroy()

    @property
    def ref(self) -> WorkspaceRef | None:
        return self._ref

    async def _live(self) -> Sandbox:
        async with self._making:
            if self._box is not None:
                return self._box
            with anyio.CancelScope(shield=True):
                made = await to_thread.run_sync(self._entered)
                self._box, self._ref = made, WorkspaceRef(provider="stockade", id=made.id)
            return made

    def _entered(self) -> Sandbox:
        if self._ref is None:
            made = Sandbox(policy=self._policy, backend=self._backend, keep=True, expires_s=self._expires_s)
            return made.__enter__()
        try:
            return Sandbox.attach(self._ref.id).__enter__()
        except (UsageError, SandboxDied) as error:
            raise WorkspaceUnavailableError(f"the sandbox {self._ref.id} is gone: {error}") from error

    async def _done(self, call: Callable[[AsyncSandbox], Awaitable[T]]) -> T:
        box = await self._live()
        try:
            return await box.awaited(call)
        except SandboxDied as error:
            raise WorkspaceUnavailableError(str(error)) from error

    async def destroy(self) -> None:
        """Ends the environment, for everybody who holds its ref."""
        if self._ref is not None:
            box = await self._live()
            await to_thread.run_sync(box.destroy)
            await self.close()

    async def close(self) -> None:
        """Lets go of it: it lives on. The next operation attaches to it again."""
        async with self._making:
            box, self._box = self._box, None
            if box is not None:
                await to_thread.run_sync(box.__exit__, None, None, None)

    async def working_dir(self) -> str:
        return (await self._live()).policy.workdir

    async def run(
        self,
        command: str | Sequence[str],
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        validate_timeout(timeout)
        if shell != isinstance(command, str):
            raise TypeError("a text needs shell=True, a list of words shell=False")
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        cwd = await self.working_dir()
        done = await self._done(lambda box: box.exec(argv, cwd=cwd, env=env, timeout=timeout, max_output=MAX_OUTPUT))
        said, errors = (data.decode(errors="replace") for data in (done.stdout, done.stderr))
        if done.timed_out:
            raise WorkspaceTimeoutError(f"not done in {timeout} s", stdout=said, stderr=errors)
        if done.truncated:
            raise WorkspaceOutputLimitError("too much output", limit=MAX_OUTPUT, stdout=said, stderr=errors)
        return CommandResult(exit_code=done.exit_code, stdout=said, stderr=errors)

    async def read_bytes(self, path: str) -> bytes:
        return await self._done(lambda box: box.read_file(path))

    async def write_bytes(self, path: str, data: bytes) -> None:
        await self._done(lambda box: box.write_file(path, data))

    async def stat(self, path: str) -> FileEntry:
        return _entry(path, await self._done(lambda box: box.stat(path)))

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        async def listed(box: AsyncSandbox) -> list[FileEntry]:
            entries = []
            for one in await box.list_dir(path):
                place, found = posixpath.join(path, one.name), one
                if one.kind == "symlink":
                    try:
                        found = await box.stat(place)
                    except OSError:
                        found = one
                entries.append(_entry(place, found))
            return entries

        return await self._done(listed)

    async def make_dir(self, path: str) -> None:
        await self._done(lambda box: box.make_dir(path, parents=True, exist_ok=True))

    async def remove(self, path: str) -> None:
        place = posixpath.normpath(path)
        if posixpath.commonpath([place, await self.working_dir()]) == place:
            raise ValueError(f"{path} holds the working directory")
        await self._done(lambda box: box.remove(path, recursive=True))

    async def exists(self, path: str) -> bool:
        return await self._done(lambda box: box.exists(path))

    async def realpath(self, path: str) -> str:
        done = await self._done(lambda box: box.exec(["realpath", "-m", "--", path]))
        if done.exit_code:
            raise OSError(done.stderr.decode(errors="replace").strip())
        return done.stdout.removesuffix(b"\n").decode(errors="surrogateescape")


def _entry(path: str, found: FileStat) -> FileEntry:
    size = found.size if found.kind == "file" else None
    return FileEntry(name=posixpath.basename(path), path=path, is_dir=found.kind == "directory", size=size)
