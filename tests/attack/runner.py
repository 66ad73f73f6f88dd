"""One attempt, tried: without any sandbox (the control), and in a backend's. Tests and the page use this alone."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import anyio.to_thread

from stockade.core.errors import SandboxFailed
from stockade.core.ports import Sandbox
from stockade.runtime.sandboxes import open_sandbox
from stockade_sandbox.doctor.escapes import FIRED, TRIED
from stockade_sandbox.launcher.launch import launcher_bytes
from stockade_sandbox.overlay import Review
from stockade_sandbox.policy import FolderRule, Limits, Policy
from stockade_sandbox.port import Rooted
from stockade_sandbox.results import FolderLayer
from tests.attack.attempts.attempt import Attempt
from tests.attack.known import known
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
HELD, ENDED, THROUGH = "held", "held, by its end", "**got through**"
UNPROMISED = "got through, as its guarantees say"
PAUSE_S = 45
"""Longer than the disk's watch takes between two counts on a busy machine. What ends the sandbox ends the pause."""
_PUT_PROBE = "cat > /tmp/probe && chmod 755 /tmp/probe"


@dataclass(frozen=True)
class Backend:
    """A way to make a sandbox for a policy, its layers below a folder."""

    name: str
    make: Callable[[Policy, Path], Sandbox]
    root: bool = False
    """What is tried is run as root of the sandbox, against the bot's shell."""


def backend(name: str) -> Backend:
    """As `--sandbox NAME` makes it."""
    return Backend(name, lambda policy, base: open_sandbox(policy, name, base))


def fitted(attempt: Attempt, backend: str) -> Attempt:
    """With what is known of it in this backend."""
    one = known(backend, attempt.name)
    how = one.how if one else None
    return replace(attempt, ends=attempt.ends or how == "ends", unmade=attempt.unmade or how == "unmade")


def expected(attempt: Attempt, backend: str) -> frozenset[str]:
    """Outcomes that are no surprise."""
    one = known(backend, attempt.name)
    if one and one.how != "unmade":
        return frozenset({THROUGH if one.how == "through" else ENDED})
    return frozenset({HELD, UNPROMISED, *([ENDED] if attempt.ends else [])})


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
        timeout=240,
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


async def attacked(attempt: Attempt, stage: Scene, base: Path, backend: Backend) -> str:
    """Its outcome in a sandbox on an overlay of the folder, which must have lived through it unless it `ends`."""
    attempt = fitted(attempt, backend.name)
    if attempt.before:
        await anyio.to_thread.run_sync(by_the_host, attempt.before, stage)
    folder = FolderRule(host=str(stage.folder), mode="overlay")
    policy = Policy(folders=(folder,), limits=LIMITS, root=backend.root)
    sandbox = backend.make(policy, base)
    try:
        output = await _inside(attempt, stage, sandbox, root=backend.root)
        if attempt.later:
            await anyio.to_thread.run_sync(keep_unsuspicious, attempt, sandbox.layers)
        if await anyio.to_thread.run_sync(fired, attempt, output or b"", stage):
            return THROUGH if attempt.promise in "\n".join(sandbox.guarantees) else UNPROMISED
        return ENDED if output is None else HELD
    finally:
        for layer in sandbox.layers:
            if layer.strategy != "direct":
                Review().discard(layer)


async def _inside(attempt: Attempt, stage: Scene, sandbox: Sandbox, *, root: bool) -> bytes | None:
    """What it printed; None when the sandbox ended, and that is how it may be held."""
    async with sandbox:
        await put_probe(sandbox)
        try:
            return await (tried_as_root if root else tried)(attempt, stage, sandbox)
        except SandboxFailed:
            if not attempt.ends:
                raise
            return None


async def put_probe(sandbox: Sandbox) -> None:
    assert (await sandbox.exec(["/bin/sh", "-c", _PUT_PROBE], stdin=launcher_bytes())).exit_code == 0


async def tried_as_root(attempt: Attempt, stage: Scene, sandbox: Sandbox) -> bytes:
    """As `tried`: by root of the sandbox, and what is aimed at the shell that runs it hits the bot's, and its fork."""
    await sandbox.run("true")
    shells = (await sandbox.run("echo $$; grep -la -e --noprofile /proc/[1-9]*/cmdline")).stdout.decode().split()
    fork = next(path.split("/")[2] for path in shells[1:] if path.split("/")[2] != shells[0])
    variables = {**stage.variables, "PROBE": "/tmp/probe", "FIRST": "1", "PAUSE": str(PAUSE_S)}
    script = script_for(attempt.script.replace("$$", shells[0]).replace("$BASHPID", fork), variables)
    done = await cast(Rooted, sandbox).exec(["bash"], stdin=script.encode(), timeout_s=60, root=True)
    assert TRIED.encode() in done.stdout.split(), f"it was not even tried: {done.stderr!r}"
    alive = await sandbox.run("echo alive")
    assert (alive.stdout, alive.shell_event) == (b"alive\n", None)
    return done.stdout


async def tried(attempt: Attempt, stage: Scene, sandbox: Sandbox) -> bytes:
    """What it printed; the sandbox must be alive afterwards."""
    variables = {**stage.variables, "PROBE": "/tmp/probe", "FIRST": "1", "PAUSE": str(PAUSE_S)}
    output = await sandbox.run(script_for(attempt.script, variables), timeout_s=60)
    assert TRIED.encode() in output.stdout.split() or attempt.ends, f"it was not even tried: {output.stderr!r}"
    alive = await sandbox.run("echo alive")
    if attempt.ends and sandbox.backend != "bubblewrap" and b"No space left (limit" in alive.stdout:
        # what it wrote is counted while nothing is stopped there, which may end the command behind it
        alive = await sandbox.run("echo alive")
    assert alive.stdout.startswith(b"alive\n"), f"behind {output} there is {alive}"
    return output.stdout
