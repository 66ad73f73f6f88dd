"""Sandboxes for programs that nobody has read: policy, backends, one shell that persists, diff, apply, undo, egress.

Knows nothing of models or agents. Read api.py for the public class, backends/bubblewrap/argv.py for what is enforced.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stockade_sandbox.api import AsyncSandbox
    from stockade_sandbox.blocking import Sandbox
    from stockade_sandbox.files import FileStat
    from stockade_sandbox.policy import Policy
    from stockade_sandbox.results import Snapshot
    from stockade_sandbox.running import AsyncProgram, Program, Result

_WHERE = {"AsyncProgram": "running", "AsyncSandbox": "api", "FileStat": "files", "Policy": "policy",
          "Program": "running", "Result": "running", "Sandbox": "blocking", "Snapshot": "results"}  # fmt: skip
__all__ = ["AsyncProgram", "AsyncSandbox", "FileStat", "Policy", "Program", "Result", "Sandbox", "Snapshot"]


def __getattr__(name: str) -> Any:
    """The public names, imported when they are used: whoever wants one module does not wait for all."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
