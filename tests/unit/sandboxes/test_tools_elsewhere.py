"""A tool that was installed by bubblewrap, used by a run in another sandbox."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from stockade.core.errors import PolicyNotEnforceable
from stockade.tools.layers import Layers
from stockade.tools.tool_files import CommandTool
from stockade_sandbox.backends import layers as made_layers
from stockade_sandbox.backends.building import SystemLayers
from stockade_sandbox.backends.containers.container import ContainerSandbox
from stockade_sandbox.backends.containers.engines import EngineName
from stockade_sandbox.backends.containers.gvisor import GVisorSandbox
from stockade_sandbox.overlay.discard import remove_tree
from stockade_sandbox.policy import Policy
from tests.support.engines import engine_environment

_HI = "printf '#!/bin/sh\\necho hi\\n' > /usr/local/bin/hi && chmod +x /usr/local/bin/hi"
_MORE = ("hi > /usr/share/said", "echo two > /etc/of-two", "mkdir -p /opt/two && echo opt > /opt/two/file")
_TRY = "hi; cat /usr/share/said /etc/of-two /opt/two/file; id -un; touch /usr/x /etc/x /opt/x; hostname"


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """Two layers, one over the other."""
    base = tmp_path_factory.mktemp("tools")

    async def install() -> tuple[str, ...]:
        layers = Layers(base / "layers", SystemLayers())
        one = await layers.layer(CommandTool(name="hi", install=(_HI,)), ())
        return one, await layers.layer(CommandTool(name="two", install=_MORE), (one,))

    yield anyio.run(install)
    remove_tree(base)


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["docker", "podman", "gvisor"])
async def test_a_tool_is_there(
    name: str, system: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy(system=system, streams="separate")
    before = times(system)
    async with made(name, policy, tmp_path, monkeypatch) as box:
        said = await box.run(_TRY)
    assert said.stdout == b"hi\nhi\ntwo\nopt\nagent\nsandbox\n"
    assert said.stderr.count(b"cannot touch") == 3
    assert times(system) == before


def times(folders: tuple[str, ...]) -> dict[Path, int]:
    return {path: path.lstat().st_mtime_ns for folder in folders for path in Path(folder).rglob("*")}


def made(name: str, policy: Policy, base: Path, environment: pytest.MonkeyPatch) -> ContainerSandbox | GVisorSandbox:
    if name == "gvisor":
        return GVisorSandbox.prepared(policy, base)
    engine: EngineName = "docker" if name == "docker" else "podman"
    for variable, value in engine_environment(engine).items():
        environment.setenv(variable, value)
    return ContainerSandbox.prepared(policy, base, engine)


def test_who_cannot_mount_is_told_what_to_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(system=(str(tmp_path),))
    with pytest.raises(PolicyNotEnforceable, match="leave out --image"):
        made_layers.container_layers(replace(policy, rootfs="/x"), tmp_path)
    monkeypatch.setattr(made_layers, "fresh_sandbox_uid", lambda: None)
    with pytest.raises(PolicyNotEnforceable, match="use --sandbox bubblewrap"):
        made_layers.container_layers(policy, tmp_path)
