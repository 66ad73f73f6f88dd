"""What a session and a program of it are, whoever speaks with the agent: requests out of them, and a result out of what
comes back. Pure.
"""

import math
import signal
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Self

from stockade_sandbox.agent import frames
from stockade_sandbox.agent.frames import Data, Done, Ended, Malformed, Reply, Taken
from stockade_sandbox.errors import ActionFailed, SandboxFailed
from stockade_sandbox.policy import WORKSPACE, Policy, Streams
from stockade_sandbox.results import ExecResult, Stream

GRACE_S = 1.0
"""Between SIGTERM and SIGKILL."""
HELLO_S = 20.0
"""How long a sandbox may take to start."""
SLACK_S = 15.0
"""How long after deadline and grace the agent may stay silent before it counts as dead."""
Sink = Callable[[Stream, bytes], None]
STREAMS: tuple[Stream, ...] = ("stdout", "stderr")
ENDED_FOR_MEMORY = b"stockade: the kernel ended a program at the sandbox's limit of memory\n"
_FILE_TOO_LARGE = 128 + signal.SIGXFSZ


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """What the agent holds its children to. Bytes and seconds; 0 is no limit. `open_files` is never below 64."""

    processes: int = 0
    open_files: int = 0
    file_bytes: int = 0
    memory_bytes: int = 0
    output_bytes: int = 16384
    timeout_s: float = 60.0
    longest_s: float = 600.0
    grace_s: float = GRACE_S
    spill_bytes: int = 64 << 20
    streams: Streams = "one"
    cwd: str = WORKSPACE
    shell: tuple[str, ...] = ("/bin/bash", "--norc", "--noprofile")

    @classmethod
    def of(cls, policy: Policy, totals: Collection[str] = ()) -> Self:
        """`totals`: what a control group holds. Memory is bounded for each process where none does: it counts what is
        reserved, and programs made with a sanitizer reserve more than there is.
        """
        limits = policy.limits
        return cls(
            processes=limits.processes,
            open_files=limits.open_files,
            file_bytes=limits.file_bytes,
            memory_bytes=0 if "memory" in totals else limits.memory_bytes,
            output_bytes=limits.output_bytes,
            timeout_s=limits.command_timeout_s,
            longest_s=limits.most_seconds,
            streams=policy.streams,
            cwd=policy.workdir,
        )

    def request(self) -> bytes:
        """The first one of a session; answered by two, for `check_hello` and `check_ready`."""
        streams = 2 if self.streams == "separate" else 1
        return frames.config(
            self.processes, self.open_files, self.file_bytes, self.memory_bytes, streams, self.cwd, self.shell
        )

    def seconds(self, wanted: float | None) -> float:
        """That a command gets: what it wants, up to the longest; 0 is unlimited."""
        if not wanted:
            return self.timeout_s
        return min(wanted, self.longest_s) if self.longest_s else wanted

    def patience_s(self, limit_s: float) -> float:
        """How long to wait for the end of a job with that limit."""
        return limit_s + self.grace_s + SLACK_S if limit_s else math.inf

    def why_ended(self, status: int) -> bytes:
        """What the kernel does not say of a program that it ended: which limit on a file's size it met."""
        if status != _FILE_TOO_LARGE or not self.file_bytes:
            return b""
        return f"stockade: ended by the limit of {self.file_bytes >> 20} MiB for one file\n".encode()


def check_hello(reply: Reply) -> None:
    """The first answer of a session. SandboxFailed when it is not from an agent of ours."""
    if not isinstance(reply, frames.Hello) or reply.version != frames.VERSION:
        raise SandboxFailed("the sandbox's agent speaks another protocol", "install Stockade again")


def check_ready(reply: Reply) -> Done:
    """The second. SandboxFailed when there is no shell."""
    if not isinstance(reply, Done):
        raise SandboxFailed("the sandbox's agent answered out of turn")
    if reply.flags & frames.SPAWN_FAILED:
        raise SandboxFailed(f"the sandbox's shell cannot be started: {reply.error}", "does it have bash?")
    return reply


def milliseconds(seconds: float) -> int:
    """At most what its field holds, seven weeks. ActionFailed for what is no time."""
    if not seconds >= 0:
        raise ActionFailed(f"{seconds:g} s is no time")
    return math.ceil(min(seconds * 1000, 2**32 - 1))


def check_room(max_output_bytes: int) -> None:
    """ActionFailed for what is no number of bytes."""
    if not isinstance(max_output_bytes, int) or max_output_bytes < 0:
        raise ActionFailed(f"{max_output_bytes!r} is no number of bytes")


def checked(argv: Sequence[str]) -> Sequence[str]:
    """ActionFailed for what is no argv."""
    if not argv or len(argv) > frames.MAX_ARGS or any("\0" in word for word in argv):
        raise ActionFailed("a program's arguments must be 1 to 4096 strings without NUL bytes")
    return argv


def short(text: str) -> str:
    """For a message of one line."""
    line = " ".join(text.split())
    return repr(line if len(line) <= 60 else line[:57] + "...")


class ProgramJob:
    """A program beside the shell: what is asked, and its output as it comes, the first `max_output_bytes` of both
    streams together; a `sink` gets it instead, all of it. Where `stdin` is None the input comes by `feed`. ActionFailed
    for a request that cannot be made.

    Whoever speaks with the agent sends the request and what is due, and after each reply that it took what is due then,
    until it has `ended`.
    """

    def __init__(self, config: AgentConfig, number: int, argv: Sequence[str], stdin: bytes | None,
                 timeout_s: float | None, max_output_bytes: int, sink: Sink | None = None, *,
                 root: bool = False) -> None:  # fmt: skip
        checked(argv)
        if len(stdin or b"") + sum(4 * len(word) + 1 for word in argv) > frames.MAX_REQUEST_BYTES - 64:
            raise ActionFailed(f"a program's input is over the limit of {frames.MAX_REQUEST_BYTES >> 20} MiB")
        check_room(max_output_bytes)
        self.number = number
        limit_s = config.seconds(timeout_s)
        self.patience_s = config.patience_s(limit_s)
        self.what = f"the program {short(argv[0])}"
        self.request = frames.start(number, milliseconds(limit_s), milliseconds(config.grace_s), "", argv, root=root)
        self.ended: Ended | None = None
        self._config = config
        self._left, self._is_told, self._credit = memoryview(stdin or b""), False, frames.WINDOW
        self._is_whole, self._sink = stdin is not None, sink
        self._streams: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._untold: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self._dropped = 0
        self._room = max_output_bytes

    def stop(self) -> bytes:
        """Asks for its end, and lets go of its streams, which it might wait for."""
        return frames.kill(self.number) + frames.close(self.number) + frames.close(self.number + 1)

    def take(self, reply: Reply) -> None:
        """Malformed for what is not about this program."""
        which = reply.number - self.number if isinstance(reply, Data | Taken | Ended) else -1
        if isinstance(reply, Data) and which in (0, 1):
            self._untold[STREAMS[which]] += len(reply.data)
            self._add(STREAMS[which], reply.data)
        elif isinstance(reply, Taken) and which in (0, 1):
            self._credit += reply.size
        elif isinstance(reply, Ended) and which == 0:
            self.ended = reply
        else:
            raise Malformed("a reply out of turn")

    def wants_input(self) -> bool:
        """Whether `feed` is waited for."""
        return not self._is_whole and not self._left and self._credit > 0

    def feed(self, data: bytes) -> None:
        """The next of its input; empty is the end."""
        self._left, self._is_whole = memoryview(data), not data

    def has_due(self) -> bool:
        to_send = self._credit > 0 if self._left else self._is_whole and not self._is_told
        return to_send or max(self._untold.values()) >= frames.WINDOW // 2

    def due(self) -> bytes:
        """What to send now: of its input what there is room for, and that its output was taken."""
        due = b""
        for which, stream in enumerate(STREAMS):
            if self._untold[stream] >= frames.WINDOW // 2:
                due += frames.taken(self.number + which, self._untold[stream])
                self._untold[stream] = 0
        while self._left and self._credit:
            piece = self._left[: min(self._credit, frames.PIECE)]
            due += frames.data(self.number, bytes(piece))
            self._credit -= len(piece)
            self._left = self._left[len(piece) :]
        if not self._left and self._is_whole and not self._is_told:
            due += frames.data(self.number, b"")
            self._is_told = True
        return due

    def _add(self, stream: Stream, data: bytes) -> None:
        if self._sink is not None:
            self._sink(stream, data)
            return
        self._streams[stream] += data[: self._room]
        self._dropped += max(0, len(data) - self._room)
        self._room -= min(len(data), self._room)

    def result(self, why: bytes = b"") -> ExecResult:
        """Of one that has ended, with `why` it was. What cannot be executed has status 126 or 127 and the reason.

        SandboxFailed when nothing could be started.
        """
        assert self.ended is not None
        _, status, flags, error = self.ended
        if flags & frames.SPAWN_FAILED:
            if status not in (126, 127):
                raise SandboxFailed(f"the sandbox cannot start a program: {error}")
            self._add("stderr", f"{error}\n".encode())
        self._add("stderr", why or self._config.why_ended(status))
        return ExecResult(
            exit_code=status,
            stdout=bytes(self._streams["stdout"]),
            stderr=bytes(self._streams["stderr"]),
            timed_out=bool(flags & frames.TIMED_OUT),
            truncated_bytes=self._dropped,
        )
