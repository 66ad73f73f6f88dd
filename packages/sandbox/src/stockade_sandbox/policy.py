"""What a bot may touch: plain data with safe defaults. A sandbox backend turns it into a command line."""

import hashlib
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from os.path import expanduser
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

from stockade_sandbox.errors import UsageError

FolderMode = Literal["ro", "overlay", "rw"]
Streams = Literal["one", "separate"]
_NAMES_A_HOST = re.compile(r"[.:]|^@")
_PRESET = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
PRESETS = Path(__file__).parent / "egress" / "networks"
_MODES: dict[str, FolderMode] = {"ro": "ro", "overlay": "overlay", "rw": "rw"}
WORKSPACE = "/workspace"
OURS = "stockade"
"""The name in the root inside of a folder with files of Stockade's own."""
STRICT = {"extra": "forbid"}
"""The setting of pydantic, which need not be there, for a value that stands in a record: unknown fields are refused."""

KIB, MIB, GIB = 1024, 1024**2, 1024**3
LEAST_OUTPUT = 256
_MOST = 2**62
LEAST_MEMORY, LEAST_PROCESSES = 8 * MIB, 8
"""A sandbox of bubblewrap starts with less, but a pipe of programs or Python does not: 6 MiB and 8, tried 2026-11."""
PROXY_PORT = 3128
"""Of 127.0.0.1 inside a sandbox with a network: where its proxy is reached."""
TLS_PORT = 443
CREDENTIAL_BASE = "/credential/"
"""Where a path begins that is asked of the proxy itself, by a program with a base URL: /credential/HOST[:PORT]/..."""
_CREDENTIAL = re.compile(
    r"(?P<name>[A-Za-z_]\w*)(?:=(?P<source>(?:file|exec):.+))?@(?P<host>[^@:\s]+(?::\d+)?)(?::(?P<header>[^@:/\s]+))?",
    re.ASCII | re.DOTALL,
)
_CREDENTIAL_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})(?::[1-9]\d{0,4})?")
_SSH_ACCOUNT = re.compile(
    r"(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})@(?P<host>(?=.*[A-Za-z])[A-Za-z0-9][A-Za-z0-9_.-]{0,252})(?::(?P<port>[1-9]\d{0,4}))?",
    re.ASCII,
)
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_NO_KEYS = frozenset(
    {"connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"}
)
_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?$", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of `512M`, `2GiB`, `1000`; units are powers of 1024. ValueError when it is not a size."""
    found = _SIZE.match(text.strip())
    if not found:
        raise ValueError(f"not a size: {text!r} (write 512M or 2G)")
    size = float(found[1]) * 1024 ** ("kmgt".index(found[2].lower()) + 1 if found[2] else 0)
    if size > _MOST:
        raise ValueError(f"{text[:30]!r} is more than any machine has")
    if 0 < size < 1:
        raise ValueError(f"{text!r} is less than a byte (write 512M or 2G)")
    return int(size)


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
    """`none`: no way out. By the egress proxy: `allow` for `hosts` (egress/rules.py), `open` for public names."""

    __pydantic_config__ = STRICT

    mode: Literal["none", "allow", "open"] = "none"
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.mode not in ("none", "allow", "open"):
            raise ValueError(f"{self.mode!r} is no mode of the network (write none, allow or open)")


_OF_GITHUB = ("GH_TOKEN", "GITHUB_TOKEN", "COPILOT_GITHUB_TOKEN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A secret that never enters. Inside, the variable `name` holds `sentinel`; the proxy puts the value in where that
    stands in a header of a request to `host` (HOST or HOST:PORT, by TLS; port 443 by default), and nowhere else.

    `header`: one that every request there has with the value, whether the sentinel stands in it or not. `source`: where
    the value comes from; empty is the variable of that name here, else `file:PATH` or `exec:COMMAND` (for sh).
    """

    __pydantic_config__ = STRICT

    name: str
    host: str
    header: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if not (self.name.isascii() and self.name.isidentifier()):
            raise ValueError(f"{self.name!r} is not the name of a variable (letters, digits and _)")
        if not _CREDENTIAL_HOST.fullmatch(self.host):
            raise ValueError(f"{self.host!r} is no host of a credential (write HOST or HOST:PORT, one name)")
        if self.header and (not _HEADER.fullmatch(self.header) or self.header.lower() in _NO_KEYS):
            raise ValueError(f"{self.header!r} is no header that a key can stand in (write one like x-api-key)")
        if self.source and not re.fullmatch("(?:file|exec):.+", self.source, re.DOTALL):
            raise ValueError(f"{self.source!r} is no source of a value (write file:PATH or exec:COMMAND)")

    @property
    def authority(self) -> str:
        """HOST:PORT in lower case."""
        name, _, port = self.host.lower().partition(":")
        return f"{name.removesuffix('.')}:{port or TLS_PORT}"

    @property
    def sentinel(self) -> str:
        """What stands for the value inside: the same in every sandbox, worth nothing. Of GitHub's tokens it has
        the form, at which programs look before they send one.
        """
        form = "github_pat_" if self.name in _OF_GITHUB else ""
        return f"{form}stockade-{self.name}-{hashlib.sha256(self.name.encode()).hexdigest()[:24]}"


def parse_credential(text: str) -> Credential:
    """`NAME@HOST[:PORT][:HEADER]`; `NAME=file:PATH@...` or `NAME=exec:COMMAND@...` where the value is not in this
    environment. ValueError for what is none.
    """
    found = _CREDENTIAL.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not understood (write NAME@HOST or NAME@HOST:HEADER)")
    return Credential(**{name: value or "" for name, value in found.groupdict().items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class SshAccount:
    """An account of a host that the user's ssh-agent may be used to log in to; `host` in lower case."""

    __pydantic_config__ = STRICT

    user: str
    host: str
    port: int = 22

    def __post_init__(self) -> None:
        if not _SSH_ACCOUNT.fullmatch(str(self)) or self.port > 65535:
            raise ValueError(f"{str(self)!r} is no account of a host (write USER@HOST or USER@HOST:PORT)")

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}"

    @property
    def known_as(self) -> str:
        """In known_hosts."""
        return self.host if self.port == 22 else f"[{self.host}]:{self.port}"


def parse_ssh_account(text: str) -> SshAccount:
    """`USER@HOST[:PORT]`, HOST being a name. ValueError for what is none."""
    if not (found := _SSH_ACCOUNT.fullmatch(text)):
        raise ValueError(f"{text!r} is no account of a host (write USER@HOST or USER@HOST:PORT)")
    return SshAccount(user=found["user"], host=found["host"].lower(), port=int(found["port"] or 22))


def parse_folder(text: str, default: FolderMode, inside: str, flag: str = "--folder ") -> FolderRule:
    """`PATH` or `PATH:MODE`. A path that itself ends in `:ro` is written with its mode after it.

    UsageError, which names the `flag`, for what is none.
    """
    path, _, mode = text.rpartition(":")
    chosen = _MODES.get(mode, default)
    if mode not in _MODES:
        if path and "\0" not in text and os.path.isdir(expanduser(path)) and not os.path.lexists(text):
            raise UsageError(f"{flag}{text!r}: there is no mode {mode!r}", "the modes are ro, overlay and rw")
        path = text
    if not path or "\0" in path:
        raise UsageError(f"{flag}{text!r} names no folder", "write PATH or PATH:ro")
    return FolderRule(host=str(Path(expanduser(path)).absolute()), mode=chosen, inside=inside)


def is_image_file(text: str | None) -> bool:
    """Whether a `Policy.rootfs` is an image that lies on this machine: `oci:DIR`, `docker-archive:FILE`."""
    return text is not None and text.startswith(("oci:", "docker-archive:"))


def is_image(text: str | None) -> bool:
    """Whether it is that, or one that is fetched by its digest: no folder, and no name that only an engine knows."""
    return is_image_file(text) or (text is not None and "@sha256:" in text)


def is_loopback(host: str) -> bool:
    """Whether a name or an address, in brackets or not, is this machine's for itself."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def preset_hosts(name: str) -> tuple[str, ...]:
    """What `@name` stands for: a line each of a file of the user's, or of ours. ValueError when there is none."""
    own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "stockade", "networks")
    for folder in (own, PRESETS):
        path = folder / f"{name}.txt"
        if _PRESET.fullmatch(name) and path.is_file():
            try:
                lines = [line.partition("#")[0].strip() for line in path.read_text().splitlines()]
            except (OSError, UnicodeError) as error:
                raise ValueError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
            return tuple(line for line in lines if line)
    known = sorted({f"@{path.stem}" for folder in (own, PRESETS) for path in folder.glob("*.txt")})
    raise ValueError(f"there is no preset @{name} (there are {', '.join(known)}; yours are files {own}/NAME.txt)")


def _hosts(names: Sequence[str]) -> tuple[str, ...]:
    """With what presets stand for, so that a record says what was allowed then."""
    return tuple(dict.fromkeys(
        host for name in names for host in (preset_hosts(name[1:]) if name.startswith("@") else (name,))
    ))  # fmt: skip


def parse_network(text: str) -> Network:
    """`none`, `open`, or `HOST[:PORT],@PRESET,CIDR,...`. ValueError for anything else, also for a name without a dot
    and a port: it is more likely a slip.
    """
    if text in ("none", "open"):
        return Network(mode="open" if text == "open" else "none")
    if text.startswith("allow="):
        raise ValueError(f"write the hosts alone: {text.removeprefix('allow=') or 'HOST[:PORT],...'}")
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    odd = next((name for name in names or (text,) if not _NAMES_A_HOST.search(name)), None)
    if odd is not None:
        raise ValueError(f"{odd!r} is not understood (write none, open, or HOST[:PORT],@PRESET,CIDR,...)")
    return Network(mode="allow", hosts=_hosts(names))


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

    `memory_bytes` is the total of the sandbox where a control group can be made, elsewhere the bound of each process.
    `disk_bytes` bounds /tmp and /dev/shm together, and the written folders together; the latter are watched.
    `file_bytes` bounds each file, by the kernel; `--disk` sets it to half of `disk_bytes`. The shell's notes of what
    it exports are files too: below some kilobytes it does not start.
    `cpus` is how many processors' time all of it has together; refused where no control group holds it.
    `command_timeout_s` is the time of a command or program that asks for none, `longest_command_s` the most that one
    may ask for.
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
    longest_command_s: float = 600.0
    output_bytes: int = 16 * KIB

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not (least := LEAST_OUTPUT if name == "output_bytes" else 0) <= getattr(self, name) <= _MOST:
                raise ValueError(f"{name} must be at least {least}, and at most 2 ** 62")

    @property
    def most_seconds(self) -> float:
        """That a command gets when it asks for more than any."""
        both = self.command_timeout_s, self.longest_command_s
        return max(both) if all(both) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything a sandbox must hold. The first folder of the user's is the working folder."""

    __pydantic_config__ = STRICT

    folders: tuple[FolderRule, ...] = ()
    copies: tuple[CopyRule, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    """Texts inside, each path to what it holds; no file of this machine. Left out where there is no sandbox."""

    network: Network = Network()
    limits: Limits = Limits()
    environment: dict[str, str] = field(default_factory=dict)
    rootfs: str | None = None
    """Instead of this machine's own system: a folder with a root file system, only read; an image, of which the sandbox
    has a copy on write (`oci:DIR`, `docker-archive:FILE`, `NAME@sha256:HEX`); or what an engine knows by that name.
    """

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

    credentials: tuple[Credential, ...] = ()
    """Secrets that the proxy puts in. Each one's host is on the network's list by that."""

    ssh_agent: tuple[SshAccount, ...] = ()
    """For which the user's ssh-agent signs. Each one's host is on the network's list by that."""

    authorities: tuple[str, ...] = ()
    """Certificates in PEM to trust beside this machine's: inside, and by the proxy towards the hosts of credentials."""

    def __post_init__(self) -> None:
        of_ssh = [f"{one.host}:{one.port}" for one in self.ssh_agent]
        added = (*(one.authority for one in self.credentials), *of_ssh)
        if added and self.network.mode != "open":
            hosts = dict.fromkeys((*self.network.hosts, *added))
            object.__setattr__(self, "network", Network(mode="allow", hosts=tuple(hosts)))

    @property
    def folder(self) -> FolderRule | None:
        """The working folder; what lies below OURS inside is none."""
        return next((rule for rule in self.folders if PurePosixPath(rule.inside).parts[1:2] != (OURS,)), None)

    @property
    def workdir(self) -> str:
        return self.folder.inside if self.folder is not None else WORKSPACE


MAX_OUTPUT = 1 << 20


def policy_of(folder: str | Path | None, net: Sequence[str], credentials: Sequence[str] = ()) -> Policy:
    """`folder`: PATH, PATH:ro, PATH:overlay or PATH:rw. `net`: as `--net` has it, or `open` alone.
    `credentials`: NAME@HOST[:HEADER].

    UsageError for what is none of that. A command's output is bounded at MAX_OUTPUT.
    """
    for name, given in (("net", net), ("credentials", credentials)):
        if isinstance(given, str):
            raise UsageError(f"{name}={given!r} is one text", f"give a list: {name}=[{given!r}]")
        if not isinstance(given, Sequence) or not all(isinstance(one, str) for one in given):
            raise UsageError(f"{name}={given!r} is no list of texts")
    if "open" in net and len(net) > 1:
        raise UsageError("net=['open', ...] names others too", "open is every public name: give it alone")
    try:
        hosts = _hosts(net)
    except ValueError as error:
        raise UsageError(f"net={net!r}: {error}") from None
    network = Network(mode="open") if "open" in net else Network(mode="allow" if net else "none", hosts=hosts)
    rules = () if folder is None else (parse_folder(str(folder), "overlay", WORKSPACE, "folder="),)
    try:
        keys = tuple(map(parse_credential, credentials))
    except ValueError as error:
        raise UsageError(f"credentials: {error}") from None
    return Policy(folders=rules, network=network, limits=Limits(output_bytes=MAX_OUTPUT), credentials=keys)


def own_places(policy: Policy) -> dict[str, str]:
    """The path on the host of each folder, to that inside: a link, where nothing else is, nor another link above."""
    hosts = {rule.host: rule.inside for rule in policy.folders if rule.host != rule.inside}
    inside = [*(rule.inside for rule in policy.folders), *(rule.inside for rule in policy.copies)]
    others = [f"{one}/" for one in inside]
    return {
        host: place
        for host, place in hosts.items()
        if not any(f"{host}/".startswith(one) or one.startswith(f"{host}/") for one in others)
        and not any(host.startswith(f"{one}/") for one in hosts)
    }
