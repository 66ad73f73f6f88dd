"""The attempts from where tools are installed, as root in name, and from a run that has an installed tool.

Those that need a sandbox of their own are left out: they are about limits and the folder, which are the same code.
"""

from dataclasses import replace
from pathlib import Path

import anyio

from stockade.core.ports import Sandbox
from stockade.tools.layers import Layers
from stockade.tools.tool_files import CommandTool
from stockade_sandbox.backends.bubblewrap.sandbox import BubblewrapSandbox, prepare_layers
from stockade_sandbox.backends.building import BuildSandbox, SystemLayers
from stockade_sandbox.policy import Policy
from tests.attack.runner import HELD, Backend
from tests.attack.scene import Scene
from tests.attack.together import SHARING, attacked_together

OF_THE_LAYER = {
    "accounts of the host": "names of services, for packages that give files to them; nobody's account",
    "state of services": "what the installed tools have there, not what the host has",
    "installed extras": "the same, in /opt",
}
"""Attempts that only look whether there is something: what they find is no secret of the host's."""

WHILE_INSTALLING = {
    "accounts of the host": OF_THE_LAYER["accounts of the host"],
    "state of services": OF_THE_LAYER["state of services"],
    "logs": "an empty place for the logs of package managers",
    "writing to /etc": "that of the layer",
    "set-id by chmod": "said to be done, and not done",
    "a file that belongs to root": "said to be done, and not done",
    "becoming root": "said to be done; it is root by name before and after",
    "becoming another group": "said to be done, and not done",
    "other groups": "said to be done, and not done",
    "who the person is": "root by name, which is nobody outside",
    "what the account may do besides": "root's group by name",
    "descriptors of process 1": "their numbers; opening one is held",
    **dict.fromkeys(
        (
            "descriptors of the shell",
            "descriptors of the shell as its own user",
            "descriptors of a thread of the shell",
        ),
        "their numbers, by a root by name; opening one is held",
    ),
}


def installing(policy: Policy, base: Path) -> Sandbox:
    folder = base / "layer"
    SystemLayers().begin(folder, (), ())
    return BuildSandbox(replace(policy, folders=()), folder, base / "run")


def test_held_while_installing(stage: Scene, tmp_path: Path) -> None:
    found = anyio.run(attacked_together, SHARING, stage, tmp_path, Backend("installing", installing))
    assert {name for name, how in found.items() if how != HELD} == set(WHILE_INSTALLING)
    assert len(found) == len(SHARING)


def test_held_with_an_installed_tool(stage: Scene, tmp_path: Path) -> None:
    tool = CommandTool(name="any", install=("touch /usr/bin/any /opt/any /etc/any /var/lib/any",))
    place = anyio.run(Layers(tmp_path / "layers", SystemLayers()).layer, tool, ())

    def with_tool(policy: Policy, base: Path) -> Sandbox:
        wider = replace(policy, system=(place,))
        return BubblewrapSandbox(wider, prepare_layers(wider, base), base)

    found = anyio.run(attacked_together, SHARING, stage, tmp_path / "run", Backend("installed", with_tool))
    assert {name for name, how in found.items() if how != HELD} == set(OF_THE_LAYER)
    assert len(found) == len(SHARING)
