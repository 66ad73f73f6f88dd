"""A sandbox as Harbor's environment (https://www.harborframework.com): `harbor run --env
stockade_sandbox.integrations.harbor:StockadeEnvironment --ek image=docker-archive:task.tar`.

A task's image is one that `Policy(rootfs=)` takes; nothing is built of a Dockerfile. Its network policy is held.
"""

import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from anyio import CancelScope, to_thread
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.models.task.config import NetworkMode

from stockade_sandbox import AsyncSandbox, Sandbox
from stockade_sandbox.policy import Policy, policy_of

MAX_OUTPUT = 16 << 20
"""Bytes of a command, of both streams together."""
_MIB = 1 << 20
T = TypeVar("T")


class StockadeEnvironment(BaseEnvironment):
    """`image` stands in place of the task's `docker_image`, and of a Dockerfile that it was built of."""

    _box: Sandbox | None = None
    _users: tuple[str, ...] = ()

    def __init__(self, *args: Any, image: str | None = None, backend: str = "bubblewrap", **kwargs: Any) -> None:
        self._image, self._backend = image, backend
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        return "stockade"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(
            disable_internet=True, network_allowlist=True, network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True, network_allowlist_ipv4_addresses=True,
            network_allowlist_ipv4_cidrs=True, network_allowlist_ipv6_addresses=True, network_allowlist_ipv6_cidrs=True,
        )  # fmt: skip

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(memory_limit=True)

    def _validate_definition(self) -> None:
        if any(self.environment_dir.glob("docker-compose.y*ml")):
            raise ValueError("stockade has no Docker Compose: this task needs several containers")
        if not (self._image or self.task_env_config.docker_image):
            raise ValueError(
                "stockade builds no Dockerfile: docker build -t task . && docker save -o task.tar task, "
                "then --ek image=docker-archive:task.tar"
            )

    def _policy(self) -> Policy:
        network = self.network_policy
        public = network.network_mode == NetworkMode.PUBLIC
        policy = policy_of(None, ["open"] if public else network.allowed_hosts)
        limits = replace(policy.limits, command_timeout_s=0.0)
        if memory := self._effective_memory_mb:
            limits = replace(limits, memory_bytes=memory * _MIB)
        if storage := self._effective_storage_mb:
            limits = replace(limits, disk_bytes=storage * _MIB)
        return replace(policy, limits=limits, rootfs=self._image or self.task_env_config.docker_image)

    async def start(self, force_build: bool) -> None:
        with CancelScope(shield=True):  # who cancels it stops it after
            box = Sandbox(policy=self._policy(), backend=self._backend)
            self._box = await to_thread.run_sync(box.__enter__)
        who = await self._done(lambda box: box.exec(["sh", "-c", "id -u; id -un"]))
        self._users = tuple(who.text.split())
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        if self._box is not None:
            box, self._box = self._box, None
            with CancelScope(shield=True):
                await to_thread.run_sync(box.__exit__, None, None, None)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        who = self._resolve_user(user)
        if who is not None and str(who) not in self._users:
            raise RuntimeError(f"not as {who}: the one user of this sandbox is its image's, {' '.join(self._users)}")
        words, given, where = ["bash", "-c", command], self._merge_env(env), cwd or self.task_env_config.workdir
        done = await self._done(
            lambda box: box.exec(words, cwd=where, env=given, timeout=timeout_sec, max_output=MAX_OUTPUT)
        )
        if done.timed_out:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        said = done.stderr.decode(errors="replace")
        if done.truncated:
            said += f"\nstockade: more than {MAX_OUTPUT} bytes were written: the middle is left out\n"
        return ExecResult(stdout=done.text, stderr=said, return_code=done.exit_code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await self._done(lambda box: box.copy_in(source_path, target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self._done(lambda box: box.copy_in(source_dir, target_dir))

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await self._out(source_path, lambda new: shutil.move(new, target_path))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        await self._out(source_dir, lambda new: shutil.copytree(new, target_dir, symlinks=True, dirs_exist_ok=True))

    async def _out(self, path: str, put: Callable[[str], object]) -> None:
        """What is written comes to a folder of nobody else's first: `put` takes it from there."""
        with tempfile.TemporaryDirectory() as folder:
            new = os.path.join(folder, "new")
            for left in await self._done(lambda box: box.copy_out(path, new)):
                self.logger.warning(f"{path}: {left!r} is left out: no file, folder, or link within")
            await to_thread.run_sync(put, new)

    async def _done(self, call: Callable[[AsyncSandbox], Awaitable[T]]) -> T:
        if self._box is None:
            raise RuntimeError("the environment has not been started")
        return await self._box.awaited(call)
