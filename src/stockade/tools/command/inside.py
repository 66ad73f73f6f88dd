"""A command tool's doings in a sandbox: files and commands, beside the bot's shell."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio

from stockade.core.actions import ToolResult
from stockade.core.errors import CommandFailed, SandboxFailed, UsageError
from stockade.core.ports import ExecResult, Sandbox
from stockade.core.tools import ToolSpec
from stockade.files import read_regular
from stockade.tools.command.definition import CommandTool, ToolFile

MAX_FILE_BYTES = 64 << 20
_WRITE = 'mkdir -p -- "$(dirname -- "$1")" && rm -f -- "$1" && cat >"$1" && chmod -- "$2" "$1"'
_OUTPUT_BYTES = 256 << 10


async def ran(box: Sandbox, command: str, timeout_s: float | None = None) -> ExecResult:
    """Bash beside the shell, its errors among its output."""
    argv = ["/bin/bash", "-c", f"exec 2>&1\n{command}"]
    return await box.exec(argv, b"", timeout_s, _OUTPUT_BYTES)


def last_lines(result: ExecResult, lines: int = 15) -> tuple[str, ...]:
    """The end of a command's output, printable."""
    text = result.stdout.decode(errors="replace")[-20_000:]
    kept = [line.rstrip()[:300] for line in text.splitlines() if line.strip()][-lines:]
    return tuple("".join(char if char.isprintable() else " " for char in line) for line in kept)


def host_files(tool: CommandTool, *, installed: bool) -> Iterator[tuple[ToolFile, bytes]]:
    """The tool's files with what is in them: those of the installation, or those of each run. UsageError."""
    for file in tool.files:
        if file.installed != installed:
            continue
        path = Path(tool.folder, file.host).expanduser()
        try:
            data = read_regular(path, MAX_FILE_BYTES)
        except OSError as error:
            raise UsageError(f"the tool {tool.name} needs the file {path}: {error.strerror}") from error
        if len(data) > MAX_FILE_BYTES:
            raise UsageError(f"the tool {tool.name} needs {path}, which is larger than {MAX_FILE_BYTES} bytes")
        yield file, data


async def write_file(box: Sandbox, tool: str, file: ToolFile, data: bytes) -> None:
    """By whoever commands inside run as. UsageError when they may not write there."""
    result = await box.exec(["/bin/bash", "-c", _WRITE, "bash", file.inside, file.mode], data)
    if result.exit_code:
        words = result.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(f"the tool {tool} cannot have its file {file.inside}: {words[-1] if words else 'no reason'}")


class InstalledTools:
    """The programs of a run, seen by the bot only through its shell: implements core.ports.Toolbox without a tool.

    Entering puts files in place, verifies and sets up; leaving undoes that as the tools say, the last one first.
    """

    def __init__(self, tools: Sequence[CommandTool], box: Sandbox) -> None:
        self._tools = tuple(tools)
        self._box = box

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return ()

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float | None = None) -> ToolResult:
        raise KeyError(name)

    async def __aenter__(self) -> Self:
        for tool in self._tools:
            for file, data in host_files(tool, installed=False):
                await write_file(self._box, tool.name, file, data)
            for what, commands in (("verifying", tool.verify), ("setting up", tool.setup)):
                for command in commands:
                    await self._must(tool, what, command)
        return self

    async def _must(self, tool: CommandTool, what: str, command: str) -> None:
        result = await ran(self._box, command)
        if result.exit_code:
            how = "ran out of time" if result.timed_out else f"ended with status {result.exit_code}"
            said = last_lines(result)
            last = f": {said[-1]}" if said else ""
            raise CommandFailed(f"{what} {tool.name} failed: `{command}` {how}{last}", said)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What fails here is nobody's loss: all of it was in the sandbox, which ends."""
        with anyio.CancelScope(shield=True), suppress(SandboxFailed):
            for tool in reversed(self._tools):
                for command in tool.uninstall:
                    await ran(self._box, command)
