"""A wheel of stockade-sandbox is one machine's: it holds that machine's two C programs and is tagged so.

STOCKADE_WHEEL_MACHINE=aarch64 makes it for another machine than the one that builds. The programs are static, so any
libc will do. Elsewhere (no program is shipped) it is a wheel of any machine, without them.
"""

import os
import platform
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAMS = ("agent/agent", "launcher/launch")


class ProgramsOfOneMachine(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        machine = os.environ.get("STOCKADE_WHEEL_MACHINE") or platform.machine()
        found = [f"stockade_sandbox/{program}-{machine}" for program in PROGRAMS]
        if version == "editable" or not all((Path(self.root) / "src" / name).is_file() for name in found):
            return
        build_data["force_include"].update({f"src/{name}": name for name in found})
        build_data["tag"] = f"py3-none-manylinux_2_17_{machine}.musllinux_1_1_{machine}"
        build_data["pure_python"] = False
