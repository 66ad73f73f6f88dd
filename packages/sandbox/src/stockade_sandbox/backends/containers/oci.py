"""From policy, layers and facts to an OCI bundle's config.json, for gVisor. Pure functions.

Format: the OCI runtime specification, config.md and config-linux.md. Inside is what the other backends show too, with
gVisor's own /proc, /dev and /sys.
"""

from collections.abc import Sequence
from typing import Any

from stockade_sandbox.backends.bubblewrap.argv import inside_paths
from stockade_sandbox.backends.containers.argv import (
    ETC,
    SPARE_PROCESSES,
    Bind,
    Launched,
    folder_binds,
    scratch,
    system_binds,
    variables,
)
from stockade_sandbox.launcher.launch import CAPABILITIES, OWN, in_gvisor
from stockade_sandbox.policy import Policy
from stockade_sandbox.results import FolderLayer

Json = dict[str, Any]


def binds(policy: Policy, layers: Sequence[FolderLayer], launched: Launched) -> list[Bind]:
    """All that is mounted from the host, outer places first."""
    kept, _ = scratch(policy, inside_paths(policy, layers), launched.stage)
    found = system_binds(policy, launched)
    found += [Bind(f"{launched.own}/etc/{name}", f"/etc/{name}") for name in ETC]
    found += [Bind(launched.own, OWN), *kept, *folder_binds(policy, layers, launched)]
    return sorted(found, key=lambda bind: bind.target.count("/"))


def _mount(bind: Bind) -> Json:
    options = ["rbind" if bind.whole else "bind", "rw" if bind.writable else "ro", "nosuid", "nodev"]
    return {"destination": bind.target, "type": "bind", "source": bind.source, "options": options}


def _process(policy: Policy, launched: Launched) -> Json:
    held, none = list(CAPABILITIES), list[str]()
    processes = policy.limits.processes + SPARE_PROCESSES if policy.limits.processes else 0
    return {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "args": in_gvisor(launched.uid, launched.gid, processes),
        "env": [f"{name}={value}" for name, value in variables(policy).items()],
        "cwd": "/",
        "noNewPrivileges": True,
        "capabilities": {
            **dict.fromkeys(("bounding", "effective", "permitted"), held),
            **dict.fromkeys(("inheritable", "ambient"), none),
        },
    }


def bundle_config(policy: Policy, layers: Sequence[FolderLayer], launched: Launched, root: str) -> Json:
    """config.json of a sandbox whose root file system is the host's directory `root`."""
    resources: Json = {}
    if policy.limits.memory_bytes:
        memory = policy.limits.memory_bytes
        resources["memory"] = {"limit": memory, "swap": memory}
    return {
        "ociVersion": "1.0.2",
        "hostname": "sandbox",
        "root": {"path": root, "readonly": True},
        "process": _process(policy, launched),
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup"},
            *(_mount(bind) for bind in binds(policy, layers, launched)),
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
            "cgroupsPath": f"/{launched.name}",
            "resources": resources,
        },
    }
