"""Programs as tools: one that is installed in the sandbox and called by the shell, Python itself, and one of the host.

A host program gets an argument list, never a shell, made of the tool's words and the bot's arguments.
"""

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os.path import expanduser
from pathlib import Path
from typing import Any, Self

import anyio
from anyio.abc import Process
from pydantic import ValidationError

from stockade.core.actions import ToolResult
from stockade.core.data import wrong_words
from stockade.core.errors import ActionFailed, CommandFailed, SandboxFailed, UsageError
from stockade.core.ports import ExecResult, Sandbox
from stockade.core.tools import ToolSpec
from stockade.paths import read_regular
from stockade.tools.function import Tools, failure
from stockade.tools.tool_files import PLACEHOLDER, CommandTool, ToolFile

MAX_FILE_BYTES = 64 << 20
_WRITE = 'mkdir -p -- "$(dirname -- "$1")" && rm -f -- "$1" && cat >"$1" && chmod -- "$2" "$1"'
_OUTPUT_BYTES = 256 << 10
NAME = "python"
MAX_CODE_BYTES = 1_000_000
MAX_PRINTED_BYTES = 200_000
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
MAX_ARGUMENT_BYTES = 100_000
MAX_OUTPUT_BYTES = 64 << 10
_LAST_WORDS_S = 0.5
_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "USER", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR",
           "DBUS_SESSION_BUS_ADDRESS", "TZ")  # fmt: skip
"""What a program of a user's session needs; keys and tokens are passed only by name."""


async def ran(box: Sandbox, command: str, timeout_s: float | None = None) -> ExecResult:
    """Bash beside the shell, its errors among its output."""
    argv = ["/bin/bash", "-c", f"exec 2>&1\n{command}"]
    return await box.exec(argv, b"", timeout_s, _OUTPUT_BYTES)


def last_lines(result: ExecResult, lines: int = 15) -> tuple[str, ...]:
    """The end of a command's output, printable."""
    text = result.stdout.decode(errors="replace")[-20_000:]
    kept = [line.rstrip()[:300] for line in text.splitlines() if line.strip()][-lines:]
    return tuple("".join(char if char.isprintable() else " " for char in line) for line in kept)


def failed(
    tool: CommandTool, what: str, command: str, result: ExecResult, before: ExecResult | None, refused: Sequence[str]
) -> CommandFailed:
    """Of a command of the tool, with the end of what it said, and of the one `before` it that failed as well."""
    how = "ran out of time" if result.timed_out else f"ended with status {result.exit_code}"
    said = last_lines(result)
    if before is not None and before.exit_code:
        said = (*last_lines(before, 5), *said)
    hint = None
    if refused:
        hint = "the network refused: " + "; ".join(dict.fromkeys(refused)) + "; name it in the tool's hosts"
    return CommandFailed(f"{what} {tool.name} failed: `{command}` {how}", said, hint)


def host_files(tool: CommandTool, *, installed: bool) -> Iterator[tuple[ToolFile, bytes]]:
    """The tool's files with what is in them: those of the installation, or those of each run. UsageError."""
    for file in tool.files:
        if file.installed != installed:
            continue
        path = Path(expanduser(Path(tool.folder, file.host)))
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
                    result = await ran(self._box, command)
                    if result.exit_code:
                        raise failed(tool, what, command, result, None, ())
        return self

    async def __aexit__(self, *_: object) -> None:
        """What fails here is nobody's loss: all of it was in the sandbox, which ends."""
        with anyio.CancelScope(shield=True), suppress(SandboxFailed):
            for tool in reversed(self._tools):
                for command in tool.uninstall:
                    await ran(self._box, command)


class PythonTool(Tools):
    """A fresh interpreter a call, as the bot's own user, where the shell is."""

    spec = SPEC

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__(self)
        self._sandbox = sandbox

    async def do(self, arguments: Mapping[str, Any], timeout_s: float | None) -> ToolResult:
        """What it printed and, where it failed, its exit status and what it wrote as errors."""
        code = arguments.get("code")
        if not isinstance(code, str) or not code.strip():
            return failure("code is missing: give the whole program as a text")
        data = code.encode(errors="replace")
        if len(data) > MAX_CODE_BYTES:
            return failure(f"the code is larger than {MAX_CODE_BYTES} bytes")
        limit_s = min(TIMEOUT_S, timeout_s or TIMEOUT_S)
        done = await self._sandbox.exec(["python3", "-c", _RUN], data, limit_s, MAX_PRINTED_BYTES)
        printed = (done.stdout + done.stderr).decode(errors="backslashreplace").rstrip("\n")
        if done.truncated_bytes:
            printed += f"\n[{done.truncated_bytes} bytes of the output were cut]"
        if done.timed_out:
            return failure(f"the program took longer than {limit_s:g} s and was ended\n{printed}".rstrip())
        if done.exit_code == _MISSING and not done.stdout:
            return failure(f"there is no Python in this sandbox: {printed}")
        if done.exit_code:
            return failure(f"exit status {done.exit_code}\n{printed}".rstrip())
        return ToolResult(status="success", text=printed or "The program has succeeded; it printed nothing.")


class ExternalTool(Tools):
    """One external tool; implements core.ports.Toolbox. The user has allowed it by name."""

    def __init__(self, tool: CommandTool, environ: Mapping[str, str]) -> None:
        self._tool, self.spec = tool, tool.spec
        super().__init__(self)
        passed = {name: environ[name] for name in (*_PASSED, *tool.pass_environment) if name in environ}
        self._environment = {**passed, **tool.environment}

    async def do(self, arguments: Mapping[str, Any], timeout_s: float | None) -> ToolResult:
        try:
            self._tool.arguments.validate_python(dict(arguments))
            values = {name: _word(name, value) for name, value in arguments.items()}
            argv = _argv(self._tool.command, values)
            stdin = _filled(self._tool.stdin or "", values) or ""
        except ValidationError as error:
            return failure(wrong_words(error))
        except ActionFailed as error:
            return failure(error.message)
        limit = min(self._tool.timeout_s, timeout_s or self._tool.timeout_s)
        return await self._run(argv, stdin.encode(), limit)

    async def _run(self, argv: list[str], stdin: bytes, limit_s: float) -> ToolResult:
        """In a session of its own, which ends as a whole. What it reads is a file, so it may leave it unread."""
        output, options = _Output(), dict[str, Any](env=self._environment, start_new_session=True)
        try:
            with tempfile.TemporaryDirectory(prefix="stockade-tool-") as folder, tempfile.TemporaryFile() as given:
                given.write(stdin)
                given.seek(0)
                process = await anyio.open_process(argv, stdin=given, stderr=subprocess.STDOUT, cwd=folder, **options)
                try:
                    with anyio.move_on_after(limit_s) as patience:
                        await output.of(process)
                finally:
                    with anyio.CancelScope(shield=True):
                        with suppress(ProcessLookupError):
                            os.killpg(process.pid, signal.SIGKILL)
                        await process.aclose()
        except OSError as error:
            return failure(f"{argv[0]} cannot be run on the host: {error.strerror}")
        if patience.cancelled_caught:
            return failure(f"it took longer than {limit_s:g} s and was ended\n{output.text}".rstrip())
        if process.returncode:
            return failure(f"it ended with status {process.returncode}\n{output.text}".rstrip())
        return ToolResult(status="data" if output.text.strip() else "success", text=output.text.rstrip() or "done")


@dataclass(slots=True)
class _Output:
    """The first MAX_OUTPUT_BYTES of what a program says."""

    kept: bytearray = field(default_factory=bytearray)
    cut: int = 0

    async def of(self, process: Process) -> None:
        """Until the program ends, and a moment longer: what it left running may hold its output open."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._read, process, ended := anyio.Event())
            await process.wait()
            with anyio.move_on_after(_LAST_WORDS_S):
                await ended.wait()
            group.cancel_scope.cancel()

    async def _read(self, process: Process, ended: anyio.Event) -> None:
        assert process.stdout is not None
        async for piece in process.stdout:
            room = MAX_OUTPUT_BYTES - len(self.kept)
            self.kept += piece[:room]
            self.cut += max(0, len(piece) - room)
        ended.set()

    @property
    def text(self) -> str:
        text = bytes(self.kept).decode(errors="replace")
        return f"{text}\n[{self.cut} more bytes]" if self.cut else text


def _word(name: str, value: Any) -> str:
    try:
        word = ("true" if value else "false") if isinstance(value, bool) else str(value)
        size = len(word.encode())
    except ValueError:  # half a surrogate pair, or a number of more digits than Python writes
        raise ActionFailed(f"the argument {name} cannot be written as text") from None
    if "\0" in word or size > MAX_ARGUMENT_BYTES:
        raise ActionFailed(f"the argument {name} holds a NUL byte or is longer than {MAX_ARGUMENT_BYTES} bytes")
    return word


def _filled(word: str, values: Mapping[str, str]) -> str | None:
    """None when it needs an argument that was not given."""
    if any(name not in values for name in PLACEHOLDER.findall(word)):
        return None
    return PLACEHOLDER.sub(lambda found: values[found[1]], word)


def _argv(template: tuple[str, ...], values: Mapping[str, str]) -> list[str]:
    """Each word of the template is one of the command; a word with an argument that was not given is left out.

    ActionFailed when a value would be taken for an option; after a word `--` there are none.
    """
    argv: list[str] = []
    for word in template:
        filled = _filled(word, values)
        if filled is None:
            continue
        begins = PLACEHOLDER.match(word)
        if begins and filled.startswith("-") and "--" not in argv:
            raise ActionFailed(f"the argument {begins[1]} must not begin with '-'")
        argv.append(filled)
    return argv
