"""The process in the sandbox that calls components. What it does wrong is a tool's error, never the run's end."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, Protocol

from pydantic import ValidationError

from stockade.core.data import Data
from stockade.core.errors import ActionFailed
from stockade.core.ports import ExecResult, Sandbox
from stockade.tools.wasm.mounts import argv

SLACK_S = 5.0
"""For starting Python and loading compiled code, beyond a call's own limit, before the process is killed."""
_FRAME_BYTES = 4096


class Reply(Data):
    """What came of a call. `kind` of an error: arguments, timeout, trap, stack, fuel, memory, exit, output, crash."""

    status: Literal["success", "data", "error"]
    text: str
    kind: str | None = None
    load_s: float | None = None
    call_s: float | None = None


class Worker(Protocol):
    async def ask(self, request: dict[str, Any], timeout_s: float, output_bytes: int) -> Reply:
        """The reply to one call, within `timeout_s` and a little. Raises only SandboxFailed."""
        ...


@asynccontextmanager
async def worker_in(sandbox: Sandbox) -> AsyncIterator[Worker]:
    """The way to call components in this sandbox."""
    yield OneShot(sandbox)


class OneShot:
    """A process a call."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def ask(self, request: dict[str, Any], timeout_s: float, output_bytes: int) -> Reply:
        line = spelled(request)
        if line is None:
            return Reply(status="error", kind="arguments", text="the arguments are no JSON")
        try:
            done = await self._sandbox.exec(argv(), line, timeout_s + SLACK_S, room(output_bytes))
        except ActionFailed as error:
            return Reply(status="error", kind="arguments", text=error.message)
        return _of_process(done, timeout_s)


def spelled(request: dict[str, Any]) -> bytes | None:
    """A request as one line; None when it cannot be written."""
    try:
        return json.dumps(request, allow_nan=False).encode() + b"\n"
    except (ValueError, TypeError, RecursionError):
        return None


def room(output_bytes: int) -> int:
    """For an answer's JSON, in which a character may take six bytes."""
    return 6 * output_bytes + _FRAME_BYTES


def read_reply(line: bytes) -> Reply | None:
    """None when it is none."""
    try:
        return Reply.model_validate_json(line)
    except ValidationError:
        return None


def crashed(how: str) -> Reply:
    return Reply(status="error", kind="crash", text=f"the tool's process ended: {how}")


def late(timeout_s: float) -> Reply:
    text = f"the tool did not end within {timeout_s:g} s and was stopped"
    return Reply(status="error", kind="timeout", text=text)


def _of_process(done: ExecResult, timeout_s: float) -> Reply:
    if (reply := read_reply(done.stdout.partition(b"\n")[0])) is not None:
        return reply
    if done.timed_out:
        return late(timeout_s)
    words = (done.stderr.decode(errors="replace").strip().splitlines() or [""])[-1]
    return crashed(f"status {done.exit_code}" + (f" ({words[:200]})" if words else ""))
