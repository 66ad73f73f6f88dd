"""Why a sandbox did not start, and the way out: from the failure lines of launcher and bubblewrap to our errors."""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from stockade_sandbox.errors import PolicyNotEnforceable, SandboxFailed, StockadeError
from stockade_sandbox.launcher.launch import complaint

_OTHERS = ("docker", "podman")


class Causes(NamedTuple):
    """What commonly keeps user namespaces away; read once from /proc and /."""

    clone_off: bool = False
    none_allowed: bool = False
    apparmor: bool = False
    container: bool = False
    podman: bool = False

    @classmethod
    def of_this_machine(cls, root: Path = Path("/")) -> "Causes":
        def reads(path: str, value: str) -> bool:
            file = root / path
            return file.is_file() and file.read_text().strip() == value

        return cls(
            clone_off=reads("proc/sys/kernel/unprivileged_userns_clone", "0"),
            none_allowed=reads("proc/sys/user/max_user_namespaces", "0"),
            apparmor=reads("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
            container=(root / ".dockerenv").exists() or (root / "run/.containerenv").exists(),
            podman=(root / "run/.containerenv").exists(),
        )


def apparmor_profile(program: str) -> str:
    """The profile, in one line, by which AppArmor lets this program and what it starts make user namespaces, and is to
    it as it was otherwise (the form that Ubuntu ships for browsers). The launcher has no path of its own to name: it
    runs from memory, and inherits this.
    """
    escaped = re.sub(r'([][\\*?{}^"])', r"\\\1", program)
    return f'abi <abi/4.0>, include <tunables/global> profile stockade "{escaped}" flags=(unconfined) {{ userns, }}'


def _own_program() -> str:
    """The script `stockade` that was started, else the Python that runs us; by its path without links, as AppArmor."""
    script = Path(sys.argv[0])
    return os.path.realpath(script if script.name == "stockade" and script.is_file() else sys.executable)


def _container_hint(causes: Causes) -> str:
    shown = "unmask=ALL" if causes.podman else "systempaths=unconfined"
    return (
        f"this is a container: start it with --security-opt seccomp=unconfined --security-opt {shown}, and run "
        "stockade there as an ordinary user (root needs --cap-add SYS_ADMIN too)"
    )


def namespace_hint(causes: Causes) -> str:
    """The way out when namespaces are refused."""
    if causes.clone_off:
        return "an administrator can allow it: sysctl kernel.unprivileged_userns_clone=1"
    if causes.none_allowed:
        return "an administrator can allow it: sysctl user.max_user_namespaces=10000"
    if causes.container:
        return _container_hint(causes)
    if causes.apparmor:
        profile = shlex.quote(apparmor_profile(_own_program()))
        return (
            "AppArmor restricts user namespaces here; an administrator can allow them to this program: "
            f"echo {profile} | sudo tee /etc/apparmor.d/stockade && sudo apparmor_parser -r /etc/apparmor.d/stockade"
        )
    return "user or mount namespaces are refused by this machine's security settings; `stockade doctor` says more"


def _of_launcher(operation: str, reason: str, causes: Causes) -> StockadeError:
    why = f"{operation} {reason}"
    if operation in ("userns", "mountns"):
        return PolicyNotEnforceable("sandbox", f"a namespace could not be made: {why}", namespace_hint(causes), _OTHERS)
    if operation == "proc":
        return _no_proc(why, causes)
    if operation == "idmap":
        hint = "use overlay for the folder, or run stockade as the folder's owner instead of root"
        return PolicyNotEnforceable("folders", f"the folder's owner cannot be mapped here: {why}", hint, _OTHERS)
    if operation == "overlay":
        hint = "move the state directory to an ordinary file system such as ext4, or use a copied layer"
        return PolicyNotEnforceable("folders", f"the overlay could not be mounted: {why}", hint, _OTHERS)
    if operation in ("one", "tree"):
        return SandboxFailed(
            f"a folder could not be mounted: {reason}", "check that it exists and that you may read it"
        )
    if operation == "cgroup":
        return SandboxFailed(f"a control group could not be joined: {reason}", "try again; `stockade doctor` says more")
    if operation == "fds":
        return SandboxFailed("too few open files are allowed here", "raise the limit: ulimit -n 1024")
    return SandboxFailed(f"the sandbox launcher failed: {why}", "`stockade doctor` says what this machine allows")


_BWRAP_NAMESPACE = (
    "creating new namespace",
    "no permissions to create",
    "setting up uid map",
    "unprivileged",
    "new user",
)


def _no_proc(why: str, causes: Causes) -> StockadeError:
    """Where parts of /proc are covered, as in containers, the kernel lets nobody mount a whole one."""
    return PolicyNotEnforceable("sandbox", f"a new /proc is not allowed here: {why}", _container_hint(causes), _OTHERS)


def start_failure(stderr: str, status: int | None, causes: Causes | None = None) -> StockadeError:
    """The error for a sandbox that ended before its agent spoke. `stderr` is what launcher and bubblewrap wrote."""
    known = causes or Causes.of_this_machine()
    said = complaint(stderr)
    if said:
        return _of_launcher(*said, known)
    line = last_line(stderr)
    lower = line.lower()
    if any(words in lower for words in _BWRAP_NAMESPACE):
        return PolicyNotEnforceable(
            "sandbox", f"namespaces are not allowed here: {line}", namespace_hint(known), _OTHERS
        )
    if "mount proc" in lower:
        return _no_proc(line, known)
    if "set hostname" in lower and known.container:
        return PolicyNotEnforceable(
            "sandbox", f"namespaces are not whole here: {line}", _container_hint(known), _OTHERS
        )
    how = f"with status {status}" if status is not None else "without a word"
    detail = f": {line}" if line else ""
    return SandboxFailed(
        f"the sandbox ended {how} while starting{detail}", "`stockade doctor` says what this machine allows"
    )


def last_line(text: str) -> str:
    """The last line that is not blank, made printable and short."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "".join(char if char.isprintable() else "?" for char in lines[-1])[:300] if lines else ""
