"""read_file, write_file, edit_file: exact bytes, done by programs in the sandbox as the bot's own user.

What is written goes into the file that is there: its mode, its links and its owner stay. Lines are counted as `sed` and
`grep` count them, by line feeds alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stockade.core.actions import EditFile, FileContent, FileWritten, ReadFile, WriteFile
from stockade.core.errors import ActionFailed
from stockade.core.ports import ExecResult, Sandbox

MAX_LINES = 2000
"""Of one call."""
MAX_READ_BYTES = 4 << 20
MAX_PLACES = 10
"""Line numbers that are named in a message."""
_TIMEOUT_S = 20
_ERROR_BYTES = 4096
"""For what a program says beside the content."""
_NOT_FOUND, _IS_FOLDER, _NO_ACCESS, _NOT_REGULAR, _EXISTS = range(44, 49)
_PROBLEMS = {
    _NOT_FOUND: "File not found",
    _IS_FOLDER: "Is a directory",
    _NO_ACCESS: "Permission denied",
    _NOT_REGULAR: "Not a regular file",
    _EXISTS: "an empty `old` makes a new file, and this one exists: give the text to replace, or use write_file",
}
_COUNT = 'echo $(wc -l < "$1") $(wc -c < "$1") $(tail -c 1 -- "$1" | wc -l)'
"""Line feeds, bytes, and whether the last one is a line feed."""
_READ = f"""
if [ -d "$1" ]; then exit {_IS_FOLDER}; elif [ ! -e "$1" ]; then exit {_NOT_FOUND}
elif [ ! -f "$1" ]; then exit {_NOT_REGULAR}; elif [ ! -r "$1" ]; then exit {_NO_ACCESS}; fi
"""
_READ_ALL = f'{_READ}exec cat -- "$1"'
_READ_LINES = f'{_READ}{_COUNT}; tail -n "+$2" -- "$1" | head -n "$3"'
_WRITE = f"""
if [ -d "$1" ]; then exit {_IS_FOLDER}; elif [ -e "$1" ] && [ ! -f "$1" ]; then exit {_NOT_REGULAR}; fi
if [ -e "$1" ] && [ "$3" = new ]; then exit {_EXISTS}; fi
if [ -f "$1" ] && [ -r "$1" ]; then {_COUNT}; head -c "$2" -- "$1"; fi
case $1 in */) ;; */*) d=${{1%/*}}; [ -d "${{d:-/}}" ] || mkdir -p -- "$d" ;; esac
exec cat > "$1"
"""
"""Says how long what was there is, and at most $2 bytes of it. One program: each costs milliseconds."""


@dataclass(frozen=True, slots=True)
class FileActions:
    """In one sandbox. `documents`: the bot has a tool that reads what is no text."""

    sandbox: Sandbox
    documents: str | None = None

    async def do(self, action: ReadFile | WriteFile | EditFile) -> FileContent | FileWritten:
        """ActionFailed, naming the file and the way out, where it cannot be done."""
        if not action.path or "\0" in action.path:
            raise ActionFailed("the path is empty or holds a NUL byte")
        match action:
            case ReadFile():
                return await self._read(action)
            case WriteFile():
                return await self._write(action.path, _utf8(action.content))
            case EditFile():
                return await self._edit(action.path, _utf8(action.old), _utf8(action.new), action.replace_all)

    async def _read(self, action: ReadFile) -> FileContent:
        path, first = action.path, action.start or 1
        if action.end is not None and action.end < first:
            raise ActionFailed(f"{path}: line {action.end}, the last one asked for, is before line {first}")
        count = min(MAX_LINES, action.end - first + 1 if action.end is not None else MAX_LINES)
        result = await self._run(_READ_LINES, (path, str(first), str(count)), b"", MAX_READ_BYTES)
        if result.truncated_bytes:
            raise ActionFailed(
                f"{path}: {count} lines from line {first} are more than {MAX_READ_BYTES} bytes: read fewer"
            )
        head, _, data = result.stdout.partition(b"\n")
        total, size = _counts(head)
        if first > max(total, 1):
            raise ActionFailed(f"{path} has {_lines(total)}: there is no line {first}")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            way = f"read it with {self.documents}" if self.documents else "look at it with the shell (file, xxd)"
            raise ActionFailed(f"{path} is binary, no UTF-8 text ({size} bytes): {way}")
        last = min(total, first + count - 1)
        return FileContent(path=path, text=text, first=min(first, total), last=last, total=total)

    async def _write(self, path: str, data: bytes, how: str = "", at: Sequence[int] = ()) -> FileWritten:
        most = len(data) + 1
        result = await self._run(_WRITE, (path, str(most), how), data, most + _ERROR_BYTES)
        head, newline, before = result.stdout.partition(b"\n")
        lines_before, size_before = _counts(head) if newline else (None, None)
        return FileWritten(
            path=path, size=len(data), lines=_count_lines(data), same=bool(newline) and before == data,
            size_before=size_before, lines_before=lines_before, replaced=tuple(at),
        )  # fmt: skip

    async def _edit(self, path: str, old: bytes, new: bytes, everywhere: bool) -> FileWritten:
        if not old:
            return await self._write(path, new, "new")
        result = await self._run(_READ_ALL, (path,), b"", MAX_READ_BYTES)
        if result.truncated_bytes:
            raise ActionFailed(f"{path} is larger than {MAX_READ_BYTES} bytes: edit it with the shell")
        data = result.stdout
        at = [data.count(b"\n", 0, index) + 1 for index in _places(data, old, apart=everywhere)]
        if not at:
            raise ActionFailed(f"`old` does not stand in {path} ({_lines(_count_lines(data))}){_why_not(data, old)}")
        if len(at) > 1 and not everywhere:
            raise ActionFailed(
                f"`old` stands {len(at)} times in {path}, at {_named(at)}: it must stand there exactly once;"
                " give more of the text around it, or replace_all"
            )
        return await self._write(path, data.replace(old, new), at=at)

    async def _run(self, script: str, args: Sequence[str], stdin: bytes, most: int) -> ExecResult:
        result = await self.sandbox.exec(["sh", "-c", script, "sh", *args], stdin, _TIMEOUT_S, most)
        if result.exit_code:
            # A program's last line ends with the cause: "sh: 6: cannot create a.txt: Read-only file system".
            complaint = result.stderr.decode(errors="replace").strip().rpartition("\n")[2].rpartition(": ")[2]
            cause = _PROBLEMS.get(result.exit_code) or complaint or f"exit status {result.exit_code}"
            raise ActionFailed(f"{args[0]}: {cause}")
        return result


def written(done: FileWritten) -> str:
    """What was written, in numbers."""
    if done.lines is None:
        return f"{done.path}: {done.size} bytes were written."
    if done.same:
        return f"{done.path} already held exactly that ({_lines(done.lines)})."
    parts = [f"replaced at {_named(done.replaced)}"] if done.replaced else []
    if done.lines_before is None:
        parts.append(f"new, {_lines(done.lines)}")
    elif done.lines_before == done.lines:
        parts.append(f"{_lines(done.lines)} as before, {done.size_before} bytes became {done.size}")
    else:
        parts.append(f"{_lines(done.lines_before)} became {done.lines}")
    return f"{done.path}: {'; '.join(parts)}."


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ActionFailed("the text holds half a character (a lone surrogate), which UTF-8 cannot carry") from None


def _counts(head: bytes) -> tuple[int, int]:
    """Lines and bytes, of what _COUNT says."""
    feeds, size, ended = map(int, head.split())
    return feeds + (1 if size and not ended else 0), size


def _count_lines(data: bytes) -> int:
    return data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)


def _places(data: bytes, old: bytes, *, apart: bool) -> list[int]:
    """Where `old` stands; `apart`: none of them in another, as they are replaced."""
    positions, at = [], data.find(old)
    while at >= 0:
        positions.append(at)
        at = data.find(old, at + (len(old) if apart else 1))
    return positions


def _why_not(data: bytes, old: bytes) -> str:
    if b"\n" in old and old.replace(b"\n", b"\r\n") in data:
        return ": its lines end in CR LF, those of `old` in LF"
    return ": read it and copy the text exactly"


def _lines(count: int) -> str:
    return f"{count} line" if count == 1 else f"{count} lines"


def _named(lines: Sequence[int]) -> str:
    listed = ", ".join(map(str, lines[:MAX_PLACES])) + (" ..." if len(lines) > MAX_PLACES else "")
    return f"line {listed}" if len(lines) == 1 else f"{len(lines)} places (lines {listed})"
