"""What a bot may touch: plain data with safe defaults. A sandbox backend turns it into a command line."""

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

from stockade_sandbox.errors import UsageError

FolderMode = Literal["ro", "overlay", "rw"]
Streams = Literal["one", "separate"]
_MODES: dict[str, FolderMode] = {"ro": "ro", "overlay": "overlay", "rw": "rw"}
WORKSPACE = "/workspace"
STRICT = {"extra": "forbid"}
"""The setting of pydantic, which need not be there, for a value that stands in a record: unknown fields are refused."""

KIB, MIB, GIB = 1024, 1024**2, 1024**3
LEAST_OUTPUT = 256
LEAST_MEMORY, LEAST_PROCESSES = 8 * MIB, 8
"""A sandbox of bubblewrap starts with less, but a pipe of programs or Python does not: 6 MiB and 8, tried 2026-11."""
PROXY_PORT = 3128
"""Of 127.0.0.1 inside a sandbox with a network: where its proxy is reached."""
_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?$", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of `512M`, `2GiB`, `1000`; units are powers of 1024. ValueError when it is not a size."""
    found = _SIZE.match(text.strip())
    if not found:
        raise ValueError(f"not a size: {text!r} (write 512M or 2G)")
    size = int(float(found[1]) * 1024 ** ("kmgt".index(found[2].lower()) + 1 if found[2] else 0))
    if not size and float(found[1]):
        raise ValueError(f"{text!r} is less than a byte (write 512M or 2G)")
    return size


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderRule:
    """A folder of the host and what may be done to it.

    `ro`: it can be read. `overlay`: the bot writes to a layer of its own; the host folder changes when the user
    applies. `rw`: the bot writes to the host folder itself.
    """

    __pydantic_config__ = STRICT

    host: str
    mode: FolderMode = "overlay"
    inside: str = WORKSPACE

    def __post_init__(self) -> None:
        if self.mode not in get_args(FolderMode):
            raise ValueError(f"{self.mode!r} is no mode of a folder (write ro, overlay or rw)")
        if not PurePosixPath(self.inside).is_absolute() or ".." in PurePosixPath(self.inside).parts:
            raise ValueError("the path inside the sandbox must be absolute, without '..'")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRule:
    """A file or folder of the host copied in at the start; the copy is thrown away."""

    __pydantic_config__ = STRICT

    host: str
    inside: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """`none`: no way out. By the egress proxy: `allow` for `hosts` (HOST or HOST:PORT), `open` for public names."""

    __pydantic_config__ = STRICT

    mode: Literal["none", "allow", "open"] = "none"
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.mode not in ("none", "allow", "open"):
            raise ValueError(f"{self.mode!r} is no mode of the network (write none, allow or open)")


def parse_folder(text: str, default: FolderMode, inside: str, flag: str = "--folder ") -> FolderRule:
    """`PATH` or `PATH:MODE`. A path that itself ends in `:ro` is written with its mode after it.

    UsageError, which names the `flag`, for what is none.
    """
    path, _, mode = text.rpartition(":")
    chosen = _MODES.get(mode, default)
    if mode not in _MODES:
        if path and "\0" not in text and os.path.isdir(Path(path).expanduser()) and not os.path.lexists(text):
            raise UsageError(f"{flag}{text!r}: there is no mode {mode!r}", "the modes are ro, overlay and rw")
        path = text
    if not path or "\0" in path:
        raise UsageError(f"{flag}{text!r} names no folder", "write PATH or PATH:ro")
    return FolderRule(host=str(Path(path).expanduser().absolute()), mode=chosen, inside=inside)


def is_loopback(host: str) -> bool:
    """Whether a name or an address, in brackets or not, is this machine's for itself."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def parse_network(text: str) -> Network:
    """ValueError for what is neither `none`, `open` nor `allow=HOST[:PORT],...`."""
    if text in ("none", "open"):
        return Network(mode="open" if text == "open" else "none")
    kind, _, hosts = text.partition("=")
    names = tuple(name.strip() for name in hosts.split(",") if name.strip())
    if kind != "allow" or not names:
        raise ValueError(f"{text!r} is not understood (write none, open, or allow=HOST[:PORT],...)")
    return Network(mode="allow", hosts=names)


def parse_memory(text: str) -> int:
    """Bytes, 0 for no limit. ValueError for no size, and for one that nothing works in."""
    size = parse_size(text)
    if 0 < size < LEAST_MEMORY:
        raise ValueError(f"{text} is {size} bytes: at least {LEAST_MEMORY // MIB}M (write 512M or 2G; 0 is no limit)")
    return size


def file_limit(disk_bytes: int) -> int:
    """How many files may be made under a limit of bytes: one for each 4 KiB; at least 1024."""
    return max(disk_bytes // (4 * KIB), KIB)


def margin(disk_bytes: int) -> int:
    """Bytes beyond a limit at which a sandbox is ended, not only what runs in it: a quarter, at least 64 MiB. Beyond as
    many files as `file_limit` has for them, too.
    """
    return max(disk_bytes // 4, 64 * MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds that the operating system holds. 0 means unlimited.

    `memory_bytes` is the total of the sandbox where a cgroup can be made, and the bound of each process always.
    `disk_bytes` bounds /tmp and /dev/shm together, and the written folders together; the latter are watched.
    `file_bytes` bounds each file, by the kernel; `--disk` sets it to half of `disk_bytes`.
    `cpus` is how many processors' time all of it has together; refused where no control group holds it.
    `output_bytes` is what one command may add to the conversation; the rest is cut from the middle.
    """

    __pydantic_config__ = STRICT

    memory_bytes: int = 2 * GIB
    cpus: float = 0.0
    processes: int = 256
    open_files: int = 1024
    file_bytes: int = 1 * GIB
    disk_bytes: int = 2 * GIB
    command_timeout_s: float = 60.0
    output_bytes: int = 16 * KIB

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < (least := LEAST_OUTPUT if name == "output_bytes" else 0):
                raise ValueError(f"{name} must be at least {least}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything a sandbox must hold. The first folder is the working folder."""

    __pydantic_config__ = STRICT

    folders: tuple[FolderRule, ...] = ()
    copies: tuple[CopyRule, ...] = ()
    network: Network = Network()
    limits: Limits = Limits()
    environment: dict[str, str] = field(default_factory=dict)
    rootfs: str | None = None
    streams: Streams = "one"
    """What a command of the shell writes. `one`: standard output and error in the exact order of writing, told as
    stdout. `separate`: told apart, and the order between the two is approximate.
    """

    system: tuple[str, ...] = ()
    """Folders of the host with what installed tools added to the system, the lowest first; only read."""

    lent: tuple[FolderRule, ...] = ()
    """Folders of the host that tools need in order to run, and not the bot's; only read. With the mode `overlay`, where
    the sandbox can, they are written to as well, in memory: nobody ever sees that.
    """

    links: dict[str, str] = field(default_factory=dict)
    """Symbolic links inside, each path to its target: programs of the user's name a folder as the host does."""

    root: bool = False
    """Programs may be started as root of the sandbox, which is nobody on this machine, or as a user of its /etc/passwd:
    `Sandbox.exec(user=)`. What the bot's shell runs stays without any right.
    """

    ports: tuple[int, ...] = ()
    """Of the sandbox's 127.0.0.1, which may be reached from this machine's: `Sandbox.forward`."""

    @property
    def workdir(self) -> str:
        return self.folders[0].inside if self.folders else WORKSPACE


MAX_OUTPUT = 1 << 20


def policy_of(folder: str | Path | None, net: Sequence[str]) -> Policy:
    """`folder`: PATH, PATH:ro, PATH:overlay or PATH:rw. `net`: names (HOST or HOST:PORT), or `open` alone.

    UsageError for what is none of that. A command's output is bounded at MAX_OUTPUT.
    """
    if isinstance(net, str):
        raise UsageError(f"net={net!r} is one text", f"give a list: net=[{net!r}]")
    if "open" in net and len(net) > 1:
        raise UsageError("net=['open', ...] names others too", "open is every public name: give it alone")
    network = Network(mode="open") if "open" in net else Network(mode="allow" if net else "none", hosts=tuple(net))
    rules = () if folder is None else (parse_folder(str(folder), "overlay", WORKSPACE, "folder="),)
    return Policy(folders=rules, network=network, limits=Limits(output_bytes=MAX_OUTPUT))
