"""Files of a sandbox, by programs that every root has: a POSIX shell, `stat -c`, `xargs -0`, and `tar` for folders.

Errors are Python's own for files. What comes out is hostile: names, links and archives are whatever is inside.
"""

import errno
import io
import os
import shutil
import stat
import tarfile
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from anyio import to_thread

from stockade_sandbox.errors import ActionFailed
from stockade_sandbox.results import ExecResult
from stockade_sandbox.running import AsyncProgram

FILE_S = 600.0
MAX_FILE = 100 << 20
MAX_FOLDER = 4 << 30
_PIECE = 1 << 18
_HEADERS = 1 << 20
_ENTRY, _DEPTH = 4096, 256
_ERRORS = {
    os.strerror(number): number
    for number in (errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTEMPTY,
                   errno.ENAMETOOLONG, errno.ELOOP, errno.ENOSPC, errno.EROFS, errno.EFBIG, errno.EDQUOT, errno.EINVAL)
}  # fmt: skip
_THERE = 'ls -d -- "$1" > /dev/null || exit 1; '
_NO_PIPE = 'if [ -e "$1" ] && [ ! -f "$1" ] && [ ! -d "$1" ]; then echo "$1: Invalid argument" >&2; exit 1; fi; '
"""Nobody waits for the other end of one."""
_IN_FOLDER = 'if [ -e "$2" ] && [ ! -d "$2" ]; then echo "$2: Not a directory" >&2; exit 1; fi; '
_READ = _NO_PIPE + 'exec cat -- "$1"'
_WRITE = _NO_PIPE + _IN_FOLDER + 'mkdir -p -- "$2" && cat > "$1"'
_STAT = 'stat {follow} -c "%f %s %Y" -- "$1" && if [ -L "$1" ]; then readlink -n -- "$1"; fi'
_LIST = """ls -a -- "$1/" > /dev/null || exit 1
cd -- "$1" || exit 1
names() {
  for name in * .[!.]* ..?*; do
    if [ -e "$name" ] || [ -L "$name" ]; then printf '%s\\0' "$name"; fi
  done
}
names
printf '\\0'
names | xargs -0 -r stat -c '%f %s %Y' --"""
_MAKE = {
    (False, False): 'mkdir -- "$1"',
    (False, True): '[ -d "$1" ] || mkdir -- "$1"',
    (True, False): 'mkdir -p -- "$2" && mkdir -- "$1"',
    (True, True): 'mkdir -p -- "$1"',
}
_REMOVE = _THERE + 'if [ -d "$1" ] && [ ! -L "$1" ]; then rmdir -- "$1"; else rm -f -- "$1"; fi'
_REMOVE_ALL = _THERE + 'rm -rf -- "$1"'
_PACK = _THERE + 'cd -- "$1" && exec tar -cf - .'
_UNPACK = 'mkdir -p -- "$1" && cd -- "$1" && exec tar -xpof -'

_WORDS = 4096
"""Bytes for why it failed, beside the output."""

Kind = Literal["file", "directory", "symlink", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    """`name` is the last part of the path; `mtime` in seconds; `target` a link's, as it is written there."""

    name: str
    kind: Kind
    size: int
    mode: int
    mtime: int
    target: str | None = None


class Files(ABC):
    """The calls on files of a sandbox. Paths are relative to where its shell is. Raised are FileNotFoundError,
    IsADirectoryError, NotADirectoryError, PermissionError, FileExistsError and other OSErrors, with their path inside;
    TimeoutError; SandboxDied.
    """

    @abstractmethod
    async def _run(self, argv: Sequence[str], stdin: bytes, max_output: int) -> ExecResult:
        """A program, where the shell is."""

    @abstractmethod
    def start(self, argv: Sequence[str], *, timeout: float) -> AbstractAsyncContextManager[AsyncProgram]: ...

    async def _done(self, script: str, path: str, stdin: bytes = b"", max_output: int = 1 << 20) -> bytes:
        """What it printed; the folder of `path` is its second argument."""
        done = await self._run(_argv(script, path), stdin, max_output + _WORDS)
        if done.timed_out or done.exit_code:
            raise _error(done.stderr, path, timed_out=done.timed_out)
        if done.truncated_bytes or len(done.stdout) > max_output:
            raise OSError(errno.EFBIG, f"larger than {max_output} bytes", path)
        return done.stdout

    async def read_file(self, path: str, *, max_bytes: int = MAX_FILE) -> bytes:
        """The whole file. OSError (EFBIG) for one that is larger."""
        return await self._done(_READ, path, b"", max_bytes)

    async def write_file(self, path: str, data: bytes | str) -> None:
        """A whole file, its parents made; text as UTF-8. What was there keeps its mode."""
        given = data.encode() if isinstance(data, str) else data
        if len(given) < _PIECE:
            await self._done(_WRITE, path, given)
            return
        pieces = (given[at : at + _PIECE] for at in range(0, len(given), _PIECE))
        await self._fed(_WRITE, path, lambda: next(pieces, b""))

    async def stat(self, path: str, *, follow: bool = True) -> FileStat:
        """Of what a link leads to, or with `follow` false of the link itself."""
        line, _, target = (await self._done(_STAT.format(follow="-L" if follow else ""), path)).partition(b"\n")
        return _stat(PurePosixPath(path).name, line, None if follow else os.fsdecode(target))

    async def list_dir(self, path: str = ".") -> tuple[FileStat, ...]:
        """What is in a folder, by name; links are not followed, nor their targets read."""
        found = await self._done(_LIST, path, b"", MAX_FILE)
        text, _, stats = found.partition(b"\0\0") if not found.startswith(b"\0") else (b"", b"", b"")
        names, lines = [os.fsdecode(name) for name in text.split(b"\0") if name], stats.splitlines()
        if len(names) != len(lines):
            raise OSError(errno.EAGAIN, "it was changed while it was read", path)
        return tuple(_stat(name, line, None) for name, line in sorted(zip(names, lines, strict=True)))

    async def make_dir(self, path: str, *, parents: bool = False, exist_ok: bool = False) -> None:
        await self._done(_MAKE[parents, exist_ok], path)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """A file, a link, or an empty folder; `recursive`: with all that is in it."""
        await self._done(_REMOVE_ALL if recursive else _REMOVE, path)

    async def exists(self, path: str) -> bool:
        """Whether there is anything; a link that leads nowhere is nothing."""
        return bool(await self._done('if [ -e "$1" ]; then echo; fi', path))

    async def copy_in(self, host: str | Path, path: str) -> None:
        """A file or folder of the host, with modes (no set-uid bits) and links as they are; what is neither is left
        out. `path` is its new name.
        """
        with tempfile.TemporaryFile() as archive:
            if (mode := await to_thread.run_sync(_packed, Path(host), archive)) is not None:
                await self._fed(_WRITE, path, lambda: archive.read(_PIECE))
                await self._done(f'chmod {mode:o} -- "$1"', path)
                return
            await self._fed(_UNPACK, path, lambda: archive.read(_PIECE))

    async def copy_out(self, path: str, host: str | Path, *, max_bytes: int = MAX_FOLDER) -> tuple[str, ...]:
        """A file or folder of the sandbox to a new name on the host. Nothing is written through a link or outside of
        it. Returned is what was left out: devices, sockets, and links that lead out, or may: `..` after a name.
        FileExistsError when `host` is there; OSError (EFBIG) for more than `max_bytes`.
        """
        found = await self.stat(path)
        if found.kind not in ("file", "directory"):
            raise OSError(errno.EINVAL, "it is neither a file nor a folder", path)
        is_file, total = found.kind == "file", 0
        with tempfile.TemporaryFile() as got:
            async with aclosing(self._read(_READ if is_file else _PACK, path)) as pieces:
                async for piece in pieces:
                    total += len(piece)
                    if total > max_bytes:
                        raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", path)
                    got.write(piece)
            got.seek(0)
            if not is_file:
                return await to_thread.run_sync(unpack, got, Path(host), max_bytes)
            await to_thread.run_sync(_put, got, str(host), found.mode & 0o777)
            return ()

    async def _read(self, script: str, path: str) -> AsyncGenerator[bytes, None]:
        async with self.start(_argv(script, path), timeout=FILE_S) as program:
            await program.close_stdin()
            async for piece in program:
                yield piece
            await _ended(program, path)

    async def _fed(self, script: str, path: str, more: Callable[[], bytes]) -> None:
        async with self.start(_argv(script, path), timeout=FILE_S) as program:
            with suppress(BrokenPipeError):
                while piece := await to_thread.run_sync(more):
                    await program.write(piece)
            await program.close_stdin()
            await _ended(program, path)


def _argv(script: str, path: str) -> list[str]:
    """The path never is an option, and its folder is worked out here: a shell would lose newlines at its end."""
    if not path or "\0" in path:
        raise FileNotFoundError(errno.ENOENT, "no name of a file", path)
    name = path if path.startswith("/") else f"./{path}"
    return ["sh", "-c", f"export LC_ALL=C; {script}", "sh", name, str(PurePosixPath(name).parent)]


async def _ended(program: AsyncProgram, path: str) -> None:
    said = await program.read_error()
    if await program.wait():
        raise _error(said, path, timed_out=program.timed_out)


def _error(said: bytes, path: str, *, timed_out: bool) -> OSError:
    """By the words of the C library, in which programs say why."""
    if timed_out:
        return TimeoutError(errno.ETIMEDOUT, f"not done in {FILE_S:g} s", path)
    lines = said.decode(errors="replace").strip().splitlines()
    words = lines[-1].rpartition(": ")[2] if lines else "it failed without a word"
    return OSError(_ERRORS.get(words, errno.EIO), words, path)


def _stat(name: str, line: bytes, target: str | None) -> FileStat:
    try:
        mode, size, mtime = (int(part, base) for part, base in zip(line.split(), (16, 10, 10), strict=True))
    except ValueError:
        raise OSError(errno.EIO, "its stat said nonsense", name) from None
    kinds: dict[int, Kind] = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
    kind = kinds.get(stat.S_IFMT(mode), "other")
    at = target if kind == "symlink" else None
    return FileStat(name=name, kind=kind, size=size, mode=stat.S_IMODE(mode), mtime=mtime, target=at)


def _put(source: IO[bytes], name: str, mode: int, at: int | None = None) -> None:
    """A new file."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=at)
    with os.fdopen(fd, "wb") as file:
        while piece := source.read(_PIECE):
            file.write(piece)


def _packed(source: Path, archive: IO[bytes]) -> int | None:
    """In `archive`, read from its start, the bytes of a file, whose mode is returned, or an archive of a folder. Owners
    stay behind: what is in a sandbox is its user's.
    """
    if not source.is_dir():
        with os.fdopen(os.open(source, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise OSError(errno.EINVAL, "it is neither a file nor a folder", str(source))
            shutil.copyfileobj(file, archive)
        archive.seek(0)
        return mode & 0o777

    def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = 0
        member.mode &= 0o777
        member.uname = member.gname = ""
        return member if member.isreg() or member.isdir() or member.issym() or member.islnk() else None

    with tarfile.open(fileobj=archive, mode="w", dereference=False) as out:
        out.add(source, ".", filter=kept)
    archive.seek(0)
    return None


class _Archive(io.RawIOBase):
    """Its headers may ask for any number of bytes to be read at once: `room` says how many are to be had."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.room = file, _HEADERS

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self.room:
            raise tarfile.ReadError("headers larger than any")
        self.room -= size
        return self._file.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def unpack(file: IO[bytes], target: Path, max_bytes: int) -> tuple[str, ...]:
    """ActionFailed for what is no archive of a folder. Where it fails, `target` is gone again. What has no bytes counts
    as _ENTRY of `max_bytes`, as files do beside theirs: a million empty files are a bomb too.
    """
    target.mkdir()
    root = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    archive, left, room = _Archive(file), list[str](), max_bytes
    try:
        with tarfile.open(fileobj=archive, mode="r:") as packed:
            while (member := packed.next()) is not None:
                packed.members.clear()  # type: ignore[attr-defined]  # millions would fill the memory
                parts = [part for part in member.name.split("/") if part not in ("", ".")]
                if ".." in parts or member.name.startswith("/") or member.size < 0:
                    raise ActionFailed(f"the archive holds {member.name!r}, which is no name or no file of a folder")
                if len(parts) > _DEPTH:
                    raise ActionFailed(f"the archive holds a path of {len(parts)} parts; it may have {_DEPTH}")
                if (room := room - _ENTRY - (member.size if member.isreg() else 0)) < 0:
                    raise OSError(errno.EFBIG, f"larger than {max_bytes} bytes", "/".join(parts))
                archive.room = member.size
                if parts and not _placed(packed, member, parts, root):
                    left.append("/".join(parts))
                archive.room = _HEADERS
    except BaseException as error:
        shutil.rmtree(target)
        if isinstance(error, (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError)):
            raise ActionFailed(f"no archive of a folder: {error}") from None
        raise
    finally:
        os.close(root)
    return tuple(left)


def _folder(parts: list[str], root: int) -> int:
    """A descriptor of its own. No part of the path is followed as a link."""
    at = os.dup(root)
    for part in parts:
        try:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
        finally:
            os.close(at)
        at = inner
    return at


def _placed(packed: tarfile.TarFile, member: tarfile.TarInfo, parts: list[str], root: int) -> bool:
    """Whether it is what can be put there."""
    name, at = parts[-1], -1
    try:
        at = _folder(parts[:-1], root)
        if member.isdir():
            with suppress(FileExistsError):
                os.mkdir(name, 0o700 | member.mode & 0o777, dir_fd=at)
        elif member.issym() and _stays(parts[:-1], member.linkname):
            os.symlink(member.linkname, name, dir_fd=at)
        elif member.islnk():
            _link(member.linkname, root, name, at)
        elif member.isreg() and (source := packed.extractfile(member)) is not None:
            _put(source, name, member.mode & 0o777, at)
        else:
            return False
    except (NotADirectoryError, FileNotFoundError, FileExistsError) as error:
        raise ActionFailed(f"the archive holds {member.name!r} twice, or below what is no folder") from error
    finally:
        if at >= 0:
            os.close(at)
    return True


def _link(target: str, root: int, name: str, at: int) -> None:
    """To a file that came before, by a path from the root: to a link it would be one that nobody has looked at."""
    *parts, last = [part for part in target.split("/") if part not in ("", ".")] or [""]
    if ".." in (*parts, last):
        raise FileNotFoundError(errno.ENOENT, "it leads out", target)
    place = _folder(parts, root)
    try:
        if not stat.S_ISREG(os.stat(last, dir_fd=place, follow_symlinks=False).st_mode):
            raise FileNotFoundError(errno.ENOENT, "no file that came before", target)
        os.link(last, name, src_dir_fd=place, dst_dir_fd=at, follow_symlinks=False)
    finally:
        os.close(place)


def _stays(folder: list[str], target: str) -> bool:
    """Whether a link in `folder` leads to a place of the tree, whatever the links are that it leads through: it goes up
    from where it is, which is no link, and then only down.
    """
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    return up <= len(folder) and ".." not in parts[up:] and not target.startswith("/")
