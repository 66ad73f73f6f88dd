"""Where an attack is tried: on bare ground, where it must get through, and in Stockade's sandbox by its own command."""

import contextlib
import hashlib
import json
import os
import pwd
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import termios
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PYTHON = "/usr/bin/python3"
PRELUDE = """
import ctypes, errno, fcntl, glob, mmap, os, re, signal, socket, struct, subprocess, sys, threading, time
print('began', flush=True)
libc = ctypes.CDLL(None, use_errno=True)
def hit(what): print('HIT', what, flush=True)
def attempt(function, *arguments):
    try:
        return function(*arguments)
    except (OSError, ValueError, AttributeError, PermissionError):
        return None
"""


@dataclass(frozen=True)
class User:
    """Who types the command: root, or somebody without rights."""

    name: str
    uid: int
    gid: int

    @property
    def other(self) -> bool:
        return self.uid != os.getuid()


def users() -> list[User]:
    """Those that this process can be: root is also an ordinary user."""
    if os.getuid():
        return [User("ordinary", os.getuid(), os.getgid())]
    try:
        ordinary = pwd.getpwnam("dev")
    except KeyError:
        ordinary = pwd.getpwnam("nobody")
    return [User("root", 0, 0), User("ordinary", ordinary.pw_uid, ordinary.pw_gid)]


@dataclass
class Answer:
    out: str
    err: str
    status: int

    @property
    def hits(self) -> list[str]:
        return [line[4:] for line in self.out.splitlines() if line.startswith("HIT ")]


@dataclass
class Ground(ABC):
    """A folder to work in, a private one beside it, a home, and ways to run things; as one user."""

    user: User
    base: Path
    sealed: bool = False
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for folder in (self.work, self.private, self.home, self.outside):
            folder.mkdir(parents=True, exist_ok=True)
        (self.private / "key").write_text("TOPSECRET\n")
        self.own()

    @property
    def work(self) -> Path:
        return self.base / "project" / "work"

    @property
    def private(self) -> Path:
        return self.base / "project" / "private"

    @property
    def outside(self) -> Path:
        return self.base / "project" / "outside"

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def mark(self) -> str:
        return "mark" + hashlib.sha256(str(self.base).encode()).hexdigest()[:12]

    def environment(self) -> dict[str, str]:
        given = {"HOME": str(self.home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "xterm"}
        if self.user.other:
            inside = Path(sys.prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
            sources = [ROOT / "packages" / "sandbox" / "src", ROOT / "packages" / "stockade" / "src", inside]
            given["PYTHONPATH"] = ":".join(map(str, sources))
        return given

    def own(self) -> None:
        """All below base is the user's."""
        if not os.getuid():
            for folder, names, files in os.walk(self.base):
                for name in (".", *names, *files):
                    os.lchown(os.path.join(folder, name), self.user.uid, self.user.gid)

    def popen(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        fds: Sequence[int] = (),
        first: Callable[[], None] | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        become = {"user": self.user.uid, "group": self.user.gid, "extra_groups": []} if self.user.other else {}
        process: subprocess.Popen[bytes] = subprocess.Popen(
            list(command),
            cwd=cwd or self.work,
            env={**self.environment(), **(env or {})},
            pass_fds=tuple(fds),
            preexec_fn=first,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            **become,  # type: ignore[call-overload]
        )
        self.started.append(process)
        return process

    def finish(self, process: subprocess.Popen[bytes], timeout: float = 150) -> Answer:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        return Answer(out.decode(errors="replace"), err.decode(errors="replace"), process.returncode)

    def plain(self, *command: str, cwd: Path | None = None, first: Callable[[], None] | None = None) -> Answer:
        """What the user does himself, outside, on either ground."""
        return self.finish(self.popen(command, cwd=cwd, first=first))

    def holder(self, script: str, *arguments: str) -> subprocess.Popen[bytes]:
        """A process of the host that holds something until the end, once it has said that it is ready."""
        command = [PYTHON, "-c", PRELUDE + script, *arguments]
        process = self.popen(command, stdin=subprocess.PIPE)
        assert process.stdout is not None
        while (line := process.stdout.readline()).strip() != b"ready":
            assert line, process.stderr.read() if process.stderr else b""
        return process

    @abstractmethod
    def command(self, script: str, arguments: Sequence[str], flags: Sequence[str], mode: str) -> list[str]: ...

    def run(
        self,
        script: str,
        *arguments: str,
        flags: Sequence[str] = (),
        mode: str = "overlay",
        env: Mapping[str, str] | None = None,
        fds: Sequence[int] = (),
        first: Callable[[], None] | None = None,
        refused: bool = False,
    ) -> Answer:
        """A Python script, inside or here. It has to begin: an attack that was never made proves nothing."""
        command = self.command(PRELUDE + script, arguments, flags, mode)
        answer = self.finish(self.popen(command, env=env, fds=fds, first=first))
        assert refused or "began" in answer.out or "used up by what the bot wrote" in answer.err, answer
        return answer

    def start(self, script: str, *arguments: str) -> "subprocess.Popen[bytes]":
        """The same in an rw folder, left running, once it has made the file `ready` there."""
        (self.work / "ready").unlink(missing_ok=True)
        process = self.popen(self.command(PRELUDE + script, arguments, [], "rw"))
        assert until(lambda: (self.work / "ready").exists() or process.poll() is not None)
        assert process.poll() is None, self.finish(process)
        return process

    @abstractmethod
    def bot(self, *commands: str, mode: str = "overlay", flags: Sequence[str] = (), wait: bool = True) -> Answer:
        """A bot that runs these commands in the folder. Nothing is applied."""

    @abstractmethod
    def apply(self, *flags: str, first: Callable[[], None] | None = None, keep_modes: bool = False) -> Answer: ...

    @abstractmethod
    def undo(self, *flags: str) -> Answer: ...

    @abstractmethod
    def look(self, *rest: str) -> Answer:
        """The user looks at what was done."""

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        for pid in alive(self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Bare(Ground):
    """No sandbox, and a naive judge: a bot's commands are carried out in the folder when they are applied."""

    def command(self, script: str, arguments: Sequence[str], flags: Sequence[str], mode: str) -> list[str]:
        return [PYTHON, "-c", script, *arguments]

    def bot(self, *commands: str, mode: str = "overlay", flags: Sequence[str] = (), wait: bool = True) -> Answer:
        self.waiting = commands
        self.before = {p.relative_to(self.work): p.lstat().st_mode for p in walk(self.work) if not p.is_symlink()}
        self.bytes = {p: (self.work / p).read_bytes() for p, mode in self.before.items() if stat.S_ISREG(mode)}
        return Answer("", "", 0)

    def apply(self, *flags: str, first: Callable[[], None] | None = None, keep_modes: bool = False) -> Answer:
        answer = Answer("", "", 0)
        for command in self.waiting:
            answer = self.plain("sh", "-c", command, first=first)
        for path, mode in self.before.items():
            if keep_modes and (self.work / path).is_file():
                (self.work / path).chmod(stat.S_IMODE(mode))
        return answer

    def undo(self, *flags: str) -> Answer:
        """Each file as it was, by its path; new ones are removed."""
        for path, content in self.bytes.items():
            with contextlib.suppress(OSError):
                (self.work / path).write_bytes(content)
        for file in [*self.work.rglob("*"), *(self.work / "sub").glob("*")]:
            if file.is_file() and file.relative_to(self.work) not in self.before:
                file.unlink()
        return Answer("", "", 0)

    def look(self, *rest: str) -> Answer:
        return self.plain("sh", "-c", "git status; git diff")


class Sealed(Ground):
    """Stockade's own command, with the default sandbox."""

    def stockade(self) -> list[str]:
        return [PYTHON if self.user.other else sys.executable, "-m", "stockade"]

    def command(self, script: str, arguments: Sequence[str], flags: Sequence[str], mode: str) -> list[str]:
        folder = ["--folder", f"{self.work}:{mode}"]
        return [*self.stockade(), "sandbox", "exec", *folder, *flags, "--", PYTHON, "-c", script, *arguments]

    def script(self, commands: Sequence[str]) -> str:
        calls = [("shell", {"command": c}) for c in commands] + [("finish", {"answer": "done"})]
        lines = [json.dumps({"tool_calls": [{"function": {"name": n, "arguments": json.dumps(a)}}]}) for n, a in calls]
        return self.model(*lines)

    def model(self, *lines: str) -> str:
        descriptor, name = tempfile.mkstemp(suffix=".jsonl", dir=self.base)
        os.close(descriptor)
        Path(name).write_text("\n".join(lines) + "\n")
        Path(name).chmod(0o644)
        return "scripted/" + name

    def bot_command(self, model: str, mode: str, flags: Sequence[str]) -> list[str]:
        folder = ["--folder", f"{self.work}:{mode}"]
        return [*self.stockade(), "run", "do it", "--model", model, *folder, "--no-input", "--plain", *flags]

    def bot(self, *commands: str, mode: str = "overlay", flags: Sequence[str] = (), wait: bool = True) -> Answer:
        process = self.popen(self.bot_command(self.script(commands), mode, flags))
        answer = self.finish(process) if wait else Answer("", "", 0)
        assert not wait or answer.status in (0, 1, 3), answer
        return answer

    def cli(self, *rest: str, first: Callable[[], None] | None = None) -> Answer:
        return self.plain(*self.stockade(), *rest, first=first)

    def apply(self, *flags: str, first: Callable[[], None] | None = None, keep_modes: bool = False) -> Answer:
        return self.cli("apply", *flags, first=first)

    def undo(self, *flags: str) -> Answer:
        return self.cli("undo", *flags)

    def look(self, *rest: str) -> Answer:
        seen = self.cli("diff")
        self.cli("runs", "show", "last", "--full")
        return seen


def walk(folder: Path) -> Iterator[Path]:
    for here, names, files in os.walk(folder):
        for name in sorted(names + files):
            yield Path(here) / name


def tree(folder: Path, *, times: bool = False) -> dict[str, tuple[object, ...]]:
    """What a folder is made of: kinds, modes, bytes, targets of links; times and attributes where they matter."""
    found: dict[str, tuple[object, ...]] = {}
    for path in [folder, *walk(folder)]:
        state = path.lstat()
        content: object = None
        if path.is_symlink():
            content = os.readlink(os.fsencode(path))
        elif stat.S_ISREG(state.st_mode):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        more: tuple[object, ...] = ()
        if times:
            more = (state.st_mtime_ns, state.st_uid, tuple(os.listxattr(path, follow_symlinks=False)))
        found[os.fsencode(path.relative_to(folder)).decode("latin-1")] = (state.st_mode, content, *more)
    return found


def alive(mark: str) -> list[int]:
    """Processes of this machine with a mark in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def until(what: Callable[[], object], seconds: float = 20) -> bool:
    """Whether something came true; how long it took is nobody's matter."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return bool(what())


def on_terminal(ground: Ground, command: Sequence[str], typed: bytes = b"") -> tuple[bytes, list[object], list[object]]:
    """What a command sends to a terminal, byte for byte, and the terminal's settings before and after."""
    master, slave = os.openpty()
    if not os.getuid():
        os.fchown(slave, ground.user.uid, ground.user.gid)
    settings = termios.tcgetattr(slave)
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    before: list[object] = list(termios.tcgetattr(slave))

    process = ground.popen(["/usr/bin/setsid", "--ctty", "--wait", *command], stdin=slave, stdout=slave, stderr=slave)
    if typed:
        os.write(master, typed)
    seen = b""
    while True:
        ended = process.poll() is not None
        ready, _, _ = select.select([master], [], [], 0.2)
        if ready:
            with contextlib.suppress(OSError):
                seen += os.read(master, 65536)
        elif ended:
            break
    after: list[object] = list(termios.tcgetattr(slave))
    os.close(master)
    os.close(slave)
    return seen, before, after


@contextlib.contextmanager
def ground_of(kind: type[Ground], user: User) -> Iterator[Ground]:
    base = Path(tempfile.mkdtemp(prefix="blind-"))
    base.chmod(0o755)
    ground = kind(user, base, kind is Sealed)
    try:
        yield ground
    finally:
        ground.close()
        subprocess.run(["chmod", "-R", "u+rwX", str(base)], capture_output=True, check=False)
        shutil.rmtree(base, ignore_errors=True)


def sealed_of(ground: Ground) -> Sealed | None:
    return ground if isinstance(ground, Sealed) else None
