"""Implements core.ports.Toolbox: a Python program, run inside by an interpreter of its own.

A model that thinks in Python needs no here-documents for it: quotes and new lines cost nothing.
"""

from collections.abc import Mapping
from typing import Any

from stockade.core.actions import ToolResult
from stockade.core.ports import Sandbox
from stockade.core.tools import ToolSpec
from stockade.tools.one import OneTool

NAME = "python"
MAX_CODE_BYTES = 1_000_000
MAX_OUTPUT_BYTES = 200_000
TIMEOUT_S = 120.0
_MISSING = 127
_RUN = "import sys; exec(compile(sys.stdin.buffer.read(), 'program', 'exec'), {'__name__': '__main__'})"
"""`python3 -` would do, but for a program that reads its standard input and so the rest of itself."""
SPEC = ToolSpec(
    name=NAME,
    description="Run a Python 3 program in the current folder; print what you want to see.",
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The whole program."}},
        "required": ["code"],
        "additionalProperties": False,
    },
)


class PythonTool(OneTool):
    """A fresh interpreter a call, as the bot's own user, where the shell is."""

    spec = SPEC

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def do(self, arguments: Mapping[str, Any], timeout_s: float | None) -> ToolResult:
        """What it printed and, where it failed, its exit status and what it wrote as errors."""
        code = arguments.get("code")
        if not isinstance(code, str) or not code.strip():
            return _error("code is missing: give the whole program as a text")
        data = code.encode(errors="replace")
        if len(data) > MAX_CODE_BYTES:
            return _error(f"the code is larger than {MAX_CODE_BYTES} bytes")
        limit_s = min(TIMEOUT_S, timeout_s or TIMEOUT_S)
        done = await self._sandbox.exec(["python3", "-c", _RUN], data, limit_s, MAX_OUTPUT_BYTES)
        printed = (done.stdout + done.stderr).decode(errors="backslashreplace").rstrip("\n")
        if done.truncated_bytes:
            printed += f"\n[{done.truncated_bytes} bytes of the output were cut]"
        if done.timed_out:
            return _error(f"the program took longer than {limit_s:g} s and was ended\n{printed}".rstrip())
        if done.exit_code == _MISSING and not done.stdout:
            return _error(f"there is no Python in this sandbox: {printed}")
        if done.exit_code:
            return _error(f"exit status {done.exit_code}\n{printed}".rstrip())
        return ToolResult(status="success", text=printed or "The program has succeeded; it printed nothing.")


def _error(words: str) -> ToolResult:
    return ToolResult(status="error", text=words)
