"""What the two sides say to each other once they know each other: the Sandbox port's calls, numbered from 1.

A request is done once, whoever asks how often: its number says which it is. Its result is kept until the next request
comes, and sent again when the same number is asked for again.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from stockade_sandbox.backends.remote.wire import LinkLost
from stockade_sandbox.errors import (
    ActionFailed,
    PolicyNotEnforceable,
    SandboxDied,
    SandboxFailed,
    StockadeError,
    UsageError,
)
from stockade_sandbox.policy import Policy
from stockade_sandbox.records import Record
from stockade_sandbox.results import CommandOutput, ExecResult, FolderLayer, NetworkRequest, Stream

SESSION = r"^[0-9a-f]{32}$"
Number = Annotated[int, Meta(ge=1)]
Size = Annotated[int, Meta(ge=0)]


class Open(Record, kw_only=True, tag_field="t", tag="open"):
    """Client: a sandbox for this policy; or, `again`, the one that is there already under that name."""

    session: Annotated[str, Meta(pattern=SESSION)]
    policy: Policy
    again: bool = False


class Run(Record, kw_only=True, tag_field="t", tag="run"):
    """Client: a command for the shell. `heard`: how many bytes of its output have come; None to be told none."""

    n: Number
    command: str
    timeout_s: float | None = None
    heard: Size | None = None


class Exec(Record, kw_only=True, tag_field="t", tag="exec"):
    """Client: a program beside the shell; its input is the raw part."""

    n: Number
    argv: tuple[str, ...]
    timeout_s: float | None = None
    max_output_bytes: Annotated[int, Meta(ge=0, le=64 << 20)]


class Cancel(Record, kw_only=True, tag_field="t", tag="cancel"):
    """Client: what has this number shall end, or not begin."""

    n: Number


class Close(Record, kw_only=True, tag_field="t", tag="close"):
    """Client: the sandbox shall end."""


class Opened(Record, kw_only=True, tag_field="t", tag="opened"):
    """Server: the sandbox is there. `layers`: those that are not the folder itself."""

    backend: str
    layers: tuple[FolderLayer, ...]
    guarantees: tuple[str, ...]


class Wrote(Record, kw_only=True, tag_field="t", tag="wrote"):
    """Server: a piece, the raw part, of what the command that runs writes, behind `at` bytes of it."""

    n: int
    stream: Stream
    at: Size


class Ran(Record, kw_only=True, tag_field="t", tag="ran"):
    """Server: what a command did."""

    n: int
    output: CommandOutput


class Executed(Record, kw_only=True, tag_field="t", tag="executed"):
    """Server: what a program did. The raw part is its stdout (`stdout_bytes`), then its stderr."""

    n: int
    exit_code: int
    timed_out: bool
    truncated_bytes: int
    stdout_bytes: Size


class Cancelled(Record, kw_only=True, tag_field="t", tag="cancelled"):
    """Server: it was ended, or never began."""

    n: int


class Problem(Record, kw_only=True, tag_field="t", tag="problem"):
    """Server: an error of the port, of request `n` or (None) of the whole sandbox."""

    n: int | None = None
    kind: Literal["action", "usage", "policy", "sandbox", "died"]
    message: str
    hint: str | None = None
    rule: str = ""
    backends: tuple[str, ...] = ()


class Heard(Record, kw_only=True, tag_field="t", tag="heard"):
    """Server: something of the network."""

    event: NetworkRequest


class Closed(Record, kw_only=True, tag_field="t", tag="closed"):
    """Server: nothing is left of it."""


FromClient = Open | Run | Exec | Cancel | Close
FromServer = Opened | Wrote | Ran | Executed | Cancelled | Problem | Heard | Closed
_CLIENT: msgspec.json.Decoder[FromClient] = msgspec.json.Decoder(FromClient)
_SERVER: msgspec.json.Decoder[FromServer] = msgspec.json.Decoder(FromServer)


def text_of(message: FromClient | FromServer) -> bytes:
    """ActionFailed for strings that are no text."""
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:
        raise ActionFailed("it holds half a surrogate pair, which is no text") from None


def from_client(text: bytes) -> FromClient:
    """LinkLost when it is nothing that a client says."""
    try:
        return _CLIENT.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise LinkLost("the client sent nonsense") from error


def from_server(text: bytes) -> FromServer:
    """LinkLost when it is nothing that a server says."""
    try:
        return _SERVER.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise LinkLost("the server sent nonsense") from error


def executed(n: int, result: ExecResult) -> tuple[Executed, bytes]:
    message = Executed(
        n=n, exit_code=result.exit_code, timed_out=result.timed_out, truncated_bytes=result.truncated_bytes,
        stdout_bytes=len(result.stdout),
    )  # fmt: skip
    return message, result.stdout + result.stderr


def exec_result(message: Executed, raw: bytes) -> ExecResult:
    at = message.stdout_bytes
    return ExecResult(
        exit_code=message.exit_code, stdout=raw[:at], stderr=raw[at:], timed_out=message.timed_out,
        truncated_bytes=message.truncated_bytes,
    )  # fmt: skip


def problem(error: StockadeError, n: int | None = None) -> Problem:
    """An error as it travels."""
    if isinstance(error, PolicyNotEnforceable):
        return Problem(
            n=n, kind="policy", message=error.message, hint=error.hint, rule=error.rule, backends=error.backends
        )
    kinds: tuple[tuple[type[StockadeError], Literal["action", "usage", "died"]], ...] = (
        (ActionFailed, "action"), (UsageError, "usage"), (SandboxDied, "died"),
    )  # fmt: skip
    name: Literal["action", "usage", "died", "sandbox"]
    name = next((name for kind, name in kinds if isinstance(error, kind)), "sandbox")
    return Problem(n=n, kind=name, message=error.message, hint=error.hint)


def error_of(found: Problem) -> StockadeError:
    """The same error on this side."""
    match found.kind:
        case "action":
            return ActionFailed(found.message, found.hint)
        case "usage":
            return UsageError(found.message, found.hint)
        case "policy":
            return PolicyNotEnforceable(found.rule, found.message, found.hint, found.backends)
        case "died":
            return SandboxDied(found.message, found.hint)
        case "sandbox":
            return SandboxFailed(found.message, found.hint)
