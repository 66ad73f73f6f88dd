"""The real command in a process of its own: real sandbox, real record, a scripted model."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stockade.testing import say

PATIENCE_S = 240  # for a machine that does much else; nothing is that slow by itself
COUNT = say("shell", thought="Count.", command="wc -l < data.csv > count.txt")
DONE = say("finish", answer="3 lines")


@dataclass
class Ended:
    status: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def result(self) -> dict[str, Any]:
        last = self.events[-1]
        assert last["type"] == "result"
        return last


@dataclass
class Stage:
    """A folder `demo` and a state folder of its own."""

    tmp_path: Path
    demo: Path
    home: Path
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    terminals: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def state(self) -> Path:
        return self.home / ".local" / "state" / "stockade"

    def script(self, *answers: str | dict[str, Any], name: str = "script.jsonl") -> str:
        """A model that gives these answers."""
        lines = [json.dumps(answer if isinstance(answer, dict) else {"content": answer}) for answer in answers]
        path = self.tmp_path / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return f"scripted/{path}"

    def call(self, *arguments: str | bytes, stdin: bytes = b"", folder: Path | None = None) -> Ended:
        done = subprocess.run(
            [sys.executable, "-m", "stockade.cli", *arguments], input=stdin, capture_output=True,
            env=self.environment(), cwd=folder,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    def run(self, *answers: str | dict[str, Any], flags: tuple[str, ...] = (), task: str = "count") -> Ended:
        return self.call("run", task, "--folder", str(self.demo), "--model", self.script(*answers), *flags)

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """In a process group of its own, so that a Ctrl-C can be sent to all of it."""
        process = subprocess.Popen(
            [sys.executable, "-m", "stockade.cli", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=self.environment(), process_group=0,
        )  # fmt: skip
        self.running.append(process)
        return process

    def environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.home)}

    def left_behind(self) -> list[str]:
        """What is in the folder of runs, layers and locks, but for what undo needs of those that were applied."""
        folder = self.state / "runs"
        undo = {path for path in folder.rglob("*") if any(name.endswith(".journal") for name in path.parts)}
        undo |= {path for path in folder.glob("*") if (held := set(path.glob("*"))) and held <= undo}
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path not in undo)

    def tree(self) -> dict[str, bytes]:
        """The host folder, to the byte."""
        return {str(path.relative_to(self.demo)): path.read_bytes() for path in self.demo.rglob("*") if path.is_file()}


@pytest.fixture
def stage(tmp_path: Path, _own_home: Path) -> Iterator[Stage]:
    demo = tmp_path / "demo"
    demo.mkdir()
    (demo / "data.csv").write_text("a\nb\nc\n")
    stage = Stage(tmp_path, demo, _own_home)
    yield stage
    for process in (*stage.running, *stage.terminals):
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE_S)
    ours = (str(tmp_path), str(_own_home))
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    assert not [line for line in mounts if any(folder in line for folder in ours)]


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, now; a shell's short-lived ones may go while this looks."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in task.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def watched(pids: list[int]) -> list[int]:
    """A descriptor for each process that becomes readable when the process is gone; none for one that already is."""
    found: list[int] = []
    for pid in pids:
        with suppress(ProcessLookupError):
            found.append(os.pidfd_open(pid))
    return found


def gone(pidfds: list[int], patience_s: float = 20) -> bool:
    """Waits until all of them are gone; False when one is still there after `patience_s`."""
    end = time.monotonic() + patience_s
    poll = select.poll()
    for number in pidfds:
        poll.register(number, select.POLLIN)
    waiting = set(pidfds)
    while waiting and (left := end - time.monotonic()) > 0:
        for number, _ in poll.poll(left * 1000):
            poll.unregister(number)
            os.close(number)
            waiting.discard(number)
    return not waiting


def until_event(process: "subprocess.Popen[bytes]", kind: str) -> list[str]:
    """Reads the JSON lines of `process` up to an event of this type."""
    assert process.stdout is not None
    seen: list[str] = []
    for line in process.stdout:
        seen.append(json.loads(line)["type"])
        if seen[-1] == kind:
            return seen
    assert process.stderr is not None
    raise AssertionError(f"{kind} never came: {seen} {process.stderr.read().decode()}")


def interrupt(process: "subprocess.Popen[bytes]", number: int = signal.SIGINT) -> None:
    """What Ctrl-C does: the signal goes to every process of the group."""
    os.killpg(process.pid, number)
