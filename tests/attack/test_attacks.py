"""Every attack gets through without a sandbox, and none does with one.

A check that cannot fail is worth nothing: the control runs the same script as root on the bare host (in mount and UTS
namespaces of its own, so that what it breaks is thrown away). No attack is skipped when the sandbox is missing.
"""

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from stockade.core.policy import FolderRule, Limits, Policy
from stockade.sandboxes.bubblewrap import BubblewrapSandbox, prepare_layers
from stockade.sandboxes.escapes import FIRED, TRIED, escapes
from stockade.sandboxes.folders import Review
from stockade.sandboxes.launcher.launch import launcher_bytes
from stockade.sandboxes.seccomp import ARCHITECTURES
from tests.attack.attacks import ATTACKS, Attack
from tests.attack.scene import Scene, scene

MIB = 1024**2
LIMITS = Limits(
    memory_bytes=256 * MIB,
    processes=100,
    open_files=1024,
    file_bytes=64 * MIB,
    disk_bytes=64 * MIB,
    command_timeout_s=60,
)
EVERY = (*ATTACKS, *(Attack(f"doctor: {one.name}", one.script) for one in escapes(ARCHITECTURES[os.uname().machine])))


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    probe = tmp_path_factory.mktemp("probe") / "probe"
    probe.write_bytes(launcher_bytes())
    probe.chmod(0o755)
    with scene(str(probe)) as found:
        yield found
        found.reset()


@pytest.fixture
def stage(laid_out: Scene, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    laid_out.reset()
    monkeypatch.setenv("ATTACK_TOKEN", "t0ken")
    yield laid_out
    laid_out.reset()


def script_for(attack: Attack, variables: dict[str, str]) -> str:
    names = "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())
    return f"(\n{names}{attack.script}\n) 2>/dev/null\necho {TRIED}"


def got_through(attack: Attack, output: str, found: Scene) -> bool:
    assert TRIED in output.split(), f"the attack was not even tried: {output!r}"
    return found.mark_is_there(attack.mark) if attack.mark else FIRED in output.split()


@pytest.mark.parametrize("attack", EVERY, ids=lambda attack: attack.name)
def test_without_a_sandbox_it_gets_through(attack: Attack, stage: Scene) -> None:
    assert os.geteuid() == 0, "the controls need root"
    done = subprocess.run(
        ["unshare", "-m", "-u", "bash", "-c", script_for(attack, stage.variables)],
        cwd=stage.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        close_fds=False,
        timeout=60,
        check=False,
    )
    assert got_through(attack, done.stdout, stage), done.stderr


async def attacked(attack: Attack, found: Scene, base: Path) -> str:
    policy = Policy(folders=(FolderRule(host=str(found.folder), mode="overlay"),), limits=LIMITS)
    layers = prepare_layers(policy, base)
    try:
        async with BubblewrapSandbox(policy, layers, base) as box:
            probe = "cat > /tmp/probe && chmod 755 /tmp/probe"
            assert (await box.exec(["/bin/sh", "-c", probe], stdin=launcher_bytes())).exit_code == 0
            variables = {**found.variables, "PROBE": "/tmp/probe", "FIRST": "1"}
            output = await box.run(script_for(attack, variables), timeout_s=60)
            assert (await box.run("echo alive")).stdout == b"alive\n"
            return output.stdout.decode(errors="replace")
    finally:
        for layer in layers:
            Review().discard(layer)


@pytest.mark.parametrize("attack", EVERY, ids=lambda attack: attack.name)
def test_a_sandbox_holds_it(attack: Attack, stage: Scene, tmp_path: Path) -> None:
    output = anyio.run(attacked, attack, stage, tmp_path / "layers")
    assert not got_through(attack, output, stage)
