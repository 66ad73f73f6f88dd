"""What a sandbox sees beside the folders: a read-only system, a synthetic /etc, private scratch, a masked /proc.

Pure functions to arguments of bubblewrap. Everything writable here lies in one tmpfs of the launcher's, whose size
bounds /tmp, /var/tmp, /run, /dev/shm and the home together.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath

from stockade_sandbox.backends.host_info import HostFacts
from stockade_sandbox.errors import UsageError
from stockade_sandbox.launcher.launch import OWN, Operations
from stockade_sandbox.policy import MIB, PROXY_PORT, Limits, Network, Policy, file_limit

INSIDE_UID = INSIDE_GID = 1000
HOME = "/home/agent"


SCRATCH = {
    "tmp": "/tmp",
    "home": HOME,
    "var-tmp": "/var/tmp",
    "run": "/run",
    "shm": "/dev/shm",
    "workspace": "/workspace",
}
"""Directories of the scratch tmpfs and where they are seen; the last only when no folder is mounted there."""

DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "core": "/proc/kcore",
    "ptmx": "pts/ptmx",
}
"""Of /dev, beside the devices."""

_SCRATCH_FILES = 1 << 18
LAYERED_USR, VAR_LIB = "layered-usr", "var-lib"
"""Of the stage: the host's /usr with what installed tools added; what is shown of /var/lib."""

_RESERVED = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc", "/sys", "/dev", "/boot", OWN,
)  # fmt: skip

PROGRAMS = {"python": "/usr/bin/python3"}
"""Links in OWN/bin, which is last on the PATH: models of every size type names that not every system has."""

STANDARD_ENVIRONMENT = {
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "PATH": f"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{OWN}/bin",
    "TERM": "dumb",
    "USER": "agent",
}


_ROOT_MAY = "".join(f"{kind} sufficient pam_rootok.so\n" for kind in ("auth", "account", "password", "session"))


def etc_files(uid: int = INSIDE_UID, gid: int = INSIDE_GID, *, root: bool = False) -> dict[str, str]:
    """Of /etc, for the sandbox's user and group. Synthetic: the host's tell who uses it, and where it is. With `root`
    what programs for users and groups want besides.
    """
    shell_of_root = "/bin/bash" if root else "/usr/sbin/nologin"
    return {
        "passwd": (
            f"root:x:0:0:root:/root:{shell_of_root}\n"
            f"agent:x:{uid}:{gid}:agent:{HOME}:/bin/bash\n"
            "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        ),
        "group": f"root:x:0:\nagent:x:{gid}:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost\n",
        "hostname": "sandbox\n",
        "resolv.conf": "nameserver 127.0.0.1\noptions use-vc\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        **({"pam.d/other": _ROOT_MAY} if root else {}),
    }


def scratch_bytes(limits: Limits) -> int:
    """Size of the scratch tmpfs; 0 for the kernel's default. It is memory, so at most half of the memory limit."""
    bounds = [bound for bound in (limits.disk_bytes, limits.memory_bytes // 2) if bound]
    return max(min(bounds), MIB) if bounds else 0


def add_scratch(ops: Operations, stage: str, limits: Limits, uid: int, gid: int, root: int | None = None) -> None:
    """The launcher's operations that make the scratch tmpfs, below a stage. Where the sandbox has a `root`, it has a
    home, and more users may get theirs.
    """
    size = scratch_bytes(limits)
    files = min(file_limit(size), _SCRATCH_FILES) if size else _SCRATCH_FILES
    ops.add("dir", f"{stage}/scratch", 755, uid, gid)
    ops.add("tmpfs", f"{stage}/scratch", f"{f'size={size},' if size else ''}nr_inodes={files},mode=755")
    for name in SCRATCH:
        ops.add("dir", f"{stage}/scratch/{name}", 1777 if name in ("tmp", "var-tmp", "shm") else 700, uid, gid)
    if root is not None:
        ops.add("dir", f"{stage}/scratch/homes", 755, root, root)
        ops.add("dir", f"{stage}/scratch/homes/{PurePosixPath(HOME).name}", 700, uid, gid)
        ops.add("dir", f"{stage}/scratch/root", 700, root, root)


def check_inside(path: str) -> str:
    """A path a folder or copy may be mounted at, normalised. UsageError for one that belongs to the system."""
    clean = str(PurePosixPath(path))
    if "\0" in clean or not clean.startswith("/") or ".." in PurePosixPath(clean).parts:
        raise UsageError(f"not a path for the inside of a sandbox: {path!r}", "give an absolute path without '..'")
    taken = clean in ("/", "/home", "/run", "/tmp", "/var", "/var/tmp", HOME)
    if taken or any(clean == system or clean.startswith(system + "/") for system in _RESERVED):
        raise UsageError(f"nothing can be mounted at {clean} in a sandbox", "choose a path like /workspace or /data")
    return clean


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Exactly what a command finds. UsageError for a name or value that cannot be one."""
    for name, value in given.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise UsageError(f"not an environment variable: {name!r}", "write NAME=VALUE")
    return {**STANDARD_ENVIRONMENT, **given}


OFFLINE = {"CARGO_NET_RETRY": "0", "PIP_RETRIES": "0", "UV_HTTP_RETRIES": "0", "npm_config_fetch_retries": "0"}
"""Without a network nobody gains by asking again: npm does for longer than a command may take, so that it never says
why it fails, the others for ten seconds.
"""


def network_variables(network: Network) -> dict[str, str]:
    """The way out, as curl, git, pip, npm and Python read it, or that there is none. curl wants `http_proxy` in lower
    case (a CGI header sets HTTP_*).
    """
    if network.mode == "none":
        return OFFLINE
    proxy, local = f"http://127.0.0.1:{PROXY_PORT}", "localhost,127.0.0.1,::1"
    return {"http_proxy": proxy, "https_proxy": proxy, "HTTPS_PROXY": proxy, "no_proxy": local, "NO_PROXY": local}


def guarantee(network: Network) -> str:
    if network.mode == "none":
        return "no network interface but an empty loopback"
    names = "every public name, ports 80 and 443" if network.mode == "open" else ", ".join(network.hosts)
    return f"no network interface but loopback; TCP by name through the host's proxy only: {names}"


def _system(policy: Policy, host: HostFacts, *, building: bool) -> list[str]:
    """With installed tools /usr is the host's under their layers; /opt and /var are those of the last layer."""
    source = "/root" if policy.rootfs else ""
    layered = bool(policy.system) or building
    args: list[str] = []
    for entry in host.top:
        if entry.target is not None:
            args += ["--symlink", entry.target, f"/{entry.name}"]
        elif layered and entry.name == "usr":
            args += ["--bind" if building else "--ro-bind", f"/{LAYERED_USR}", "/usr"]
        else:
            args += ["--ro-bind", f"{source}/{entry.name}", f"/{entry.name}"]
    if building:
        return [*args, "--bind", "/build/opt", "/opt", "--bind", "/build/var", "/var"]
    if layered:
        for name in ("opt", "var/lib", "var/cache"):
            args += ["--ro-bind", f"/system-{len(policy.system) - 1}/{name}", f"/{name}"]
    elif host.var_lib:
        args += ["--ro-bind", f"/{VAR_LIB}", "/var/lib"]
    return args


def _kernel(host: HostFacts) -> list[str]:
    args = ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
    for name in host.proc_masked:
        args += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    return [*args, *(["--dev-bind", "/dev", "/dev"] if host.root else ["--dev", "/dev"])]


def _scratch(policy: Policy, host: HostFacts, folders: tuple[str, ...]) -> list[str]:
    args: list[str] = []
    homes = {"homes": "/home", "root": "/root"}
    for name, inside in ({**SCRATCH, **homes} if policy.root else SCRATCH).items():
        if policy.root and name == "home":
            continue
        made = (inside == "/var/tmp" and not host.var_tmp) or (inside == "/dev/shm" and host.root)
        if inside not in folders and not made:
            args += ["--bind", f"/scratch/{name}", inside]
    return args if host.root else [*args, "--remount-ro", "/dev"]


def _etc(policy: Policy, *, building: bool) -> list[str]:
    if building:
        return ["--bind", "/build/etc", "/etc"]
    if policy.system:
        return ["--ro-bind", f"/system-{len(policy.system) - 1}/etc", "/etc"]
    return [] if policy.rootfs else ["--bind" if policy.root else "--ro-bind", "/etc", "/etc"]


def view(policy: Policy, host: HostFacts, folders: tuple[str, ...], *, building: bool = False) -> list[str]:
    """The arguments for all of it; `folders` are the paths that folders will be mounted at.

    `building`: the system can be written to, in a layer that is being made (building.py).
    /etc comes late, as bubblewrap reads all mounts anew for each one it makes, and that folder has many.
    """
    etc = _etc(policy, building=building)
    links = [word for name, target in PROGRAMS.items() for word in ("--symlink", target, f"{OWN}/bin/{name}")]
    return [*_system(policy, host, building=building), *links, *_kernel(host), *_scratch(policy, host, folders), *etc]


def image_view(host: HostFacts, folders: tuple[str, ...]) -> list[str]:
    """The same where all of the root file system can be written to: an image's."""
    shm = ["--bind", "/scratch/shm", "/dev/shm"] if not host.root and "/dev/shm" not in folders else []
    return ["--bind", "/root", "/", *_kernel(host), *shm, *([] if host.root else ["--remount-ro", "/dev"])]
