"""What the two sides say to each other once they know each other: the Sandbox port's calls, numbered from 1.

A request is done once, whoever asks how often: its number says which it is. Its result is kept until the next request
comes, and sent again when the same number is asked for again.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from stockade.core.actions import CommandOutput
from stockade.core.changes import FolderLayer
from stockade.core.data import Data
from stockade.core.errors import (
    ActionFailed,
    PolicyNotEnforceable,
    SandboxDied,
    SandboxFailed,
    StockadeError,
    UsageError,
)
from stockade.core.events import NetworkRequested
from stockade.core.policy import Policy
from stockade.core.ports import ExecResult
from stockade_sandbox.backends.remote.wire import LinkLost

SESSION = r"^[0-9a-f]{32}$"


class Open(Data):
    """Client: a sandbox for this policy; or, `again`, the one that is there already under that name."""

    t: Literal["open"] = "open"
    session: str = Field(pattern=SESSION)
    policy: Policy
    again: bool = False


class Run(Data):
    """Client: a command for the shell."""

    t: Literal["run"] = "run"
    n: int = Field(ge=1)
    command: str
    timeout_s: float | None = None


class Exec(Data):
    """Client: a program beside the shell; its input is the raw part."""

    t: Literal["exec"] = "exec"
    n: int = Field(ge=1)
    argv: tuple[str, ...]
    timeout_s: float | None = None
    max_output_bytes: int = Field(ge=0, le=64 << 20)


class Cancel(Data):
    """Client: what has this number shall end, or not begin."""

    t: Literal["cancel"] = "cancel"
    n: int = Field(ge=1)


class Close(Data):
    """Client: the sandbox shall end."""

    t: Literal["close"] = "close"


class Opened(Data):
    """Server: the sandbox is there. `layers`: those that are not the folder itself."""

    t: Literal["opened"] = "opened"
    backend: str
    layers: tuple[FolderLayer, ...]
    guarantees: tuple[str, ...]


class Ran(Data):
    """Server: what a command did."""

    t: Literal["ran"] = "ran"
    n: int
    output: CommandOutput


class Executed(Data):
    """Server: what a program did. The raw part is its stdout (`stdout_bytes`), then its stderr."""

    t: Literal["executed"] = "executed"
    n: int
    exit_code: int
    timed_out: bool
    truncated_bytes: int
    stdout_bytes: int = Field(ge=0)


class Cancelled(Data):
    """Server: it was ended, or never began."""

    t: Literal["cancelled"] = "cancelled"
    n: int


class Problem(Data):
    """Server: an error of the port, of request `n` or (None) of the whole sandbox."""

    t: Literal["problem"] = "problem"
    n: int | None = None
    kind: Literal["action", "usage", "policy", "sandbox", "died"]
    message: str
    hint: str | None = None
    rule: str = ""
    backends: tuple[str, ...] = ()


class Heard(Data):
    """Server: something of the network."""

    t: Literal["heard"] = "heard"
    event: NetworkRequested


class Closed(Data):
    """Server: nothing is left of it."""

    t: Literal["closed"] = "closed"


FromClient = Open | Run | Exec | Cancel | Close
FromServer = Opened | Ran | Executed | Cancelled | Problem | Heard | Closed
_CLIENT: TypeAdapter[FromClient] = TypeAdapter(Annotated[FromClient, Field(discriminator="t")])
_SERVER: TypeAdapter[FromServer] = TypeAdapter(Annotated[FromServer, Field(discriminator="t")])


def text_of(message: FromClient | FromServer) -> bytes:
    """ActionFailed for strings that are no text."""
    try:
        return message.model_dump_json().encode()
    except (PydanticSerializationError, UnicodeEncodeError):
        raise ActionFailed("it holds half a surrogate pair, which is no text") from None


def from_client(text: bytes) -> FromClient:
    """LinkLost when it is nothing that a client says."""
    try:
        return _CLIENT.validate_json(text)
    except ValidationError as error:
        raise LinkLost("the client sent nonsense") from error


def from_server(text: bytes) -> FromServer:
    """LinkLost when it is nothing that a server says."""
    try:
        return _SERVER.validate_json(text)
    except ValidationError as error:
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
    kind = next((name for kind, name in kinds if isinstance(error, kind)), "sandbox")
    return Problem(n=n, kind=kind, message=error.message, hint=error.hint)


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
