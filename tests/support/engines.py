"""Engines for tests, with nothing of the machine's own: a dockerd and a Podman storage in temporary folders.

Started once a test process, when first asked for; ended with it, and when it is killed too.
"""

import atexit
import functools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

_READY_TRIES = 300
GIVEN_DOCKER = "TEST_DOCKER_HOST"
"""A daemon that is there already: for tests run by a user who cannot start one."""


def need(*programs: str) -> None:
    """Fails, rather than skips: .ci/run installs them."""
    missing = [program for program in programs if shutil.which(program) is None]
    way_out = "apt-get install docker.io podman runc uidmap; sh tests/support/install_runsc.sh"
    assert not missing, f"{', '.join(missing)} missing: {way_out}"


def _unmount_below(folder: Path) -> None:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in reversed([point for point in points if point.startswith(f"{folder}/")]):
        subprocess.run(["umount", "--lazy", point], check=False)


def _runsc_wrapper(folder: Path) -> Path:
    """runsc with the options that an engine does not give it."""
    wrapper = folder / "runsc"
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("runsc")} --network=none --platform=ptrace "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


def engine_runsc(engine: str) -> str:
    """What the engine's runtime option calls gVisor: for Docker a name of the daemon's, for Podman a path."""
    need("runsc")
    if engine == "docker":
        docker_host()
        return "runsc"
    return str(_runsc_wrapper(Path(podman_storage()).parent))


@functools.cache
def docker_host() -> str:
    """DOCKER_HOST of a daemon without network and without anybody else's images."""
    if given := os.environ.get(GIVEN_DOCKER):
        return given
    need("dockerd", "docker", "setpriv")
    folder = Path(tempfile.mkdtemp(prefix="dockerd-"))
    (folder / "daemon.json").write_text("{}")
    where = {"--exec-root": "exec", "--data-root": "data", "--pidfile": "pid", "--config-file": "daemon.json"}
    options = [f"{option}={folder / name}" for option, name in where.items()]
    options += [
        "--iptables=false",
        "--ip6tables=false",
        "--ip-forward=false",
        "--bridge=none",
        f"--host=unix://{folder}/s",
    ]
    if shutil.which("runsc"):
        options.append(f"--add-runtime=runsc={_runsc_wrapper(folder)}")
    log = (folder / "log").open("wb")
    daemon = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "dockerd", *options],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    log.close()

    def stop() -> None:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60)
        _unmount_below(folder)
        shutil.rmtree(folder)

    atexit.register(stop)
    _await_daemon(daemon, folder)
    return f"unix://{folder}/s"


def _await_daemon(daemon: "subprocess.Popen[bytes]", folder: Path) -> None:
    ask = ["docker", "--host", f"unix://{folder}/s", "version"]
    for _ in range(_READY_TRIES):
        if subprocess.run(ask, capture_output=True, check=False).returncode == 0:
            return
        try:
            daemon.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError("dockerd does not start:\n" + (folder / "log").read_text()[-2000:])


@functools.cache
def podman_storage() -> str:
    """CONTAINERS_STORAGE_CONF of an empty storage."""
    need("podman", "runc")
    folder = Path(tempfile.mkdtemp(prefix="podman-"))
    config = folder / "storage.conf"
    config.write_text(f'[storage]\ndriver = "overlay"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/graph"\n')

    (folder / "session").mkdir(mode=0o700)

    def stop() -> None:
        keeper = folder / "session/libpod/tmp/pause.pid"  # without root, it keeps the user namespace
        if keeper.exists():
            os.kill(int(keeper.read_text()), signal.SIGKILL)
        _unmount_below(folder)
        shutil.rmtree(folder)

    atexit.register(stop)
    return str(config)


def share_docker(uid: int) -> str:
    """docker_host(), usable by a user too: which makes them root, so only by one who is nobody else."""
    host = docker_host()
    path = Path(host.removeprefix("unix://"))
    path.parent.chmod(0o711)
    os.chown(path, uid, -1)
    return host


def engine_environment(engine: str) -> dict[str, str]:
    """Variables under which the engine's client is the test's own."""
    if engine == "docker":
        return {"DOCKER_HOST": docker_host()}
    config = podman_storage()
    return {"CONTAINERS_STORAGE_CONF": config, "XDG_RUNTIME_DIR": str(Path(config).parent / "session")}


_PROGRAMS = ("bash", "sh", "env", "cat", "ls", "head", "tail", "id", "sleep", "touch", "mkdir", "rm", "stat")


def small_rootfs(folder: Path, more: Sequence[str] = ()) -> Path:
    """A root file system of a few programs of this machine, and `more`, and the libraries they link to."""
    for name in ("bin", "etc", "tmp", "proc", "dev", "sys", "var/tmp"):
        (folder / name).mkdir(parents=True)
    for name in (*_PROGRAMS, *more):
        found = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
        assert found, name
        shutil.copy2(os.path.realpath(found), folder / "bin" / Path(name).name)
        linked = subprocess.run(["ldd", found], capture_output=True, text=True, check=False).stdout
        for word in linked.split():
            target = folder / word.lstrip("/")
            if word.startswith("/") and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(os.path.realpath(word), target)
    (folder / "marker").write_text("small\n")
    return folder
