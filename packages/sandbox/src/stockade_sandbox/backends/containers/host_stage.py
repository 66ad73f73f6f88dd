"""Folders made ready on the host, for engines that mount what is already there: root only.

Where bubblewrap's launcher gathers everything in a mount namespace of its own, a container engine must find it in the
host's: in a tmpfs at /run/stockade/NAME that only root can enter. In it are the layers (overlays, folders with their
owner mapped to the sandbox's uid), the copies, /usr with installed tools, and one size-bounded tmpfs for all scratch.
NAME tells who made it, so that what a killed stockade left is known and removed.
"""

import os
import re
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from stockade_sandbox.backends.bubblewrap.argv import Launch, layered_usr_options, mount_operations
from stockade_sandbox.backends.bubblewrap.sandbox import layer_owners, shields
from stockade_sandbox.backends.feature_probe import run_operations
from stockade_sandbox.backends.host_info import Bwrap, HostFacts
from stockade_sandbox.backends.rootfs import LAYERED_USR, add_scratch
from stockade_sandbox.errors import SandboxFailed
from stockade_sandbox.launcher.launch import NODEV, NOSUID, RDONLY
from stockade_sandbox.policy import Policy
from stockade_sandbox.processes import start_time
from stockade_sandbox.results import FolderLayer

BASE = Path("/run/stockade")
_NAME = re.compile(r"stockade-(\d+)-(\d+)-([0-9a-f]+)-[0-9a-f]+")
_PLAIN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


def machine_id(proc: Path = Path("/proc")) -> str:
    """Of this boot and this process id namespace: where a pid means what we mean by it."""
    boot = (proc / "sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    inode = os.stat(proc / "self/ns/pid").st_ino
    return f"{boot[:12]}{inode:x}"


def new_name() -> str:
    """A name for one sandbox that says which process made it: `stockade-PID-START-MACHINE-RANDOM`."""
    pid = os.getpid()
    return f"stockade-{pid}-{start_time(pid)}-{machine_id()}-{secrets.token_hex(4)}"


def is_stale(name: str) -> bool:
    """Whether it is one of ours whose maker, a process of this machine, is gone."""
    found = _NAME.fullmatch(name)
    if found is None or found[3] != machine_id():
        return False
    return start_time(int(found[1])) != int(found[2])


def _complete_maps(argv: list[str]) -> None:
    """Makes every id map a permutation, in place. gVisor makes files as root, and only then gives them their owner; in
    a folder of root's, root itself would have no id on disk."""
    for place, word in enumerate(argv):
        if word == "idmap":
            for number in (place + 2, place + 3):
                on_disk, shown, _ = argv[number].splitlines()[0].split()
                if on_disk != shown:
                    argv[number] += f"{shown} {on_disk} 1\n"


def _operations(policy: Policy, layers: Sequence[FolderLayer], stage: Path, launch: Launch) -> list[str]:
    """mount_operations without its namespace, and the scratch; pure but for `launch`."""
    host = HostFacts(bwrap=Bwrap(()), uid=0, gid=0, stage=str(stage))
    ops = mount_operations(policy, layers, host, launch)
    ops.argv.remove("mountns")
    _complete_maps(ops.argv)
    if policy.system:
        ops.add("one", 0, "/usr")
        ops.add("attributes", 0, NOSUID | NODEV | RDONLY)
        ops.add("place", 0, f"{stage}/usr")
        ops.add("overlay", f"{stage}/{LAYERED_USR}", layered_usr_options(str(stage), policy, host, None))
    ops.add("dir", f"{stage}/own", 755, 0, 0)
    add_scratch(ops, str(stage), policy.limits, launch.uid, launch.uid)
    return ops.argv


def make_stage(name: str, policy: Policy, layers: Sequence[FolderLayer], uid: int, copies: tuple[str, ...]) -> Path:
    """Mounts everything for one sandbox of the kernel's uid `uid`; SandboxFailed names the mount that failed.

    `policy.rootfs` must be None or a directory, which is then at STAGE/root.
    """
    stage = BASE / name
    owners = layer_owners(layers, HostFacts(bwrap=Bwrap(()), uid=0, gid=0), uid)
    launch = Launch(parent=0, uid=uid, owners=owners, copies=copies, shields=shields(layers, owners, uid)[0])
    try:
        BASE.mkdir(mode=0o700, exist_ok=True)
        stage.mkdir(mode=0o700)
    except OSError as error:
        raise SandboxFailed(f"cannot make {stage}: {error.strerror}", "see who may write there") from error
    try:
        complaint = run_operations(_operations(policy, layers, stage, launch))
    except BaseException:
        remove_stage(stage)
        raise
    if complaint:
        remove_stage(stage)
        raise SandboxFailed(f"the folders of the sandbox cannot be mounted: {complaint}", "--sandbox bubblewrap")
    return stage


def is_mounted(stage: Path, proc: Path = Path("/proc")) -> bool:
    """See proc(5), mountinfo; our names need no unescaping."""
    lines = (proc / "self/mountinfo").read_text(errors="surrogateescape").splitlines()
    return any(line.split()[4] == str(stage) for line in lines)


def remove_stage(stage: Path) -> None:
    """Unmounts all of it and removes it; idempotent. SandboxFailed when the kernel does not let go.

    A process that still uses a mount keeps it, out of sight, until it ends.
    """
    while is_mounted(stage):
        done = subprocess.run(["umount", "--lazy", stage], capture_output=True, text=True, env=_PLAIN, check=False)
        if done.returncode and is_mounted(stage):  # else somebody who sweeps too was quicker
            raise SandboxFailed(f"cannot unmount {stage}: {done.stderr.strip()}", "`stockade doctor --clean`")
    with suppress(FileNotFoundError):
        stage.rmdir()


def stale_stages() -> Iterator[Path]:
    if BASE.is_dir():
        yield from (path for path in BASE.iterdir() if is_stale(path.name))
