"""One attempt, tried: without any sandbox (the control), and in a backend's. Tests and the page use this alone."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from stockade.assemble import open_sandbox
from stockade.core.changes import FolderLayer
from stockade.core.errors import SandboxFailed
from stockade.core.policy import FolderRule, Limits, Policy
from stockade.core.ports import Sandbox
from stockade.sandboxes.escapes import FIRED, TRIED
from stockade.sandboxes.folders import Review
from stockade.sandboxes.launcher.launch import launcher_bytes
from tests.attack.attempts.attempt import Attempt
from tests.attack.scene import Scene

MIB = 1024**2
LIMITS = Limits(
    memory_bytes=256 * MIB,
    processes=100,
    open_files=1024,
    file_bytes=64 * MIB,
    disk_bytes=64 * MIB,
    command_timeout_s=60,
)
PAUSE_S = 12
"""Longer than the disk's watch takes between two counts."""
_PUT_PROBE = "cat > /tmp/probe && chmod 755 /tmp/probe"


@dataclass(frozen=True)
class Backend:
    """A way to make a sandbox for a policy, its layers below a folder."""

    name: str
    make: Callable[[Policy, Path], Sandbox]


def backend(name: str) -> Backend:
    """As `--sandbox NAME` makes it."""
    return Backend(name, lambda policy, base: open_sandbox(policy, name, base))


BACKENDS = (backend("bubblewrap"),)
"""Those of every test run; the page is made of more where the machine has them."""


def script_for(script: str, variables: Mapping[str, str]) -> str:
    names = "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())
    return f"(\n{names}{script}\n) 2>/dev/null\necho\necho {TRIED}"


def by_the_host(script: str, stage: Scene) -> bytes:
    """As root, in mount and UTS namespaces of its own, so that what it breaks is thrown away."""
    variables = {**stage.variables, "PAUSE": "0", "PYTHON": sys.executable}
    done = subprocess.run(
        ["unshare", "-m", "-u", "bash", "-c", script_for(script, variables)],
        cwd=stage.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **stage.loose, "HOST_DIR": str(stage.host_dir), "GIT_TERMINAL_PROMPT": "0"},
        close_fds=False,
        timeout=60,
        check=False,
    )
    return done.stdout


def fired(attempt: Attempt, output: bytes, stage: Scene) -> bool:
    if attempt.later:
        output = by_the_host(attempt.later, stage)
    if attempt.mark is None:
        return FIRED.encode() in output.split()
    if attempt.mark.startswith("OUTPUT:"):
        return len(output) > int(attempt.mark.removeprefix("OUTPUT:"))
    return stage.mark_is_there(attempt.mark)


def control(attempt: Attempt, stage: Scene) -> bool:
    """Whether it gets through where there is no sandbox. One that does not proves nothing."""
    if attempt.before:
        by_the_host(attempt.before, stage)
    output = by_the_host(attempt.script, stage)
    assert TRIED.encode() in output.split(), "it was not even tried"
    return fired(attempt, output, stage)


def keep_unsuspicious(attempt: Attempt, layers: Sequence[FolderLayer]) -> None:
    """What a person who reads the flags would apply without another look. Something must have been worth one."""
    review = Review()
    for layer in layers:
        changes = review.changes(layer)
        clean = [change for change in changes if not change.refused and not change.flagged]
        assert attempt.unmade or len(clean) < len(changes), f"nothing was flagged: {changes}"
        review.apply(layer, clean)


async def attacked(attempt: Attempt, stage: Scene, base: Path, backend: Backend) -> bool:
    """Whether it gets through in a sandbox on an overlay of the folder, which must have lived through it."""
    if attempt.before:
        await anyio.to_thread.run_sync(by_the_host, attempt.before, stage)
    policy = Policy(folders=(FolderRule(host=str(stage.folder), mode="overlay"),), limits=LIMITS)
    sandbox = backend.make(policy, base)
    try:
        output = await _inside(attempt, stage, sandbox)
        if attempt.later:
            await anyio.to_thread.run_sync(keep_unsuspicious, attempt, sandbox.layers)
        return await anyio.to_thread.run_sync(fired, attempt, output, stage)
    finally:
        for layer in sandbox.layers:
            if layer.strategy != "direct":
                Review().discard(layer)


async def _inside(attempt: Attempt, stage: Scene, sandbox: Sandbox) -> bytes:
    variables = {**stage.variables, "PROBE": "/tmp/probe", "FIRST": "1", "PAUSE": str(PAUSE_S)}
    async with sandbox:
        assert (await sandbox.exec(["/bin/sh", "-c", _PUT_PROBE], stdin=launcher_bytes())).exit_code == 0
        try:
            output = await sandbox.run(script_for(attempt.script, variables), timeout_s=60)
            assert TRIED.encode() in output.stdout.split() or attempt.ends, f"it was not even tried: {output.stderr!r}"
            assert (await sandbox.run("echo alive")).stdout == b"alive\n"
        except SandboxFailed:
            if not attempt.ends:
                raise
            return b""
        return output.stdout
