"""The suites of the ports. Subclass one in a test module of yours; a part that passes it is finished.

The asynchronous ones are run by anyio's pytest plugin: `anyio_backend` is a fixture that gives "asyncio".
"""

from stockade.testing.conformance.answers import AnswerConformance
from stockade.testing.conformance.model import ModelConformance, WindowConformance, given
from stockade.testing.conformance.runs import BotConformance, HookConformance
from stockade.testing.conformance.store import StoreConformance
from stockade.testing.conformance.toolbox import Call, ToolboxConformance
from stockade_sandbox.conformance.bench import Bench, output_of
from stockade_sandbox.conformance.network import NetworkConformance
from stockade_sandbox.conformance.sandbox import (
    EndConformance,
    ExecConformance,
    FolderConformance,
    SandboxConformance,
    SealConformance,
    ShellConformance,
    fill,
)

__all__ = ["AnswerConformance", "Bench", "BotConformance", "Call", "EndConformance", "ExecConformance",
           "FolderConformance", "HookConformance", "ModelConformance", "NetworkConformance", "SandboxConformance",
           "SealConformance", "ShellConformance", "StoreConformance", "ToolboxConformance", "WindowConformance", "fill",
           "given", "output_of"]  # fmt: skip
