"""One action: execute, observe. What an action could not do is for the bot; what broke is for the host."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from stockade.core.actions import (
    Action,
    Answered,
    AskUser,
    EditFile,
    Failed,
    FileContent,
    FileWritten,
    Observation,
    ReadFile,
    Shell,
    SubTask,
    ToolCall,
    WriteFile,
)
from stockade.core.errors import ActionFailed
from stockade.core.ports import Asker, Sandbox
from stockade.loop.tools import NO_TOOLS, Tools

Help = Callable[[SubTask], Awaitable[Observation]]
MAX_READ_BYTES = 4 << 20
_DOCUMENTS = "read_document"
"""Takes what is no text, where the bot has it."""
_ERROR_BYTES = 4096
"""For what a program says beside the content."""
_NOT_FOUND, _IS_FOLDER, _NO_ACCESS, _NOT_REGULAR = 44, 45, 46, 47
_PROBLEMS = {
    _NOT_FOUND: "File not found",
    _IS_FOLDER: "Is a directory",
    _NO_ACCESS: "Permission denied",
    _NOT_REGULAR: "Not a regular file",
}
_READ = f"""
if [ -d "$1" ]; then exit {_IS_FOLDER}; elif [ ! -e "$1" ]; then exit {_NOT_FOUND}
elif [ ! -f "$1" ]; then exit {_NOT_REGULAR}; elif [ ! -r "$1" ]; then exit {_NO_ACCESS}; fi
exec cat -- "$1"
"""
_WRITE = f"""
if [ -d "$2" ]; then exit {_IS_FOLDER}; elif [ -e "$2" ] && [ ! -f "$2" ]; then exit {_NOT_REGULAR}; fi
if [ -f "$2" ] && [ -r "$2" ]; then printf x; head -c "$1" -- "$2"; fi
case $2 in */) ;; */*) d=${{2%/*}}; [ -d "${{d:-/}}" ] || mkdir -p -- "$d" ;; esac
exec cat > "$2"
"""
"""Says at most $1 bytes of what was there, behind an x when something was. One program: each costs milliseconds."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Does actions in one sandbox, as they were written. Without `tools`, `asker`, `help` only those of the sandbox.

    `help` does a task that the bot hands on.
    """

    sandbox: Sandbox
    command_timeout_s: float | None = None
    tools: Tools = NO_TOOLS
    asker: Asker | None = None
    help: Help | None = None

    async def do(self, action: Action, seconds_left: float | None) -> Observation:
        """What came of it. Raises only what ends the run: SandboxDied and other SandboxFailed."""
        try:
            match action:
                case Shell():
                    return await self.sandbox.run(action.command, self._timeout(action.timeout_s, seconds_left))
                case ReadFile():
                    return await self._read(action)
                case WriteFile():
                    return await self._write(action.path, action.content)
                case EditFile():
                    return await self._edit(action)
                case ToolCall():
                    return await self.tools.call(action, self._timeout(None, seconds_left))
                case AskUser():
                    return await self._ask(action)
                case SubTask() if self.help is not None:
                    return await self.help(action)
                case _:
                    return Failed(message=f"this bot cannot do {action.tool}")
        except ActionFailed as error:
            return Failed(message=error.message)

    async def _ask(self, action: AskUser) -> Observation:
        answer = await self.asker.ask(action.question) if self.asker is not None else None
        if answer is None:
            raise ActionFailed("nobody is there to answer: decide yourself, or finish and say what you need to know")
        return Answered(text=answer)

    def _timeout(self, asked_s: float | None, left_s: float | None) -> float | None:
        bounds = [bound for bound in (asked_s, self.command_timeout_s or None, left_s) if bound is not None]
        return min(bounds, default=None)

    async def _text(self, path: str) -> str:
        _check(path)
        result = await self.sandbox.exec(["sh", "-c", _READ, "sh", path], timeout_s=20, max_output_bytes=MAX_READ_BYTES)
        _explain(result.exit_code, path, result.stderr)
        if result.truncated_bytes:
            raise ActionFailed(f"{path} is larger than {MAX_READ_BYTES} bytes: read it in parts with the shell")
        try:
            return result.stdout.decode()
        except UnicodeDecodeError:
            better = _DOCUMENTS in self.tools.boxes
            way = f"read it with {_DOCUMENTS}" if better else "look at it with the shell (file, xxd)"
            raise ActionFailed(f"{path} is not UTF-8 text: {way}") from None

    async def _read(self, action: ReadFile) -> Observation:
        lines = (await self._text(action.path)).splitlines(keepends=True)
        first = min(action.start or 1, max(1, len(lines)))
        last = min(action.end or len(lines), len(lines))
        return FileContent(
            path=action.path, text="".join(lines[first - 1 : last]), first=min(first, last), last=last, total=len(lines)
        )

    async def _write(self, path: str, content: str) -> FileWritten:
        _check(path)
        data = content.encode(errors="replace")
        most = len(data) + 1
        argv = ["sh", "-c", _WRITE, "sh", str(most), path]
        result = await self.sandbox.exec(argv, stdin=data, timeout_s=20, max_output_bytes=most + _ERROR_BYTES)
        _explain(result.exit_code, path, result.stderr)
        return FileWritten(path=path, size=len(data), same=result.stdout == b"x" + data)

    async def _edit(self, action: EditFile) -> Observation:
        text = await self._text(action.path)
        if (count := text.count(action.old)) != 1:
            found = "does not stand in" if not count else f"stands {count} times in"
            raise ActionFailed(f"the old text {found} {action.path}: it must stand there exactly once")
        return await self._write(action.path, text.replace(action.old, action.new))


def _check(path: str) -> None:
    if not path or "\0" in path:
        raise ActionFailed("the path is empty or holds a NUL byte")


def _explain(status: int, path: str, stderr: bytes) -> None:
    if status == 0:
        return
    # A program's last line ends with the cause: "sh: 6: cannot create a.txt: Read-only file system".
    said = stderr.decode(errors="replace").strip().rpartition("\n")[2].rpartition(": ")[2]
    raise ActionFailed(f"{path}: {_PROBLEMS.get(status) or said or f'exit status {status}'}")
