"""The process in the sandbox that calls components, and what the sandbox must see for it: Python, wasmtime and our side
of it, read-only. What the process does wrong is a tool's error, never the run's end.
"""

import compileall
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import anyio
from pydantic import ValidationError

from stockade.core.data import Data
from stockade.core.errors import ActionFailed, SandboxFailed, UsageError, to_install
from stockade.core.ports import Program, Programs, Sandbox
from stockade_sandbox.policy import FolderRule, Policy

ROOT = "/opt/stockade"
_LIBRARIES = f"{ROOT}/lib"
_INSIDE = "stockade/plugins/wasm/inside"
_PATH = f"sys.path.insert(0, {_LIBRARIES!r})"
_START = f"import gc, sys; gc.disable(); {_PATH}; from {_INSIDE.replace('/', '.')}.main import main; main()"
"""No garbage is looked for while modules are loaded: a tenth of what the start costs. `main` turns it on."""

PROBE = f"import sys; {_PATH}; import wasmtime"


def interpreter() -> Path:
    """Of this process, without its virtual environment."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def argv() -> tuple[str, ...]:
    """The program inside: no site packages, no environment, nothing of the working folder is imported."""
    return (str(interpreter()), "-I", "-S", "-B", "-c", _START)


def lent(policy: Policy, compiled: tuple[Path, ...] = ()) -> Policy:
    """The policy with these folders in it, each once. UsageError when wasmtime is not installed."""
    rules = [
        _rule(with_bytecode(Path(__file__).parent / "inside"), f"{_LIBRARIES}/{_INSIDE}"),
        _rule(with_bytecode(_wasmtime()), f"{_LIBRARIES}/wasmtime"),
        *(_rule(folder, inside_of(folder)) for folder in compiled),
    ]
    prefix = Path(sys.base_prefix).resolve()
    if not PurePosixPath(prefix).is_relative_to("/usr"):
        rules.insert(0, _rule(prefix, str(prefix)))
    known = {rule.inside for rule in policy.lent}
    return replace(policy, lent=(*policy.lent, *(rule for rule in rules if rule.inside not in known)))


def inside_of(folder: Path) -> str:
    """Where the sandbox sees a folder of the cache."""
    return f"{ROOT}/compiled/{folder.name}"


def _rule(host: Path, inside: str) -> FolderRule:
    return FolderRule(host=str(host), mode="ro", inside=inside)


def _wasmtime() -> Path:
    """Found, not imported: none of it runs in this process."""
    found = find_spec("wasmtime")
    if found is None or found.origin is None:
        raise UsageError("WebAssembly tools need wasmtime", to_install("wasm"))
    return Path(found.origin).parent


@cache
def with_bytecode(folder: Path) -> Path:
    """The folder, with Python's byte code of its modules where Python itself would keep it.

    Here nobody imports them, and the sandbox cannot write: an installer that compiles nothing (uv) would make every
    start twice as long. Where it cannot be written, or PYTHONDONTWRITEBYTECODE asks for none, that is so.
    """
    if not sys.dont_write_bytecode:
        compileall.compile_dir(folder, quiet=2)
    return folder


SLACK_S = 5.0
"""For starting Python and loading compiled code, beyond a call's own limit, before the process is killed."""
_FRAME_BYTES = 4096


class Reply(Data):
    """What came of a call. `kind` of an error: arguments, timeout, trap, stack, fuel, memory, exit, output, crash."""

    status: Literal["success", "data", "error"]
    text: str
    printed: str = ""
    """The beginning of what it wrote to its standard output and error, where it came to a result."""
    kind: str | None = None
    load_s: float | None = None
    cpu_s: float | None = None
    """Of the process, during the call."""


async def check_place(sandbox: Sandbox, image: str | None) -> Programs:
    """The sandbox, which runs programs beside its shell. UsageError where this machine's Python and wasmtime cannot
    run; in bubblewrap they can, without an image.
    """
    if isinstance(sandbox, Programs):
        if sandbox.backend == "bubblewrap" and image is None:
            return sandbox
        if not (await sandbox.exec((*argv()[:-1], PROBE), timeout_s=60)).exit_code:
            return sandbox
    raise UsageError(
        f"WebAssembly tools cannot run in this {sandbox.backend} sandbox: this Python does not start in it",
        "use --sandbox bubblewrap, without --image",
    )


@asynccontextmanager
async def worker_in(sandbox: Programs) -> AsyncIterator["Worker"]:
    """The way to call components in this sandbox."""
    worker = Worker(sandbox)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(worker.serve)
            try:
                yield worker
            finally:
                group.cancel_scope.cancel()
    except BaseExceptionGroup as found:
        if len(found.exceptions) > 1:
            raise
        raise found.exceptions[0] from None  # what is caught by its kind further out must not come as a group


@dataclass(slots=True)
class _Job:
    """A call on its way through the process; `scope` ends it."""

    line: bytes
    timeout_s: float
    room: int
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)
    reply: Reply | None = None
    error: SandboxFailed | None = None


class Worker:
    """One process for all calls, one call at a time, started at the first and again after one that broke it."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._put, self._jobs = anyio.create_memory_object_stream[_Job](0)

    async def ask(self, request: dict[str, Any], timeout_s: float, output_bytes: int) -> Reply:
        """The reply to one call, within `timeout_s` and a little. Raises only SandboxFailed."""
        try:
            line = json.dumps(request, allow_nan=False).encode() + b"\n"
        except (ValueError, TypeError, RecursionError):
            return Reply(status="error", kind="arguments", text="the arguments are no JSON")
        job = _Job(line, timeout_s, 6 * output_bytes + _FRAME_BYTES)  # a character may take six bytes in JSON
        await self._put.send(job)
        try:
            await job.done.wait()
        finally:
            job.scope.cancel()
        if job.error is not None:
            raise job.error
        assert job.reply is not None
        return job.reply

    async def serve(self) -> None:
        """The process is started and ended here, by one task; cancelled, it ends."""
        with self._put, self._jobs:
            while True:
                job = await self._jobs.receive()
                try:
                    async with self._programs.program(argv()) as process:
                        while await self._do(process, job):
                            job = await self._jobs.receive()
                except ActionFailed as error:
                    job.reply = job.reply or crashed(error.message)
                except SandboxFailed as error:
                    job.error = error
                job.done.set()

    async def _do(self, process: Program, job: _Job) -> bool:
        """One call; whether the process is fit for another. A caller who has gone is one that broke it."""
        with job.scope, anyio.move_on_after(job.timeout_s + SLACK_S):
            job.reply = await _exchange(process, job)
            job.done.set()
            return job.reply.kind not in ("timeout", "crash")
        job.reply = late(job.timeout_s)
        job.done.set()
        return False


async def _exchange(process: Program, job: _Job) -> Reply:
    answer = bytearray()
    try:
        await process.send(job.line)
        while b"\n" not in answer:
            if len(answer) > job.room:
                return crashed("it wrote more than an answer")
            answer += await process.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        words = (await process.exit_reason()).splitlines() or [""]
        return crashed(f"status {process.status}" + (f" ({words[-1][:200]})" if words[-1] else ""))
    try:
        return Reply.model_validate_json(bytes(answer))
    except ValidationError:
        return crashed("it wrote no answer")


def crashed(how: str) -> Reply:
    return Reply(status="error", kind="crash", text=f"the tool's process ended: {how}")


def late(timeout_s: float) -> Reply:
    text = f"the tool did not end within {timeout_s:g} s and was stopped"
    return Reply(status="error", kind="timeout", text=text)
