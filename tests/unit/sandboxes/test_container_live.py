"""Docker and Podman for real: images, the filter, what the engine would add, and what is left of a killed stockade."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stockade.core.errors import PolicyNotEnforceable, UsageError
from stockade_sandbox.backends.containers import host_stage
from stockade_sandbox.backends.containers.container import ContainerSandbox, sweep
from stockade_sandbox.backends.containers.engines import Engine, EngineName, ask, find_engine
from stockade_sandbox.backends.containers.host_stage import BASE, machine_id
from stockade_sandbox.overlay import Review
from stockade_sandbox.policy import MIB, FolderRule, Limits, Policy
from stockade_sandbox.processes import start_time
from tests.support.engines import engine_environment, small_rootfs

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["docker", "podman"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> EngineName:
    name: EngineName = request.param
    for variable, value in engine_environment(name).items():
        monkeypatch.setenv(variable, value)
    return name


def _box(policy: Policy, base: Path, engine: EngineName) -> ContainerSandbox:
    return ContainerSandbox.prepared(policy, base, engine)


def _import(engine: EngineName, folder: Path, name: str, *options: str) -> None:
    tar = subprocess.run(["tar", "-C", folder, "-c", "."], capture_output=True, check=True).stdout
    ask([*find_engine(engine).command, "import", *options, "-", name], stdin=tar)


async def test_a_directory_is_imported_once(engine: EngineName, tmp_path: Path) -> None:
    root = small_rootfs(tmp_path / "root")
    before = {path: path.lstat().st_mtime_ns for path in root.rglob("*")}
    for _ in range(2):
        async with _box(Policy(rootfs=str(root)), tmp_path / "run", engine) as box:
            assert (await box.run("cat /marker; id -un; touch /x /marker /tmp/y")).output.startswith(b"small\n")
    assert {path: path.lstat().st_mtime_ns for path in root.rglob("*")} == before
    listing = [*find_engine(engine).command, "images", "--quiet", "--filter", "reference=*stockade-rootfs*"]
    assert len(set(ask(listing).split())) == 1
    (root / "marker").write_text("other\n")
    async with _box(Policy(rootfs=str(root)), tmp_path / "run", engine) as box:
        assert (await box.run("cat /marker")).stdout == b"other\n"


async def test_images_that_cannot_be_used(engine: EngineName, tmp_path: Path) -> None:
    """Missing; without bash; with volumes, which would be room that nothing bounds."""
    with pytest.raises(UsageError, match="has no image 'missing:1'"):
        async with _box(Policy(rootfs="missing:1"), tmp_path, engine):
            pass
    (tmp_path / "empty/etc").mkdir(parents=True)
    with pytest.raises(UsageError, match="no /bin/bash"):
        async with _box(Policy(rootfs=str(tmp_path / "empty")), tmp_path / "run", engine):
            pass
    _import(engine, tmp_path / "empty", "with-volume:1", "--change", "VOLUME /data")
    with pytest.raises(PolicyNotEnforceable, match="/data") as caught:
        async with _box(Policy(rootfs="with-volume:1"), tmp_path / "run", engine):
            pass
    assert caught.value.rule == "disk_bytes"


_CALLS = """
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def refused(name, call):
    try:
        call()
    except OSError as error:
        print(name, errno.errorcode[error.errno])
    else:
        print(name, "THROUGH")
def raw(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")
refused("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
refused("packet", lambda: socket.socket(17, socket.SOCK_RAW))
refused("userns", lambda: raw(272, 0x10000000))
refused("io_uring", lambda: raw(425, 1, 0))
refused("ptrace", lambda: raw(101, 0, 0, 0, 0))
refused("keyctl", lambda: raw(250, 0, -3, 0))
refused("setid", lambda: (open("/tmp/s", "w"), os.chmod("/tmp/s", 0o4755)))
"""


async def test_the_filter_holds(engine: EngineName, tmp_path: Path) -> None:
    async with _box(Policy(), tmp_path, engine) as box:
        said = (await box.exec(["python3", "-c", _CALLS])).stdout.decode().split()
    assert dict(zip(said[::2], said[1::2], strict=True)) == {
        "vsock": "EAFNOSUPPORT",
        "packet": "EAFNOSUPPORT",
        "userns": "EPERM",
        "io_uring": "ENOSYS",
        "ptrace": "EPERM",
        "keyctl": "EPERM",
        "setid": "EPERM",
    }


async def test_the_clients_proxy_settings_stay_outside(
    engine: EngineName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker's client passes on what its config.json says, Podman's what the environment says."""
    settings = {"proxies": {"default": {"httpProxy": "http://user:t0ken@proxy:1"}}}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://user:t0ken@proxy:2")
    async with _box(Policy(), tmp_path / "run", engine) as box:
        assert b"t0ken" not in (await box.run("env; cat /proc/*/environ /etc/resolv.conf /etc/hosts")).output


async def test_the_disk_limit_ends_the_command_by_name(engine: EngineName, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    rule = FolderRule(host=str(tmp_path / "folder"))
    box = _box(Policy(folders=(rule,), limits=Limits(disk_bytes=16 * MIB)), tmp_path / "run", engine)
    async with box:
        told = await box.run("for i in 1 2 3 4; do head -c 10M /dev/zero > $i; sleep 0.5; done; sleep 20; echo all", 40)
        assert b"No space left (limit 16 MiB)" in told.stdout
        assert b"all" not in told.stdout
        assert (await box.run("rm *; echo again > x && cat x")).stdout == b"again\n"
    for layer in box.layers:
        Review().discard(layer)


_HOLDER = """
import sys
from pathlib import Path
import anyio
from stockade_sandbox.policy import FolderRule, Policy
from stockade_sandbox.backends.containers.container import ContainerSandbox

async def main():
    policy = Policy(folders=(FolderRule(host=sys.argv[2]),))
    async with ContainerSandbox.prepared(policy, Path(sys.argv[3]), sys.argv[1]) as box:
        await box.run("(setsid nohup sleep 4321 >/dev/null 2>&1 &); sleep 4322 &")
        print(box.name, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


def _containers(engine: Engine) -> str:
    return ask([*engine.command, "ps", "--all", "--filter", "label=stockade", "--format", "{{.Names}}"]).decode()


def test_a_killed_stockade_leaves_nothing(engine: EngineName, tmp_path: Path) -> None:
    """The container ends by itself, as its stream does; the next start removes the mounts."""
    (tmp_path / "folder").mkdir()
    command = [sys.executable, "-c", _HOLDER, engine, str(tmp_path / "folder"), str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        name = holder.stdout.readline().strip()
        found = find_engine(engine)
        assert name in _containers(found)
        waiting = subprocess.Popen([*found.command, "wait", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        holder.send_signal(signal.SIGKILL)
    waiting.wait(30)
    sweep(found)
    assert not (BASE / name).exists()
    assert name not in Path("/proc/self/mounts").read_text()
    assert name not in _containers(found)


@pytest.fixture
def dead_name() -> str:
    """A sandbox's name whose maker is gone."""
    with subprocess.Popen(["sleep", "100"]) as maker:
        started = start_time(maker.pid)
        maker.kill()
    return f"stockade-{maker.pid}-{started}-{machine_id()}-0badcafe"


def test_sweep_removes_what_is_stale_and_nothing_else(
    engine: EngineName, tmp_path: Path, dead_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of containers and of stages; in a place of its own, as tests beside it kill stockades too."""
    found = find_engine(engine)
    _import(engine, small_rootfs(tmp_path / "root"), "sleeper:1")
    alive = f"stockade-{os.getpid()}-{start_time(os.getpid())}-{machine_id()}-0badcafe"
    elsewhere = dead_name.replace(machine_id(), "0123456789abcdef")
    stages = tmp_path / "stages"
    monkeypatch.setattr(host_stage, "BASE", stages)
    for name in (dead_name, alive, elsewhere):
        (stages / name).mkdir(parents=True)
        ask(
            [
                *found.command,
                "create",
                "--network",
                "none",
                "--name",
                name,
                "--label",
                "stockade=x",
                "sleeper:1",
                "true",
            ]
        )
    try:
        dead_stages = [stages / dead_name] if found.root else []
        assert sweep(found) == [dead_name, *map(str, dead_stages)]
        kept = [alive, elsewhere] if found.root else [alive, elsewhere, dead_name]
        assert sorted(path.name for path in stages.iterdir()) == sorted(kept)
        assert set(_containers(found).split()) == {alive, elsewhere}
    finally:
        ask([*found.command, "rm", "--force", alive, elsewhere])


def test_an_engine_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    with pytest.raises(PolicyNotEnforceable, match="docker") as caught:
        find_engine("docker")
    assert caught.value.hint is not None
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none2")
    with pytest.raises(PolicyNotEnforceable, match="no docker on PATH"):
        find_engine("docker")
