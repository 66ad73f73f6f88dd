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
from stockade_sandbox.backends.host_info import choose_bwrap, fresh_sandbox_uid, system_bwrap
from stockade_sandbox.backends.seccomp import ARCHITECTURES
from stockade_sandbox.doctor.escapes import FIRED, TRIED, Bait, Escape, escapes
from stockade_sandbox.errors import StockadeError
from stockade_sandbox.launcher.launch import launcher_bytes
from stockade_sandbox.leftovers import DOCTOR, private_folder
from stockade_sandbox.limits.cgroups import places
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.policy import Limits, Policy
from stockade_sandbox.port import Sandbox
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


def _bubblewrap() -> Finding:
    if platform.system() != "Linux":
        why = f"sandboxes are made of what only Linux has, and this is {platform.system()}"
        return Finding(
            name="bubblewrap", tried="looked for", held=False, cause=why, way_out="use a Linux machine or VM"
        )
    try:
        chosen = choose_bwrap()
    except StockadeError as error:
        return Finding(name="bubblewrap", tried="looked for", held=False, cause=error.message, way_out=error.hint)
    _, why = system_bwrap()
    version = ".".join(str(part) for part in chosen.version)
    return Finding(name="bubblewrap", tried=f"{chosen.source}, version {version} ({why})", held=True)


def _namespaces() -> Finding:
    try:
        fresh_sandbox_uid()
    except StockadeError as error:
        return Finding(name="namespaces", tried="looked for", held=False, cause=error.message, way_out=error.hint)
    operations = ["mountns"] if os.geteuid() == 0 else ["userns", "mountns"]
    refused = run_operations(operations)
    hint = namespace_hint(Causes.of_this_machine()) if refused else None
    return Finding(name="namespaces", tried="made some", held=refused is None, cause=refused, way_out=hint)


def _folders(base: Path) -> list[Finding]:
    folder = base / "folder"
    folder.mkdir()
    refused = overlay_check(base)(folder)
    found = [
        Finding(
            name="overlay folders", tried="mounted one and wrote to it", held=refused is None, required=False,
            cause=refused, way_out="folders are copied instead: slower, the same review" if refused else None,
        )
    ]  # fmt: skip
    if os.geteuid() == 0:
        refused = can_idmap(folder)
        found.append(
            Finding(
                name="folders of root", tried="mapped their owner to a uid without rights", held=refused is None,
                required=False, cause=refused, way_out="run stockade as an ordinary user" if refused else None,
            )
        )  # fmt: skip
    return found


def _limits() -> Finding:
    held = {controller for place in places() for controller in place.controllers}
    missing = {"memory", "pids"} - held
    return Finding(
        name="control groups",
        tried="looked for places to make them",
        held=not missing,
        required=False,
        cause=f"not writable here: {', '.join(sorted(missing))}" if missing else None,
        way_out="memory is bounded for each process, not in total; run under systemd with Delegate=yes"
        if missing
        else None,
    )


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
        yield Bait(str(secret), os.getpid(), comm, ours, listener.getsockname()[1], str(Path.home()), _PROBE)


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
            found.append(
                Finding(
                    backend=sandbox.backend, name=f"escape: {escape.name}", tried="inside a live sandbox",
                    held=cause is None, required=required, cause=cause, way_out=_REPORT if cause else None,
                )
            )  # fmt: skip
    return found


async def _canary(base: Path) -> list[Finding]:
    def finding(tried: str, cause: str | None = None, way_out: str | None = None) -> Finding:
        return Finding(
            backend="bubblewrap", name="sandbox", tried=tried, held=cause is None, cause=cause, way_out=way_out
        )

    memory = any("memory" in place.controllers for place in places())
    try:
        async with BubblewrapSandbox(Policy(limits=Limits(processes=64)), (), base) as sandbox:
            output = await sandbox.run("echo alive", timeout_s=60)
            if output.stdout != b"alive\n":
                return [finding("started", "its shell does not answer")]
            started = finding("started, and its shell answered")
            return [started, *differences(sandbox.backend, memory), *await try_escapes(sandbox, required=True)]
    except StockadeError as error:
        return [finding("started", error.message, error.hint)]


def differences(backend: str, memory: bool, *, own_kernel: bool = False) -> tuple[Finding, Finding]:
    """What backends hold or not by their nature: memory as a total, and a kernel of their own."""
    return (
        Finding(
            backend=backend, name="limit: memory in total", tried="asked for its control groups", held=memory,
            required=False, cause=None if memory else "there is no control group for it: each process is bounded",
        ),
        Finding(
            backend=backend, name="a kernel of its own", tried="known of it", held=own_kernel, required=False,
        ),
    )  # fmt: skip


def probe() -> list[Finding]:
    """The machine and the default sandbox, in the order one needs it. Takes about a second; leaves nothing."""
    with private_place() as folder:
        base = Path(folder)
        found = [_bubblewrap(), _namespaces()]
        if all(finding.held for finding in found):
            found += [*_folders(base), _limits(), *anyio.run(_canary, base)]
        return found
