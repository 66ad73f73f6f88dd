"""`sandbox="stockade"` in inspect_ai (https://inspect.aisi.org.uk/sandboxing.html): one sandbox a sample, without
network unless its configuration names hosts. inspect_ai finds this by its entry point group.

`sandbox=("stockade", "FILE.toml")`, or a StockadeConfig in place of the file's name: `[policy]` is a whole
`stockade_sandbox.Policy`, in place of the short keys.
"""

import os
import tomllib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from anyio import CancelScope, to_thread
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel, ConfigDict, ValidationError

from stockade_sandbox import AsyncSandbox, Sandbox
from stockade_sandbox.errors import PolicyNotEnforceable, SandboxDied, UsageError
from stockade_sandbox.policy import GIB, Policy, policy_of

_CANNOT_EXECUTE = 126
T = TypeVar("T")


class StockadeConfig(BaseModel):
    """`folder`: PATH, PATH:ro or PATH:overlay, of which a sample has a copy on write; None is an empty one. `net`:
    names of hosts. `memory_gib`: of the sandbox as a whole where this machine can hold that, else of each process.
    `image`: a `Policy.rootfs`. `policy` stands in place of all of these; a command's time is then bounded by it too.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: str | None = None
    net: tuple[str, ...] = ()
    memory_gib: float = 4.0
    image: str | None = None
    policy: Policy | None = None
    backend: str = "bubblewrap"

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @classmethod
    def of_file(cls, path: Path) -> "StockadeConfig":
        """UsageError, of one line, for one that cannot be read."""
        try:
            return cls.model_validate(tomllib.loads(path.read_text()))
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}", 'give sandbox=("stockade", "FILE.toml")') from None
        except ValidationError as error:
            first = error.errors()[0]
            what = f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise UsageError(what, "see docs/integrations/inspect_ai.md") from None
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path} is no TOML: {error}", "see docs/integrations/inspect_ai.md") from None

    def made(self) -> Policy:
        """With absolute paths. UsageError for short keys beside a policy."""
        if self.policy is not None:
            if given := self.model_fields_set - {"policy", "backend"}:
                raise UsageError(f"{sorted(given)[0]} stands beside a policy", "give it as a field of the policy")
            folders = tuple(replace(rule, host=os.path.abspath(rule.host)) for rule in self.policy.folders)
            return replace(self.policy, folders=folders)
        policy = policy_of(self.folder, self.net)
        limits = replace(policy.limits, command_timeout_s=0.0, memory_bytes=int(self.memory_gib * GIB))
        return replace(policy, limits=limits, rootfs=self.image)


@sandboxenv(name="stockade")
class StockadeSandboxEnvironment(SandboxEnvironment):
    """A sandbox that lives in a thread of its own, so that any task may call it."""

    def __init__(self, box: Sandbox, why_no_root: str = "") -> None:
        super().__init__()
        self.box, self._why_no_root = box, why_no_root

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return StockadeConfig.model_validate(config)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        if isinstance(config, str):
            config = await to_thread.run_sync(StockadeConfig.of_file, Path(config))
        given = config if isinstance(config, StockadeConfig) else StockadeConfig()
        policy = replace(given.made(), root=True)
        with CancelScope(shield=True):  # who cancels it gets it, and ends it
            try:
                box = await to_thread.run_sync(Sandbox(policy=policy, backend=given.backend).__enter__)
            except PolicyNotEnforceable as error:
                if error.rule != "user":
                    raise
                policy = replace(policy, root=False)
                box = await to_thread.run_sync(Sandbox(policy=policy, backend=given.backend).__enter__)
                return {"default": cls(box, why_no_root=str(error))}
        return {"default": cls(box)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for one in environments.values():
            await to_thread.run_sync(one.as_type(cls).box.__exit__, None, None, None)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        if user is not None and self._why_no_root:
            raise SandboxUserUnsupportedError(f"not as {user}: {self._why_no_root}")
        most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        given = input.encode() if isinstance(input, str) else input
        done = await self._done(
            lambda box: box.exec(cmd, cwd=cwd, env=env, stdin=given, user=user, timeout=timeout, max_output=most)
        )
        said, errors = done.text, done.stderr.decode(errors="replace")
        if done.timed_out:
            raise TimeoutError(f"not done in {timeout} s")
        if done.truncated:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, said + errors)
        if done.exit_code == _CANNOT_EXECUTE:
            raise PermissionError(_CANNOT_EXECUTE, errors.strip() or "cannot be executed", cmd[0])
        return ExecResult(done.exit_code == 0, done.exit_code, said, errors)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        await self._done(lambda box: box.write_file(file, contents))

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        most = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        found = await self._done(lambda box: box.stat(file))
        if found.size > most:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        data = await self._done(lambda box: box.read_file(file, max_bytes=most))
        return data.decode() if text else data

    def default_polling_interval(self) -> float:
        """Seconds. Nothing is far away."""
        return 0.2

    async def _done(self, call: Callable[[AsyncSandbox], Awaitable[T]]) -> T:
        try:
            return await self.box.awaited(call)
        except SandboxDied as error:
            raise SandboxUnavailableError(str(error)) from error
