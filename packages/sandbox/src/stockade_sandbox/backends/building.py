"""Making a layer over the system: a sandbox in which a package manager works as it does on a machine of its own.

Inside, the user is root by name only: no capability, changes of owner are said to be done and are not (seccomp.FAKED),
all other rules of the sandbox hold. What is written goes to a folder of the host, the layer:

    usr   over the host's /usr and over the layers below      etc, opt, var   whole, begun as copies of those below

The base of the first layer is what a sandbox shows of this machine, and the package manager's own records.
"""

import grp
import hashlib
import os
import pwd
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from stockade_sandbox import registry
from stockade_sandbox.backends.bubblewrap.argv import Build
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox
from stockade_sandbox.backends.feature_probe import can_idmap
from stockade_sandbox.backends.host_info import fresh_sandbox_uid, host_facts
from stockade_sandbox.backends.rootfs import INSIDE_GID, INSIDE_UID, etc_files
from stockade_sandbox.egress.inside import MakeServer, OnRequest
from stockade_sandbox.egress.proxy import Egress
from stockade_sandbox.egress.resolve import is_own
from stockade_sandbox.egress.rules import Address, Rules
from stockade_sandbox.errors import SandboxFailed
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.policy import GIB, Limits, Network, Policy

REGISTRIES = {"pypi": ("pypi.org", "files.pythonhosted.org"), "npm": ("registry.npmjs.org",)}
LIMITS = Limits(memory_bytes=4 * GIB, processes=512, file_bytes=4 * GIB, disk_bytes=8 * GIB, command_timeout_s=1800.0)
_ETC = ("adduser.conf", "apt/keyrings", "apt/preferences.d", "apt/trusted.gpg.d", "debconf.conf", "default/useradd",
        "deluser.conf", "dpkg/origins", "login.defs", "shells", "skel")  # fmt: skip
"""What package managers read beside what a sandbox is shown anyway."""
_VAR = ("cache/apt/archives/partial", "cache/debconf", "cache/ldconfig", "lib/apt/lists/partial", "lib/misc",
        "lib/systemd", "log/apt", "tmp")  # fmt: skip
_PRUNED = ("cache/apt", "cache/debconf", "lib/apt", "log", "tmp")
_SETTINGS = {
    "apt/apt.conf.d/00stockade": 'APT::Sandbox::User "root";\nAcquire::Languages "none";\nDpkg::Use-Pty "false";\n',
    "dpkg/dpkg.cfg.d/stockade": (
        "force-unsafe-io\nforce-confdef\nforce-confold\npath-exclude=/usr/share/man/*\n"
        "path-exclude=/usr/share/doc/*\npath-include=/usr/share/doc/*/copyright\n"
    ),
}
_DPKG_LEFT_OUT = shutil.ignore_patterns("*.md5sums", "*.symbols", "*.templates", "*-old", "statoverride")
_SET_ID = stat.S_ISUID | stat.S_ISGID


class SystemLayers:
    """Layers over this machine's system: begun, filled, finished and removed for tools/layers.py."""

    def base(self) -> str:
        """What is installed here; without Debian's records, when something was last added to the system's folders."""
        found = hashlib.sha256(Path("/etc/os-release").read_bytes() if Path("/etc/os-release").exists() else b"")
        records = Path("/var/lib/dpkg/status")
        if records.is_file():
            found.update(records.read_bytes())
        else:
            for name in ("bin", "sbin", "lib", "lib64", "libexec", "local/bin"):
                path = Path("/usr", name)
                found.update(f"{name} {path.stat().st_mtime_ns if path.exists() else 0}\n".encode())
        return found.hexdigest()

    def begin(self, folder: Path, below: Sequence[str], hosts: Sequence[str]) -> None:
        begin(folder, below, named_hosts(hosts))

    def sandbox(
        self, folder: Path, below: Sequence[str], hosts: Sequence[str], environment: Mapping[str, str], run_dir: Path
    ) -> BubblewrapSandbox:
        names = named_hosts(hosts)
        network = Network(mode="allow", hosts=names) if names else Network()
        policy = Policy(network=network, limits=LIMITS, environment=dict(environment), system=tuple(below))
        Rules.of(network)
        return BuildSandbox(policy, folder, run_dir, _egress)

    def index(self, hosts: Sequence[str]) -> str | None:
        return "apt-get update -qq" if "apt" in hosts and Path("/var/lib/dpkg/status").is_file() else None

    def finish(self, folder: Path) -> None:
        finish(folder)

    def remove(self, folder: Path) -> None:
        remove_if_there(folder)


def _egress(policy: Policy, on_request: OnRequest) -> Egress:
    """This machine's own package sources may have any address but that of the machine itself: a mirror in the house."""
    mirrors = {host.partition(":")[0] for host in apt_hosts()}

    def allow(host: str, address: Address) -> bool:
        return host in mirrors and not (address.is_loopback or address.is_link_local or is_own(address))

    return replace(Egress.of(policy, on_request), allow_private=allow)


class BuildSandbox(BubblewrapSandbox):
    """A sandbox that writes the layer `folder`, which `begin` made; only commands of a person's tool file run in it."""

    def __init__(self, policy: Policy, folder: Path, run_dir: Path, egress: MakeServer = registry.egress) -> None:
        super().__init__(policy, (), run_dir, egress)
        owner = (folder / "usr").stat().st_uid
        self._build = Build(str(folder), owner, _mapped(policy))


def _mapped(policy: Policy) -> bool:
    return all(can_idmap(Path(path)) is None for path in ("/usr", *policy.system))


def begin(folder: Path, below: Sequence[str], hosts: Sequence[str]) -> None:
    """The start of a layer over `below`, the lowest first. Blocks. SandboxFailed when it cannot be written.

    `hosts`: of the machine's package sources only those of these names are used.
    """
    try:
        _begin(folder, below, hosts)
    except (OSError, shutil.Error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SandboxFailed(f"a tool's layer cannot be begun in {folder}: {reason}", "free some space") from error


def _begin(folder: Path, below: Sequence[str], hosts: Sequence[str]) -> None:
    folder.mkdir(mode=0o700, parents=True)
    for name in ("usr", "work"):
        (folder / name).mkdir(mode=0o755)
    if below:
        for name in ("etc", "opt", "var"):
            shutil.copytree(Path(below[-1]) / name, folder / name, symlinks=True)
    else:
        (folder / "opt").mkdir()
        _base_etc(folder / "etc")
        _base_var(folder / "var")
    for name in _VAR:
        (folder / "var" / name).mkdir(parents=True, exist_ok=True)
    remove_if_there(folder / "etc/apt/sources.list.d")
    copy_apt_sources(folder / "etc/apt", hosts)
    if not _mapped(Policy(system=tuple(below))):
        _open_folders(folder / "usr", below)
    if (uid := fresh_sandbox_uid()) is not None:
        for path in [str(folder), *_entries(folder)]:
            os.chown(path, uid, uid, follow_symlinks=False)


def _entries(folder: Path) -> Iterator[str]:
    """All below, and of the parts themselves; no symlink is followed."""
    for where, folders, names in os.walk(folder):
        yield from (os.path.join(where, name) for name in [*folders, *names])


def _closed_to_others(folder: str, names: list[str]) -> set[str]:
    """What an ordinary user of this machine could not read, and what is no file at all: it is left out of copies."""
    closed = set()
    for name in names:
        found = os.lstat(os.path.join(folder, name))
        wanted = 0o005 if stat.S_ISDIR(found.st_mode) else 0o004
        kind = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) or stat.S_ISLNK(found.st_mode)
        if not kind or (found.st_mode & wanted != wanted and not stat.S_ISLNK(found.st_mode)):
            closed.add(name)
    return closed


def _copy(source: Path, target: Path) -> None:
    """A file or a folder that all may read, with its parents; nothing when there is none."""
    if not source.exists() or _closed_to_others(str(source.resolve().parent), [source.resolve().name]):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=_closed_to_others, dirs_exist_ok=True)
    else:
        shutil.copyfile(source, target)


def _base_etc(etc: Path) -> None:
    etc.mkdir()
    for name in (*host_facts().etc, *_ETC):
        _copy(Path("/etc", name), etc / name)
    for name, text in {**etc_files(), **_SETTINGS}.items():
        (etc / name).parent.mkdir(parents=True, exist_ok=True)
        (etc / name).write_text(text)
    _service_accounts(etc)


def _service_accounts(etc: Path) -> None:
    """By name what packages give files to; no account of a person."""
    for file, entries in (
        ("passwd", [(one.pw_name, f"{one.pw_uid}:{one.pw_gid}::/nonexistent:/usr/sbin/nologin") for one in
                    pwd.getpwall() if one.pw_uid < INSIDE_UID]),
        ("group", [(one.gr_name, f"{one.gr_gid}:") for one in grp.getgrall() if one.gr_gid < INSIDE_GID]),
    ):  # fmt: skip
        known = {line.partition(":")[0] for line in etc_files()[file].splitlines()}
        with (etc / file).open("a") as accounts:
            accounts.writelines(f"{name}:x:{rest}\n" for name, rest in entries if name not in known)


def _base_var(var: Path) -> None:
    """What is installed here, as far as Debian's package manager knows."""
    database = Path("/var/lib/dpkg")
    if database.is_dir():
        shutil.copytree(database, var / "lib/dpkg", symlinks=True, ignore=_left_out_of_dpkg, copy_function=shutil.copy)


def _left_out_of_dpkg(folder: str, names: list[str]) -> set[str]:
    return _closed_to_others(folder, names) | _DPKG_LEFT_OUT(folder, names)


def _open_folders(usr: Path, below: Sequence[str]) -> None:
    """The folders of the system again, as our own: an overlay shows their modes and owners, so files can be added."""
    for base in ("/usr", *(f"{layer}/usr" for layer in below)):
        for where, folders, _ in os.walk(base):
            inside = f"{usr}{where.removeprefix(base)}"
            for name in folders:
                if not os.path.islink(f"{where}/{name}"):
                    with suppress(FileExistsError):
                        os.mkdir(f"{inside}/{name}")


def remove_if_there(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink():
        remove_tree(folder)


def finish(folder: Path) -> None:
    """What was built, ready to be read by any sandbox: nobody's set-id files, owned by us, caches gone. Blocks.

    SandboxFailed when it cannot be.
    """
    try:
        _finish(folder)
    except OSError as error:
        raise SandboxFailed(f"a tool's layer cannot be finished in {folder}: {error.strerror}") from error
    except RecursionError:
        raise SandboxFailed("installing made folders that are nested too deep") from None


def _finish(folder: Path) -> None:
    remove_if_there(folder / "work")
    for name in _PRUNED:
        remove_if_there(folder / "var" / name)
    for where, folders, names, at in os.fwalk(folder, topdown=False, follow_symlinks=False):
        for name in names:
            _seal(name, at)
        inside = where.removeprefix(f"{folder}/")
        for name in folders:
            if not (inside.partition("/")[0] == "usr" and _removed_empty(inside, name, at)):
                _seal(name, at)
    for name in ("lib", "cache", "tmp"):
        (folder / "var" / name).mkdir(exist_ok=True)
    if os.geteuid() == 0:
        os.chown(folder, 0, 0)
    folder.chmod(0o755)


def _seal(name: str, at: int) -> None:
    """What is no file, folder, link or mark of the overlay's that something was removed is not kept."""
    found = os.stat(name, dir_fd=at, follow_symlinks=False)
    if stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode):
        os.unlink(name, dir_fd=at)
        return
    if os.geteuid() == 0:
        os.chown(name, 0, 0, dir_fd=at, follow_symlinks=False)
    if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode):
        runs = stat.S_ISDIR(found.st_mode) or found.st_mode & 0o111 or not found.st_mode & 0o777
        mode = stat.S_IMODE(found.st_mode) & ~_SET_ID | (0o755 if runs else 0o644)
        os.chmod(name, mode, dir_fd=at)


def _removed_empty(inside: str, name: str, at: int) -> bool:
    """Removes a folder with nothing new in it that the system has as well; whether it did."""
    if os.path.isdir(f"/{inside}/{name}"):
        with suppress(OSError):
            os.rmdir(name, dir_fd=at)
            return True
    return False


def named_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """With the registries that have a name, `apt` being wherever this machine's packages come from."""
    found: list[str] = []
    for host in hosts:
        found += apt_hosts() if host == "apt" else REGISTRIES.get(host, (host,))
    return tuple(dict.fromkeys(found))


def copy_apt_sources(apt: Path, hosts: Sequence[str], machine: Path = Path("/etc/apt")) -> None:
    """The machine's own, as far as they are on `hosts`; none with a password in its address."""
    target = apt / "sources.list.d"
    target.mkdir(parents=True)
    for path in _sources(machine):
        separator = "\n" if path.suffix == ".list" else "\n\n"
        blocks = path.read_text(errors="replace").split(separator)
        kept = [block for block in blocks if _only_of(block, hosts)]
        (target / path.name).write_text(separator.join(kept) + "\n")


def _addresses(block: str) -> list[SplitResult]:
    """Of package sources, in either of apt's forms; what is no address of a host is one of an empty name."""
    lines = [line for line in block.splitlines() if not line.lstrip().startswith("#")]
    found = []
    for word in (word for line in lines for word in line.split() if "://" in word or word.startswith("cdrom:")):
        try:
            found.append(urlsplit(word))
        except ValueError:
            found.append(urlsplit(""))
    return found


def _only_of(block: str, hosts: Sequence[str]) -> bool:
    names = {host.partition(":")[0] for host in hosts}
    found = _addresses(block)
    return bool(found) and all(address.hostname in names and "@" not in address.netloc for address in found)


def _sources(machine: Path) -> Iterator[Path]:
    for path in (machine / "sources.list", *sorted(machine.glob("sources.list.d/*"))):
        if path.suffix in (".list", ".sources") and path.is_file() and os.access(path, os.R_OK):
            yield path


def apt_hosts(machine: Path = Path("/etc/apt")) -> tuple[str, ...]:
    """The hosts, with their ports, that this machine's administrator has it fetch packages from."""
    found = set()
    for path in _sources(machine):
        for address in _addresses(path.read_text(errors="replace")):
            if address.hostname and "@" not in address.netloc:
                found.add(address.netloc.lower())
    return tuple(sorted(found))
