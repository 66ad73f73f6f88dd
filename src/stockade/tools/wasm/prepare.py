"""From a file to a component that can be called: compiled and looked at in a sandbox of its own, once a component."""

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from pydantic import Field, ValidationError

from stockade.core.data import Data
from stockade.core.errors import SandboxFailed, UsageError
from stockade.core.policy import GIB, Policy
from stockade.core.policy import Limits as SandboxLimits
from stockade.core.ports import Sandbox
from stockade.tools.wasm import cache, mounts
from stockade.tools.wasm.component import Component, read_component, read_description, understood
from stockade.tools.wasm.names import cleaned
from stockade.tools.wasm.policy import Limits, beside, read_policy

COMPILE_S = 600.0
MAX_COMPILED_BYTES = 1 << 30
OpenBox = Callable[[Policy], AbstractAsyncContextManager[Sandbox]]
"""A sandbox of its own for a policy, which holds nothing of any run."""
OnProgress = Callable[[str, int, int], None]


class _Compiled(Data):
    description: dict[str, object] | None = None
    error: str | None = Field(default=None)


async def prepared(
    path: Path, open_box: OpenBox, policy: Path | None = None, on_progress: OnProgress | None = None
) -> Component:
    """A component ready to be called. UsageError, naming the file, when it cannot be; SandboxFailed."""
    data = read_component(path)
    rules = policy or beside(path)
    limits = read_policy(rules).held if rules else Limits()
    digest = hashlib.sha256(data).hexdigest()
    place = cache.entry(digest, limits)
    description = place.description()
    if description is None:
        if on_progress is not None:
            on_progress(f"compiling {path.name}, once", 0, 0)
        description, compiled = await _compile(path.name, data, limits, open_box)
        cache.put(place, compiled, description)
    found = read_description(description, path.name)
    return understood(path, digest, len(data), place.compiled, found, policy)


async def _compile(name: str, data: bytes, limits: Limits, open_box: OpenBox) -> tuple[str, bytes]:
    """(description, compiled code). The compiler works on hostile input: it has a sandbox with nothing in it."""
    policy = mounts.lent(
        Policy(
            limits=SandboxLimits(memory_bytes=6 * GIB, command_timeout_s=0, disk_bytes=64 << 20, file_bytes=64 << 20)
        )
    )
    request = json.dumps({"op": "compile", "limits": limits.model_dump()}).encode() + b"\n"
    async with open_box(policy) as box:
        done = await box.exec(mounts.argv(), request + data, COMPILE_S, MAX_COMPILED_BYTES)
    line, _, compiled = done.stdout.partition(b"\n")
    if done.timed_out:
        raise UsageError(f"{name} was not compiled within {COMPILE_S:g} s")
    if done.exit_code or not line:
        raise _failure(name, done.exit_code, done.stderr)
    try:
        answer = _Compiled.model_validate_json(line)
    except ValidationError as error:
        raise SandboxFailed(f"{name} could not be compiled: the answer is none") from error
    if answer.error is not None or answer.description is None:
        raise UsageError(f"{name} cannot be used: {cleaned(answer.error or 'no reason given', 200)}")
    return json.dumps(answer.description), compiled


def _failure(name: str, status: int, stderr: bytes) -> SandboxFailed:
    last = (stderr.decode(errors="replace").strip().splitlines() or [f"exit status {status}"])[-1]
    hint = "this Python must be able to run inside the sandbox" if status in (126, 127) else None
    return SandboxFailed(f"{name} could not be compiled in a sandbox: {cleaned(last, 200)}", hint)
