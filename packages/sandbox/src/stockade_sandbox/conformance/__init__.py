"""The suite of the port Sandbox. Subclass it in a test module of yours; a backend that passes it is finished.

It is asynchronous, run by anyio's pytest plugin: `anyio_backend` is a fixture that gives "asyncio". It needs pytest.
"""

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

__all__ = ["Bench", "EndConformance", "ExecConformance", "FolderConformance", "NetworkConformance",
           "SandboxConformance", "SealConformance", "ShellConformance", "fill", "output_of"]  # fmt: skip
