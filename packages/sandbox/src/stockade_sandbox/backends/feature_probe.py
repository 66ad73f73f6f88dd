"""Whether overlays and idmapped mounts work for a folder here: found out by doing it, in a throwaway namespace.

Kernel versions and file system types do not tell: containers, security modules and mount options decide as well.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from stockade_sandbox.backends.bubblewrap.argv import Launch, Owner, mount_operations
from stockade_sandbox.backends.bubblewrap.explain import last_line
from stockade_sandbox.backends.host_info import HostFacts, fresh_sandbox_uid, host_facts
from stockade_sandbox.errors import SandboxFailed
from stockade_sandbox.launcher.launch import complaint, launcher_memfd
from stockade_sandbox.policy import Policy
from stockade_sandbox.processes import TRIAL, private_folder
from stockade_sandbox.registry import load
from stockade_sandbox.results import FolderLayer

_TRIAL_TIMEOUT_S = 20.0
_Key = tuple[str, int, int, int, int]
_known: dict[_Key, str | None] = {}


def run_operations(operations: list[str]) -> str | None:
    """Runs the launcher with nothing to become; None when every operation worked, else its complaint."""
    launcher = launcher_memfd()
    try:
        done = subprocess.run(
            ["launch", *operations],
            executable=f"/proc/self/fd/{launcher}",
            pass_fds=[launcher],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={},
            cwd="/",
            timeout=_TRIAL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxFailed("the sandbox launcher could not be run", str(error)) from error
    finally:
        os.close(launcher)
    if done.returncode == 0:
        return None
    stderr = done.stderr.decode(errors="replace")
    said = complaint(stderr)
    return " ".join(said) if said else last_line(stderr) or f"the launcher ended with status {done.returncode}"


def owner_of(path: str | Path) -> Owner:
    """Of a folder. SandboxFailed when it is not there any more."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise SandboxFailed(f"the folder {path} cannot be used: {error.strerror}", "was it moved?") from error
    return Owner(found.st_uid, found.st_gid)


def _try(layer: FolderLayer, host: HostFacts, uid: int, owner: Owner | None, *, shield: bool = False) -> str | None:
    launch = Launch(parent=0, uid=uid, owners=(owner,), shields=(shield,))
    operations = mount_operations(Policy(), [layer], host, launch)
    if host.root:
        operations.add("ids", uid, uid)
    if layer.mode != "ro":
        operations.add("try", f"{host.stage}/folder-0")
    return run_operations(operations.argv)


def _remembered(what: str, path: Path, base: Path, attempt: Callable[[], str | None]) -> str | None:
    found = path.stat()
    key = (what, found.st_dev, found.st_uid, found.st_gid, base.stat().st_dev)
    if key not in _known:
        _known[key] = attempt()
    return _known[key]


def overlay_check(base: Path) -> Callable[[Path], str | None]:
    """`can_overlay`: why no overlay can be had over a folder with its upper layer in `base`; None when it can.

    Remembered for each file system and owner while the process lives.
    """

    def attempt(path: Path) -> str | None:
        uid = fresh_sandbox_uid()
        scratch = private_folder(TRIAL, base)
        try:
            for name in ("upper", "work"):
                (scratch / name).mkdir()
                if uid is not None:
                    os.chown(scratch / name, uid, uid)
            layer = FolderLayer(host=str(path), inside="/t", mode="overlay", strategy="overlay", layer=str(scratch))
            owner = None if uid is None else owner_of(path)
            return _try(layer, host_facts(), os.geteuid() if uid is None else uid, owner)
        finally:
            _remove(scratch)

    def can_overlay(path: Path) -> str | None:
        base.mkdir(parents=True, exist_ok=True)
        real = Path(os.path.realpath(path))
        return _remembered("overlay", real, base, lambda: attempt(real))

    return can_overlay


def can_idmap(path: Path) -> str | None:
    """Why the owner of files under `path` cannot be mapped to a sandbox's uid; None when it can. Only root can."""
    uid = fresh_sandbox_uid()
    if uid is None:
        return "only root can map owners"
    layer = FolderLayer(host=str(path.resolve()), inside="/t", mode="ro", strategy="direct")
    return _remembered("idmap", path, path, lambda: _try(layer, host_facts(), uid, owner_of(path)))


def can_shield(path: Path, uid: int, owner: Owner | None) -> str | None:
    """Why a folder that is only read cannot be shown through an overlay to `uid`; None when it can. `owner`: mapped."""
    if load("overlay.record:mounts_below")(path):
        return "file systems are mounted below it"
    layer = FolderLayer(host=str(path), inside="/t", mode="ro", strategy="direct")
    what = f"shield {owner is None}"
    return _remembered(what, path, path, lambda: _try(layer, host_facts(), uid, owner, shield=True))


def _remove(scratch: Path) -> None:
    inner = scratch / "work" / "work"
    if inner.is_dir():
        inner.chmod(0o700)  # the kernel makes it without any permission
    shutil.rmtree(scratch)
