"""Host programs that a bot may be given, one run a call: an argument list, never a shell, made of the tool's words and
the bot's arguments."""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import Process

from stockade.core.actions import ToolResult
from stockade.core.tools import ToolSpec
from stockade.tools.command.definition import PLACEHOLDER, CommandTool, Parameter
from stockade.tools.one import OneTool

MAX_ARGUMENT_BYTES = 100_000
MAX_OUTPUT_BYTES = 64 << 10
_LAST_WORDS_S = 0.5
_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "USER", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR",
           "DBUS_SESSION_BUS_ADDRESS", "TZ")  # fmt: skip
"""What a program of a person's session needs; keys and tokens are passed only by name."""


class BadArgument(Exception):
    """For the bot: what is wrong with its arguments."""


class ExternalTool(OneTool):
    """One external tool; implements core.ports.Toolbox. The person has allowed it by name."""

    def __init__(self, tool: CommandTool, environ: Mapping[str, str]) -> None:
        self._tool = tool
        passed = {name: environ[name] for name in (*_PASSED, *tool.pass_environment) if name in environ}
        self._environment = {**passed, **tool.environment}

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    async def do(self, arguments: Mapping[str, Any], timeout_s: float | None) -> ToolResult:
        try:
            values = _checked(self._tool.parameters, arguments)
            argv = _argv(self._tool.command, values)
            stdin = _filled(self._tool.stdin or "", values) or ""
        except BadArgument as error:
            return ToolResult(status="error", text=str(error))
        limit = min(self._tool.timeout_s, timeout_s or self._tool.timeout_s)
        return await self._run(argv, stdin.encode(), limit)

    async def _run(self, argv: list[str], stdin: bytes, limit_s: float) -> ToolResult:
        try:
            with tempfile.TemporaryDirectory(prefix="stockade-tool-") as folder:
                process = await anyio.open_process(
                    argv,
                    stdin=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    env=self._environment,
                    start_new_session=True,
                )
                try:
                    return await _result(process, stdin, limit_s)
                finally:
                    await _end(process)
        except OSError as error:
            return ToolResult(status="error", text=f"{argv[0]} cannot be run on the host: {error.strerror}")


async def _end(process: Process) -> None:
    """All of its session."""
    with anyio.CancelScope(shield=True):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.aclose()


async def _result(process: Process, stdin: bytes, limit_s: float) -> ToolResult:
    output = _Output()
    with anyio.move_on_after(limit_s) as patience:
        async with anyio.create_task_group() as group:
            group.start_soon(_feed, process, stdin)
            group.start_soon(output.read, process)
            await process.wait()
            with anyio.move_on_after(_LAST_WORDS_S):  # what it left running may hold its output open
                await output.ended.wait()
            group.cancel_scope.cancel()
    text = output.text
    if patience.cancelled_caught:
        return ToolResult(status="error", text=f"it took longer than {limit_s:g} s and was ended\n{text}".rstrip())
    if process.returncode:
        return ToolResult(status="error", text=f"it ended with status {process.returncode}\n{text}".rstrip())
    return ToolResult(status="data" if text.strip() else "success", text=text.rstrip() or "done")


@dataclass(slots=True)
class _Output:
    """The first MAX_OUTPUT_BYTES of what a program says."""

    kept: bytearray = field(default_factory=bytearray)
    cut: int = 0
    ended: anyio.Event = field(default_factory=anyio.Event)

    async def read(self, process: Process) -> None:
        assert process.stdout is not None
        async for piece in process.stdout:
            room = MAX_OUTPUT_BYTES - len(self.kept)
            self.kept += piece[:room]
            self.cut += max(0, len(piece) - room)
        self.ended.set()

    @property
    def text(self) -> str:
        text = bytes(self.kept).decode(errors="replace")
        return f"{text}\n[{self.cut} more bytes]" if self.cut else text


async def _feed(process: Process, data: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(anyio.BrokenResourceError):
        if data:
            await process.stdin.send(data)
    await process.stdin.aclose()


def _checked(parameters: Mapping[str, Parameter], arguments: Mapping[str, Any]) -> dict[str, str]:
    """The arguments as words. BadArgument names the first that is wrong."""
    for name in arguments:
        if name not in parameters:
            raise BadArgument(f"there is no argument {name!r:.100}; arguments are: {', '.join(parameters) or 'none'}")
    missing = [name for name, one in parameters.items() if one.required and name not in arguments]
    if missing:
        raise BadArgument(f"the argument {missing[0]} is missing")
    return {name: _word(name, parameters[name], value) for name, value in arguments.items()}


def _word(name: str, parameter: Parameter, value: Any) -> str:
    kinds: dict[str, tuple[type, ...]] = {
        "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)
    }  # fmt: skip
    if not isinstance(value, kinds[parameter.type]) or (isinstance(value, bool) and parameter.type != "boolean"):
        raise BadArgument(f"the argument {name} must be of type {parameter.type}")
    try:
        word = ("true" if value else "false") if isinstance(value, bool) else str(value)
        size = len(word.encode())
    except ValueError:  # half a surrogate pair, or a number of more digits than Python writes
        raise BadArgument(f"the argument {name} cannot be written as text") from None
    if "\0" in word or size > MAX_ARGUMENT_BYTES:
        raise BadArgument(f"the argument {name} holds a NUL byte or is longer than {MAX_ARGUMENT_BYTES} bytes")
    if parameter.choices and word not in parameter.choices:
        raise BadArgument(f"the argument {name} must be one of: {', '.join(parameter.choices)}")
    return word


def _filled(word: str, values: Mapping[str, str]) -> str | None:
    """None when it needs an argument that was not given."""
    if any(name not in values for name in PLACEHOLDER.findall(word)):
        return None
    return PLACEHOLDER.sub(lambda found: values[found[1]], word)


def _argv(template: tuple[str, ...], values: Mapping[str, str]) -> list[str]:
    """Each word of the template is one of the command; a word with an argument that was not given is left out.

    BadArgument when a value would be taken for an option; after a word `--` there are none.
    """
    argv: list[str] = []
    for word in template:
        filled = _filled(word, values)
        if filled is None:
            continue
        begins = PLACEHOLDER.match(word)
        if begins and filled.startswith("-") and "--" not in argv:
            raise BadArgument(f"the argument {begins[1]} must not begin with '-'")
        argv.append(filled)
    return argv
