"""What a bot in Python is given, as the factory takes it; what is of another kind is refused by its name."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stockade.core.errors import UsageError
from stockade.core.ports import Model, Toolbox
from stockade.paths import state_dir
from stockade.tools.function import FunctionTool
from stockade.tools.tool_files import ToolDefinition
from stockade_sandbox import AsyncSandbox, Sandbox
from stockade_sandbox.policy import FolderMode, Policy


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of this machine. `mode`: `ro`, `overlay` (changes are reviewed) or `rw`."""

    path: str | Path
    mode: FolderMode = "overlay"

    def __post_init__(self) -> None:
        if self.mode not in ("ro", "overlay", "rw"):
            raise ValueError(f"the mode of a folder is ro, overlay or rw, not {self.mode!r}")

    def __str__(self) -> str:
        return f"{self.path}:{self.mode}"


Running = Sandbox | AsyncSandbox
"""A sandbox that was entered; a plain one lives in an event loop of its own."""
AnyTool = str | Path | ToolDefinition | Toolbox | Callable[..., Any]
POLICY_OPTIONS = ("folder", "copy", "net", "env", "memory", "processes", "disk", "image", "command_timeout", "streams")
"""RunSpec that a policy is made of."""
Permission = Literal["READ_ONLY", "READ_WRITE", "ro", "overlay", "rw"]
PERMISSIONS: dict[str, FolderMode] = {
    "READ_ONLY": "ro",
    "READ_WRITE": "overlay",
    "ro": "ro",
    "overlay": "overlay",
    "rw": "rw",
}
_TEXT = str, "a text"
_ASKED = Callable, "a function"
_LIST = Iterable, "a list"
_FOLDER = (Folder, str, Path), "a path or a Folder"
_KINDS: Mapping[str, tuple[Any, str]] = {
    "name": _TEXT, "type": _TEXT, "permission": _TEXT, "system_prompt": _TEXT,
    "model": ((str, Model), "a name or a core.ports.Model"),
    "folder": _FOLDER, "folder_to_mount": _FOLDER,
    "environment": ((Sandbox, AsyncSandbox), "a Sandbox that is running"),
    "sandbox": ((Sandbox, AsyncSandbox, Policy, str), "a Sandbox that is running, a Policy or the name of a backend"),
    "tools": _LIST, "additional_tools": _LIST, "hooks": _LIST, "tool": _LIST,
    "on_event": _ASKED, "on_approval": _ASKED, "on_question": _ASKED,
}  # fmt: skip


def check_kinds(given: Mapping[str, object]) -> None:
    """UsageError for the first argument of a bot that is of another kind; None is none."""
    for name, (kind, words) in _KINDS.items():
        if (value := given.get(name)) is not None and not isinstance(value, kind):
            raise UsageError(f"{name}: {repr(value)[:60]} is not {words}")


def mount(folder: Folder | str | Path, mode: FolderMode, permission: Permission | None) -> str:
    """The folder with its mode. UsageError when the folder says other than the permission."""
    if not isinstance(folder, Folder):
        return str(Folder(folder, mode))
    if permission is not None and PERMISSIONS[permission] != folder.mode:
        raise UsageError(f"the folder is {folder.mode} and the permission {permission}", "give one of them")
    return str(folder)


def sandbox_of(
    sandbox: Running | Policy | str | None, environment: Running | None, options: dict[str, Any]
) -> tuple[Running | None, Policy | None]:
    """The sandbox that is running, or the policy of one to be made."""
    if sandbox is not None and environment is not None:
        raise UsageError("sandbox and environment are the same", "give one of them")
    if isinstance(sandbox, Policy):
        if wrong := [key for key in POLICY_OPTIONS if options.get(key)]:
            raise UsageError(f"{wrong[0]} is a part of the policy that was given", "say it there")
        return None, sandbox
    return (environment if isinstance(sandbox, str | None) else sandbox), None


def box_of(tool: AnyTool) -> Toolbox | None:
    """A tool that is an object of this process; None for one that a name, a file or a definition says."""
    if isinstance(tool, str | Path | ToolDefinition):
        return None
    if isinstance(tool, Toolbox):
        return tool
    if callable(tool):
        return FunctionTool(tool)
    raise UsageError(f"{tool!r} is no tool", "a function, a name of `stockade tool list`, a file, a ToolDefinition")


def tool_file(tool: AnyTool) -> str:
    """The name or file of a tool; one that is defined in Python is written to a file, so that a run can go on."""
    if not isinstance(tool, ToolDefinition):
        return str(tool)
    text = json.dumps(tool.tool().model_dump(mode="json", exclude_defaults=True), sort_keys=True)
    name = f"{tool.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.yaml"
    path = state_dir() / "tools" / name
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(text)
    return str(path)
