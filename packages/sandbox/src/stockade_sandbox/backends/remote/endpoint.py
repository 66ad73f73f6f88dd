"""Two machines: what is asked of another one, and what is served to others."""

import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os.path import expanduser
from pathlib import Path
from typing import Self

from stockade_sandbox.backends.layers import make_layers, without_root
from stockade_sandbox.backends.remote.allowed import Root
from stockade_sandbox.errors import UsageError
from stockade_sandbox.policy import FolderMode, Policy
from stockade_sandbox.port import Backend, OnProgress, Sandbox
from stockade_sandbox.processes import own_folder
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


def check_policy(policy: Policy) -> None:
    """UsageError for what cannot be had there."""
    if len({rule.mode == "overlay" for rule in policy.folders}) > 1:
        raise UsageError(
            "an overlay folder is this machine's, and others are that machine's: a sandbox there has one kind of them",
            "--folder PATH, or --folder PATH:ro and PATH:rw",
        )
    if policy.copies:
        raise UsageError("--copy cannot be used with a sandbox on another machine", "put the file there")
    if policy.credentials:
        raise UsageError("--credential cannot be used with a sandbox on another machine", "its proxy is there")
    if policy.ssh_agent:
        raise UsageError("--ssh-agent cannot be used with a sandbox on another machine", "push from here")
    without_root(policy)


def remote_sandbox(policy: Policy, address: str, layers: Sequence[FolderLayer] = ()) -> Sandbox:
    """A sandbox on another machine, with these layers of folders of this one. UsageError for what cannot be had there,
    and for a token that cannot be used.
    """
    check_policy(policy)
    try:
        made = load("backends.remote.http:HttpSandbox")
    except ModuleNotFoundError as error:
        way = "python -m pip install 'stockade-sandbox[remote]'"
        raise UsageError(f"sandboxes over HTTP need {error.name}, which is not installed", way) from None
    token = read_tokens(token_path())[0].decode(errors="surrogateescape")
    found: Sandbox = made(policy, address, token, layers=layers)
    return found


def backend(address: str) -> Backend:
    """Of an address, https://HOST:PORT. An overlay folder is this machine's, and its layer here a copy; any other is
    that machine's, and nothing of it is here.
    """

    def prepare(policy: Policy, base: Path, on_progress: OnProgress | None) -> Sandbox:
        remote_sandbox(policy, address)  # before a folder is copied
        return remote_sandbox(policy, address, copies(policy, base, on_progress))

    def reopen(policy: Policy, layers: Sequence[FolderLayer], _base: Path) -> Sandbox:
        return remote_sandbox(policy, address, [one for one in layers if one.mode == "overlay"])

    def copies(policy: Policy, base: Path, on_progress: OnProgress | None) -> tuple[FolderLayer, ...]:
        if not any(rule.mode == "overlay" for rule in policy.folders):
            return ()
        return make_layers(replace(policy, lent=()), base, None, lambda _: "it goes to another machine", on_progress)

    return Backend(prepare, reopen, far=True)


def token_path() -> Path:
    """$STOCKADE_TOKEN_FILE, else `token` in the configuration's folder."""
    given = os.environ.get(TOKEN_VARIABLE)
    return Path(expanduser(given)) if given else own_folder("config") / "token"


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
    if not path or not Path(expanduser(path)).exists():
        raise UsageError(f"--allow {text}: there is no such folder", "write --allow PATH or --allow PATH:rw")
    return Root(path=str(Path(expanduser(path)).resolve()), mode=_MODES[mode])


async def health(url: str) -> None:
    """SandboxFailed when no sandboxes are served there."""
    await load("backends.remote.connection:probe")(url)
