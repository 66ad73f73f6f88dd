"""`stockade doctor`: what this machine can hold, found out by doing it, and escapes tried from inside a sandbox."""

import os
import platform
import shlex
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from stockade_sandbox.backends.bubblewrap.explain import Causes, namespace_hint
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox
from stockade_sandbox.backends.feature_probe import can_idmap, overlay_check, run_operations
from stockade_sandbox.backends.host_info import (
    choose_bwrap,
    fresh_sandbox_uid,
    landlock_version,
    sandbox_ids,
    system_bwrap,
)
from stockade_sandbox.backends.seccomp import ARCHITECTURES
from stockade_sandbox.doctor.escapes import FIRED, TRIED, Bait, Escape, escapes
from stockade_sandbox.errors import StockadeError
from stockade_sandbox.launcher.launch import launcher_bytes
from stockade_sandbox.limits.cgroups import places
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.policy import Limits, Policy
from stockade_sandbox.port import Sandbox
from stockade_sandbox.processes import DOCTOR, private_folder
from stockade_sandbox.results import Finding

_PROBE = "/tmp/.stockade-probe"
_REPORT = "do not run bots in it here, and report this: SECURITY.md"


@contextmanager
def private_place() -> Iterator[str]:
    """A folder for the doctor's own; `doctor --clean` finds it when we are killed."""
    folder = private_folder(DOCTOR)
    try:
        yield str(folder)
    finally:
        remove_tree(folder)


def finding(
    name: str,
    tried: str,
    cause: str | None = None,
    way_out: str | None = None,
    *,
    backend: str | None = None,
    required: bool = True,
) -> Finding:
    """What is held unless there is a `cause` why not."""
    return Finding(backend=backend, name=name, tried=tried, held=cause is None, required=required, cause=cause,
                   way_out=way_out if cause else None)  # fmt: skip


def _bubblewrap() -> Finding:
    if platform.system() != "Linux":
        why = f"sandboxes are made of what only Linux has, and this is {platform.system()}"
        return finding("bubblewrap", "looked for", why, "use a Linux machine or VM")
    try:
        chosen = choose_bwrap()
    except StockadeError as error:
        return finding("bubblewrap", "looked for", error.message, error.hint)
    version = ".".join(str(part) for part in chosen.version)
    return finding("bubblewrap", f"{chosen.source}, version {version} ({system_bwrap()[1]})")


def _namespaces() -> Finding:
    try:
        fresh_sandbox_uid()
    except StockadeError as error:
        return finding("namespaces", "looked for", error.message, error.hint)
    refused = run_operations(["mountns"] if os.geteuid() == 0 else ["userns", "mountns"])
    return finding("namespaces", "created", refused, refused and namespace_hint(Causes.of_this_machine()))


def _folders(base: Path) -> Iterator[Finding]:
    folder = base / "folder"
    folder.mkdir()
    copied = "folders are copied instead: slower, the same review"
    refused = overlay_check(base)(folder)
    yield finding("overlay folders", "mounted, and written to", refused, copied, required=False)
    if os.geteuid() == 0:
        tried, hint = "mapped their owner to a uid without rights", "run stockade as an ordinary user"
        yield finding("folders of root", tried, can_idmap(folder), hint, required=False)


def _limits() -> Finding:
    held = {controller for place in places() for controller in place.controllers}
    missing = {"memory", "pids"} - held
    cause = f"not writable here: {', '.join(sorted(missing))}" if missing else None
    hint = "memory is bounded for each process, not in total; run under systemd with Delegate=yes"
    return finding("control groups", "looked for places to make them", cause, hint, required=False)


def _root_inside() -> Finding:
    try:
        sandbox_ids()
    except StockadeError as error:
        return finding("a root inside, Policy(root=True)", "looked for ids", error.message, error.hint, required=False)
    return finding("a root inside, Policy(root=True)", "looked for ids", required=False)


def _landlock() -> Finding:
    version = landlock_version()
    tried = f"asked the kernel: version {version}; from 2 on files and mounts, from 6 on signals and sockets"
    cause = None if version >= 6 else "all of it is held without it too; it is one lock more"
    return finding(
        "landlock on top", tried, cause, "a kernel from Linux 6.12 on, with landlock in lsm=", required=False
    )


def _disk() -> Finding:
    tried = "64 writers overshot 2 GiB by 5 % at the most (docs/measured/limits.md); a quarter over, the sandbox ends"
    return finding("disk limit, watched", tried, required=False)


@contextmanager
def _bait() -> Iterator[Bait]:
    """A secret file readable by all, and a port of the host that answers."""
    with private_place() as folder, socket.socket() as listener:
        Path(folder).chmod(0o755)
        secret = Path(folder, "secret")
        secret.write_text("secret\n")
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        variables = Path("/proc/self/environ").read_bytes().split(b"\0")
        ours = max(variables, key=len).decode(errors="replace") or "STOCKADE_NO_VARIABLE"
        comm = Path("/proc/self/comm").read_text().strip()
        yield Bait(str(secret), os.getpid(), comm, ours, listener.getsockname()[1], _home(), _PROBE)


def _home() -> str:
    """Yours; where nobody knows it, or it is the root folder, which every sandbox has, root's."""
    found = (os.path.expanduser("~"), "/root")
    return next(home for home in found if home.startswith("/") and os.path.realpath(home) != "/")


def script_of(escape: Escape, bait: Bait) -> str:
    """A command for a shell that tries it, in a subshell; it prints TRIED in the end."""
    names = "".join(f"{name}={shlex.quote(value)}\n" for name, value in bait.variables().items())
    return f"(\n{names}{escape.script}\n)\necho {TRIED}"


async def try_escapes(sandbox: Sandbox, *, required: bool) -> list[Finding]:
    """Each escape, from inside. One that could not be tried counts as not held."""
    found = []
    put = f"cat > {_PROBE} && chmod 755 {_PROBE}"
    await sandbox.exec(["/bin/sh", "-c", put], stdin=launcher_bytes())
    architecture = ARCHITECTURES[os.uname().machine]
    with _bait() as bait:
        for escape in escapes(architecture):
            output = await sandbox.run(script_of(escape, bait), timeout_s=60)
            lines = output.stdout.decode(errors="replace").split()
            cause = None
            if FIRED in lines:
                cause = "it got through"
            elif TRIED not in lines:
                cause = f"it could not be tried (exit status {output.exit_code})"
            tried, name = "inside a live sandbox", f"escape: {escape.name}"
            found.append(finding(name, tried, cause, _REPORT, backend=sandbox.backend, required=required))
    return found


async def report_channel(sandbox: Sandbox) -> Finding:
    """Whether another process inside can open what the shell reports on."""
    shell = (await sandbox.run("echo $$")).stdout.decode().strip()
    listed = await sandbox.exec(["ls", f"/proc/{shell}/fd"])
    tried = "opened the shell's descriptors from another process inside"
    cause = "no program runs there that may not be read, so the shell can be opened, and spoken for, by what it starts"
    way_out = "use another sandbox where that matters; checks, and programs that you start, do not rest on it"
    return finding("report channel", tried, cause if listed.stdout else None, way_out, backend=sandbox.backend,
                   required=False)  # fmt: skip


async def _canary(base: Path) -> list[Finding]:
    def found(tried: str, cause: str | None = None, way_out: str | None = None) -> Finding:
        return finding("sandbox", tried, cause, way_out, backend="bubblewrap")

    memory = any("memory" in place.controllers for place in places())
    try:
        async with BubblewrapSandbox(Policy(limits=Limits(processes=64)), (), base) as sandbox:
            output = await sandbox.run("echo alive", timeout_s=60)
            if output.stdout != b"alive\n":
                return [found("started", "its shell does not answer")]
            started = found("started, and its shell answered")
            known = [started, *differences(sandbox.backend, memory), await report_channel(sandbox)]
            return [*known, *await try_escapes(sandbox, required=True)]
    except StockadeError as error:
        return [found("started", error.message, error.hint)]


def differences(backend: str, memory: bool, *, own_kernel: bool = False) -> tuple[Finding, Finding]:
    """What backends hold or not by their nature: memory as a total, and a kernel of their own."""
    cause = None if memory else "there is no control group for it: each process is bounded"
    tried = "asked for its control groups"
    return (
        finding("limit: memory in total", tried, cause, backend=backend, required=False),
        Finding(backend=backend, name="a kernel of its own", tried="known of it", held=own_kernel,
                required=False),
    )  # fmt: skip


def probe() -> list[Finding]:
    """The machine and the default sandbox, in the order one needs it. Takes about a second; leaves nothing."""
    with private_place() as folder:
        base = Path(folder)
        found = [_bubblewrap(), _namespaces()]
        if all(finding.held for finding in found):
            found += [*_folders(base), _limits(), _disk(), _root_inside(), _landlock(), *anyio.run(_canary, base)]
        return found
