"""The bodies of /v1/sandboxes, for both sides (docs/remote.md): JSON, bytes as base64, errors as problem+json."""

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from stockade_sandbox.backends.remote.messages import Problem, error_of, problem
from stockade_sandbox.errors import ActionFailed, SandboxDied, SandboxFailed, StockadeError, UsageError
from stockade_sandbox.policy import Policy
from stockade_sandbox.records import Record
from stockade_sandbox.results import CommandOutput, ExecResult, FolderLayer, NetworkRequest

NAME = re.compile("[0-9a-z]{1,32}")
"""Of a sandbox and of a program: what the client gave as Idempotency-Key, else one that the server made."""
MAX_BODY = 2 << 20
MAX_INPUT = 64 << 20
"""What a program whose output is collected may be given to read, and how much of its output is kept."""
PIECE = 256 << 10
"""The most of a program's input in one request, and of its output in one event."""
WAIT_S = 20.0
"""The longest that a request waits for the end of a program."""
Side = Annotated[int, Meta(ge=1, le=65535)]
Kind = Literal["action", "usage", "policy", "sandbox", "died"]


class Opening(Record):
    """POST /v1/sandboxes. `sent`: which of the policy's folders, from 0, the client sends: by PUT …/folders/{n}, before
    the sandbox begins. Each is an overlay, and its `host` says nothing.
    """

    policy: Policy
    sent: tuple[Annotated[int, Meta(ge=0, le=15)], ...] = ()


class Opened(Record):
    """A sandbox. `network`: how many of its requests to the network were told so far, and those behind them."""

    id: str
    backend: str
    layers: tuple[FolderLayer, ...] = ()
    guarantees: tuple[str, ...] = ()
    wants: tuple[int, ...] = ()
    """Of its folders those that are to be sent before it begins; a GET answers when it has begun."""


class Start(Record):
    """POST …/programs. `shell`: a command for the persistent shell; else `argv`. With `max_output_bytes` its output is
    collected, and `stdin` is all of its input, or None where that comes by …/stdin; without, its output are events, and
    `stdin` its first input. `pty`: rows and columns of a terminal.
    """

    shell: str | None = None
    argv: tuple[str, ...] = ()
    cwd: str | None = None
    env: dict[str, str] | None = None
    timeout_s: Annotated[float, Meta(ge=0)] | None = None
    max_output_bytes: Annotated[int, Meta(ge=0, le=MAX_INPUT)] | None = None
    stdin: bytes | None = None
    stderr: bool = True
    pty: tuple[Side, Side] | None = None


class Signal(Record):
    """POST …/signal. `count`: which one of this client it is, from 1; one that was done is not done again. `tree`: the
    program and all that it has started are killed instead.
    """

    number: Annotated[int, Meta(ge=1, le=64)] = 9
    count: Annotated[int, Meta(ge=1)] | None = None
    tree: bool = False


class Resize(Record):
    """POST …/resize."""

    rows: Side
    columns: Side


class Heard(Record):
    """What was asked of the network: those behind the first `at`."""

    at: int = 0
    events: tuple[NetworkRequest, ...] = ()


class State(Record):
    """GET …/programs/{n}. `output` is the shell's, `result` one that was collected, `status` and what follows that of
    any other; `problem` is why it could not be done.
    """

    n: str
    ended: bool
    output: CommandOutput | None = None
    result: ExecResult | None = None
    status: int | None = None
    timed_out: bool = False
    error: str = ""
    words: str = ""
    problem: Problem | None = None
    network: Heard = Heard()


class Closed(Record):
    """DELETE /v1/sandboxes/{id}."""

    network: Heard = Heard()


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """GET /healthz."""

    status: str = ""
    sandboxes: bool = False


class Refusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as RFC 9457 has it; with `kind` it is one of ours. What else a server says is not looked at."""

    title: str = ""
    status: int = 0
    detail: str = ""
    hint: str | None = None
    kind: Kind | None = None
    rule: str = ""
    backends: tuple[str, ...] = ()


def encoded(message: msgspec.Struct) -> bytes:
    """ActionFailed for strings that are no text."""
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:
        raise ActionFailed("it holds half a surrogate pair, which is no text") from None


def refusal_of(error: StockadeError, status: int, title: str) -> Refusal:
    found = problem(error)
    return Refusal(
        title=title, status=status, detail=found.message, hint=found.hint, kind=found.kind, rule=found.rule,
        backends=found.backends,
    )  # fmt: skip


def error_in(status: int, body: bytes, where: str) -> StockadeError:
    """Of an answer that is none of success. `where` names the server."""
    try:
        found = msgspec.json.decode(body, type=Refusal)
    except (msgspec.MsgspecError, RecursionError):
        found = Refusal()
    if found.kind is not None:
        said = Problem(kind=found.kind, message=found.detail, hint=found.hint, rule=found.rule, backends=found.backends)
        return error_of(said)
    if status == 401:
        return UsageError(f"{where} does not take the token", "both sides need the same one: docs/remote.md")
    if status in (404, 410) and found.title:
        return SandboxDied("the sandbox is gone over there", "its server was started anew, or waited too long")
    if status == 413:
        return ActionFailed("the request is larger than the server takes")
    words = found.detail or "what it says is not of ours"
    return SandboxFailed(f"{where} answered with status {status}: {words}", "is that address a sandbox server's?")
