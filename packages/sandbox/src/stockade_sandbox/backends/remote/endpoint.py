"""Two machines: what is asked of another one, and what is served to others."""

import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import platformdirs

from stockade_sandbox.backends.layers import without_root
from stockade_sandbox.backends.remote.allowed import Root
from stockade_sandbox.errors import UsageError
from stockade_sandbox.policy import FolderMode, Policy
from stockade_sandbox.port import Backend, OnProgress, Sandbox
from stockade_sandbox.registry import load
from stockade_sandbox.results import FolderLayer

TOKEN_VARIABLE = "STOCKADE_TOKEN_FILE"
VARIABLE = "STOCKADE_TOKEN"
"""The token itself, where it is in no file."""
LEAST_TOKEN_CHARS = 32
_MAX_TOKEN_BYTES = 4096
_MODES: dict[str, FolderMode] = {"ro": "ro", "overlay": "overlay", "rw": "rw"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def of(cls, text: str) -> Self:
        """`HOST:PORT`, an IPv6 host in brackets. UsageError for anything else."""
        host, _, port = text.rpartition(":")
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not host or not port.isascii() or not port.isdecimal() or int(port) > 65535:
            raise UsageError(f"{text!r} is no address", "write HOST:PORT, as 192.0.2.7:8711 or [::1]:8711")
        return cls(host=host, port=int(port))


def remote_sandbox(policy: Policy, address: str) -> Sandbox:
    """A sandbox on another machine. UsageError for what cannot be had there, and for a token that cannot be used."""
    if any(rule.mode == "overlay" for rule in policy.folders):
        raise UsageError(
            "a folder of another machine is read or written there, not reviewed here",
            "--folder PATH:ro or --folder PATH:rw, PATH being one of that machine",
        )
    if policy.copies:
        raise UsageError("--copy cannot be used with a sandbox on another machine", "put the file there")
    if policy.credentials:
        raise UsageError("--credential cannot be used with a sandbox on another machine", "its proxy is there")
    if policy.ssh_agent:
        raise UsageError("--ssh-agent cannot be used with a sandbox on another machine", "push from here")
    without_root(policy)
    try:
        made = load("backends.remote.http:HttpSandbox")
    except ModuleNotFoundError as error:
        way = "python -m pip install 'stockade-sandbox[remote]'"
        raise UsageError(f"sandboxes over HTTP need {error.name}, which is not installed", way) from None
    found: Sandbox = made(policy, address, read_tokens(token_path())[0].decode(errors="surrogateescape"))
    return found


def backend(address: str) -> Backend:
    """Of an address, https://HOST:PORT. Its folders are not here: a run that goes on has nothing to bring back."""

    def prepare(policy: Policy, _base: Path, _on_progress: OnProgress | None) -> Sandbox:
        return remote_sandbox(policy, address)

    def reopen(policy: Policy, _layers: Sequence[FolderLayer], _base: Path) -> Sandbox:
        return remote_sandbox(policy, address)

    return Backend(prepare, reopen, far=True)


def token_path() -> Path:
    """$STOCKADE_TOKEN_FILE, else `token` in the configuration's folder."""
    given = os.environ.get(TOKEN_VARIABLE)
    return (
        Path(given).expanduser() if given else Path(platformdirs.user_config_dir("stockade", appauthor=False)) / "token"
    )


def read_tokens(path: Path) -> list[bytes]:
    """That of the variable, else those of the file, a line each: of a server each is another owner of sandboxes."""
    if given := os.environ.get(VARIABLE):
        return [_long_enough(given.strip().encode(), f"${VARIABLE}")]
    return [_long_enough(token, path) for token in read_token(path).split()]


def read_token(path: Path) -> bytes:
    """UsageError when there is none, when it is too short, or when others can read it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise UsageError(
            f"the token file {path} cannot be read: {error.strerror}", f"name it by {TOKEN_VARIABLE}, or copy it there"
        ) from None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise UsageError(f"the token file {path} is no plain file")
        if info.st_mode & 0o077:
            raise UsageError(f"others can read the token file {path}", f"chmod 600 {path}")
        token = os.read(descriptor, _MAX_TOKEN_BYTES).strip()
    finally:
        os.close(descriptor)
    return _long_enough(token, path)


def _long_enough(token: bytes, where: Path | str) -> bytes:
    if len(token) < LEAST_TOKEN_CHARS:
        raise UsageError(
            f"the token in {where} is shorter than {LEAST_TOKEN_CHARS} characters",
            "remove the file: `stockade sandbox serve` makes a good one",
        )
    return token


def ensure_token(path: Path) -> bool:
    """Makes a token where there is no such file, for its owner alone; True when it did."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    except OSError as error:
        raise UsageError(f"the token file {path} cannot be made: {error.strerror}") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(32) + "\n")
    return True


def allowed_root(text: str) -> Root:
    """`PATH` (read-only) or `PATH:MODE`. UsageError when it is no folder."""
    path, _, mode = text.rpartition(":")
    if mode not in _MODES:
        path, mode = text, "ro"
    if not path or not Path(path).expanduser().exists():
        raise UsageError(f"--allow {text}: there is no such folder", "write --allow PATH or --allow PATH:rw")
    return Root(path=str(Path(path).expanduser().resolve()), mode=_MODES[mode])


async def health(url: str) -> None:
    """SandboxFailed when no sandboxes are served there."""
    await load("backends.remote.connection:probe")(url)
