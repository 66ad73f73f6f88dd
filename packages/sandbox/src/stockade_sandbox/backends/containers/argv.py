"""From policy, layers and facts to the command line of `docker run` or `podman run`. Pure functions.

Inside is what bubblewrap shows too: the host's /usr read-only over an empty image, or the image's own files; a
synthetic /etc where the host's is used; the folders; scratch in memory. The agent is process one, on the client's
standard input and output.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stockade_sandbox.backends.bubblewrap.argv import inside_paths
from stockade_sandbox.backends.containers.engines import Engine
from stockade_sandbox.backends.host_info import PROC_MASKED, HostFacts
from stockade_sandbox.backends.layers import no_tools_here
from stockade_sandbox.backends.rootfs import (
    LAYERED_USR,
    SCRATCH,
    environment,
    etc_files,
    network_variables,
    scratch_bytes,
)
from stockade_sandbox.errors import UsageError
from stockade_sandbox.launcher.launch import OWN, in_a_container
from stockade_sandbox.policy import MIB, Policy
from stockade_sandbox.results import FolderLayer

ETC = tuple(etc_files())
_SHARES = {"tmp": 4, "home": 4, "workspace": 4, "var-tmp": 2, "run": 1, "shm": 1}
"""How scratch is divided, in sixteenths, where it cannot be one file system."""
SPARE_PROCESSES = 8
"""The agent and its frozen shell never meet the limit of those they watch."""
_SPARE_THREADS = 2048
"""Of a runtime with a kernel of its own (gVisor), whose threads count, and which dies when it cannot have them."""
_OPEN_FILES = 1024
"""What runtimes need to start a container; a smaller limit is the agent's to hold."""
_PODMAN_PROCESSES = 4096
"""Podman asks for a million unless told, which only CAP_SYS_RESOURCE may have; pids and the agent's limit bound."""

ENTER = r"""
while IFS= read -r -d '' pair; do given+=("$pair"); done </.stockade/environment
for name in $(compgen -e); do unset "$name" 2>/dev/null; done
export "${given[@]}"
exec "$@"
"""
"""Engines add the image's variables and their client's proxy settings: what is not in our file is taken away."""


@dataclass(frozen=True)
class Bind:
    """A path of the host, seen at `target`. `whole`: with the mounts below it."""

    source: str
    target: str
    writable: bool = False
    whole: bool = True


@dataclass(frozen=True)
class Scratch:
    """An empty file system in memory, made by the engine; `size` in bytes, 0 for its default."""

    target: str
    size: int
    mode: int


@dataclass(frozen=True)
class Launched:
    """What only this run has: its `name`, the host's `stage` (root only), the folder with the agent, copies, image."""

    name: str
    own: str
    image: str
    uid: int
    gid: int
    stage: str | None = None
    copies: tuple[str, ...] = ()
    host: HostFacts | None = None
    runtime: str | None = None


def system_binds(policy: Policy, launched: Launched) -> list[Bind]:
    """The host's /usr and the harmless parts of its /etc; with installed tools, what their layers make of them.

    PolicyNotEnforceable for tools without a stage.
    """
    host = launched.host
    if policy.system and (host is None or launched.stage is None):
        raise no_tools_here()
    if host is None:
        return []
    places = {f"/{entry.name}": f"/{entry.name}" for entry in host.top if entry.target is None}
    if policy.system:
        top = f"{launched.stage}/system-{len(policy.system) - 1}"
        places["/usr"] = f"{launched.stage}/{LAYERED_USR}"
        places |= {f"/{name}": f"{top}/{name}" for name in ("etc", "opt", "var/lib", "var/cache")}
    else:
        shown = (*(f"/etc/{name}" for name in host.etc), *(f"/var/lib/{name}" for name in host.var_lib))
        places |= dict(zip(shown, shown, strict=True))
    return [Bind(source, inside, whole=False) for inside, source in places.items()]


def folder_binds(policy: Policy, layers: Sequence[FolderLayer], launched: Launched) -> list[Bind]:
    """The layers and copies. Without a stage, a read-only folder is bound without the mounts below it: engines up to
    Docker 25 leave those writable."""
    paths, binds = inside_paths(policy, layers), []
    for number, layer in enumerate(layers):
        source = f"{launched.stage}/folder-{number}" if launched.stage else layer.source
        whole = bool(launched.stage) or layer.mode == "rw"
        binds.append(Bind(source, paths[number], writable=layer.mode != "ro", whole=whole))
    for number, copy in enumerate(launched.copies):
        source = f"{launched.stage}/copy-{number}" if launched.stage else copy
        binds.append(Bind(source, paths[len(layers) + number], writable=True, whole=False))
    return binds


def scratch(policy: Policy, taken: Sequence[str], stage: str | None) -> tuple[list[Bind], list[Scratch]]:
    """Scratch as binds of one bounded file system on the stage, else as several that together keep the bound."""
    wanted = {name: inside for name, inside in SCRATCH.items() if inside not in taken}
    if stage:
        return [Bind(f"{stage}/scratch/{name}", inside, writable=True) for name, inside in wanted.items()], []
    total, shares = scratch_bytes(policy.limits), sum(_SHARES[name] for name in wanted)
    return [], [
        Scratch(
            inside,
            total * _SHARES[name] // shares // 4096 * 4096,
            0o1777 if name in ("tmp", "var-tmp", "shm") else 0o700,
        )
        for name, inside in wanted.items()
    ]


def variables(policy: Policy) -> dict[str, str]:
    """Exactly what a command finds, where the proxy is included."""
    return environment({**network_variables(policy.network), **policy.environment})


def environment_file(variables: Mapping[str, str]) -> bytes:
    """What ENTER reads. UsageError for a name that no shell can export."""
    for name in variables:
        if not name.isidentifier() or not name.isascii():
            raise UsageError(f"a container's shell cannot export the variable {name!r}", "use letters, digits and _")
    return b"".join(f"{name}={value}\0".encode() for name, value in variables.items())


def _mount(bind: Bind, engine: Engine) -> list[str]:
    for path in (bind.source, bind.target):
        if any(char in path for char in ',"\n\r'):
            raise UsageError(f"{engine.name} cannot mount {path!r}: it has a comma, a quote or a line end", "rename it")
    words = ["type=bind", f"source={bind.source}", f"target={bind.target}"]
    if not bind.writable:
        words.append("readonly")
    if not bind.whole:
        words.append("bind-nonrecursive=true" if engine.name == "docker" else "bind-nonrecursive")
    return ["--mount", ",".join(words)]


def _tmpfs(one: Scratch, engine: Engine, uid: int, gid: int) -> list[str]:
    """Podman knows no owner of them: there they are everybody's, who are nobody but the sandbox's user."""
    owner = f"mode={one.mode:o},uid={uid},gid={gid}" if engine.name == "docker" else "mode=1777"
    options = f"rw,nosuid,nodev,exec,{owner}"
    return ["--tmpfs", f"{one.target}:{options}{f',size={one.size}' if one.size else ''}"]


def _masked(engine: Engine) -> list[str]:
    """The machine is not to be seen. Docker's client has no word for files of /proc: known_limits of the attacks."""
    if engine.name == "podman":
        return ["--security-opt", "mask=" + ":".join(["/sys", *(f"/proc/{name}" for name in PROC_MASKED)])]
    return ["--tmpfs", "/sys:ro,nosuid,nodev,noexec,mode=555,size=4k"]


def _hardening(policy: Policy, engine: Engine, launched: Launched) -> list[str]:
    limits = policy.limits
    args = ["--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    if policy.network.mode != "none" and not launched.runtime:
        args += ["--sysctl", "net.ipv4.ip_unprivileged_port_start=0"]
    args += ["--read-only", "--ipc", "none", "--pull", "never"]
    args += [
        "--hostname",
        "sandbox",
        "--log-driver",
        "none",
        "--no-healthcheck",
        "--sig-proxy=false",
        "--stop-timeout=0",
    ]
    args += ["--user", f"{launched.uid}:{launched.gid}", *_masked(engine)]
    if engine.private_cgroups:
        args += ["--cgroupns", "private"]
    if limits.cpus:
        args += ["--cpus", f"{max(limits.cpus, 0.01):.2f}"]
    if limits.memory_bytes:
        args += [
            "--memory",
            str(max(limits.memory_bytes, 8 * MIB)),
            "--memory-swap",
            str(max(limits.memory_bytes, 8 * MIB)),
        ]
    spare = _SPARE_THREADS if launched.runtime else SPARE_PROCESSES
    args += ["--pids-limit", str(limits.processes + spare if limits.processes else -1)]
    files = min(max(limits.open_files, _OPEN_FILES) if limits.open_files else engine.open_files, engine.open_files)
    args += ["--ulimit", f"nofile={files}:{files}", "--ulimit", "core=0:0"]
    if engine.name == "podman":
        processes = min(max(limits.processes, _PODMAN_PROCESSES), engine.processes)
        args += ["--ulimit", f"nproc={processes}:{processes}", "--http-proxy=false", "--no-hosts"]
        args += ["--systemd=false", "--unsetenv-all", "--image-volume=ignore", "--passwd=false"]
        if not engine.root:
            args += ["--userns", "keep-id"]
    return args


def container_argv(policy: Policy, layers: Sequence[FolderLayer], engine: Engine, launched: Launched) -> list[str]:
    """The client's command line."""
    taken = inside_paths(policy, layers)
    binds = system_binds(policy, launched)
    binds += [Bind(f"{launched.own}/etc/{name}", f"/etc/{name}", whole=False) for name in ETC]
    binds.append(Bind(launched.own, OWN, whole=False))
    kept, made = scratch(policy, taken, launched.stage)
    binds += [*kept, *folder_binds(policy, layers, launched)]
    argv = [*engine.command, "run", "--rm", "--interactive", "--name", launched.name]
    argv += ["--label", f"stockade={launched.name}", *_hardening(policy, engine, launched)]
    if launched.runtime:
        argv += ["--runtime", launched.runtime]
    for bind in binds:
        argv += _mount(bind, engine)
    for one in made:
        argv += _tmpfs(one, engine, launched.uid, launched.gid)
    argv += ["--workdir", "/", "--entrypoint", "/bin/bash"]
    return [*argv, launched.image, "--norc", "--noprofile", "-p", "-c", ENTER, "sandbox", *in_a_container()]
