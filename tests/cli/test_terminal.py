"""On a terminal: the question at the end, colours, and a Ctrl-C at the question."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.conftest import COUNT, DONE, PATIENCE_S, Stage

QUESTION = b"[d]iff again: "


class Terminal:
    """`stockade` on a pseudo-terminal of its own session (`setsid -c` makes it the controlling one)."""

    def __init__(self, stage: Stage, *arguments: str, **environment: str) -> None:
        self.seen = b""
        self.descriptor, theirs = pty.openpty()
        self.process = subprocess.Popen(
            ["setsid", "-c", sys.executable, "-m", "stockade.cli", *arguments],
            stdin=theirs, stdout=theirs, stderr=theirs,
            env={**stage.environment(), "TERM": "xterm-256color", **environment},
        )  # fmt: skip
        stage.terminals.append(self.process)
        os.close(theirs)

    def until(self, words: bytes) -> None:
        end = time.monotonic() + PATIENCE_S
        while words not in self.seen:
            ready, _, _ = select.select([self.descriptor], [], [], max(0, end - time.monotonic()))
            assert ready, self.seen
            self.seen += os.read(self.descriptor, 65536)

    def type(self, keys: bytes) -> None:
        self.seen = b""
        os.write(self.descriptor, keys)

    def status(self) -> int:
        """Reads to the end and waits."""
        try:
            while data := os.read(self.descriptor, 65536):
                self.seen += data
        except OSError:
            pass
        os.close(self.descriptor)
        return self.process.wait(PATIENCE_S)


def terminal(stage: Stage, *flags: str, **environment: str) -> Terminal:
    model = stage.script(COUNT, DONE, DONE)
    return Terminal(stage, "run", "count", "--folder", str(stage.demo), "--model", model, *flags, **environment)


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def test_the_person_looks_again_and_says_yes(stage: Stage) -> None:
    shell = terminal(stage)
    shell.until(QUESTION)
    assert b"\x1b[32m+3" in shell.seen
    shell.type(b"d\n")
    shell.until(QUESTION)
    assert b"+++ b/count.txt" in shell.seen
    shell.type(b"y\n")
    assert shell.status() == 0
    assert (stage.demo / "count.txt").read_text() == "3\n"
    assert stage.left_behind() == []


def test_enter_keeps_for_later(stage: Stage) -> None:
    shell = terminal(stage)
    shell.until(QUESTION)
    shell.type(b"\n")
    assert shell.status() == 0
    assert b"changes kept" in shell.seen
    assert not (stage.demo / "count.txt").exists()
    assert stage.call("runs", "apply").status == 0


def test_ctrl_c_at_the_question_keeps_for_later(stage: Stage) -> None:
    shell = terminal(stage)
    shell.until(QUESTION)
    shell.type(b"\x03")
    assert shell.status() == 130
    assert b"Traceback" not in shell.seen
    assert b"changes kept" in shell.seen
    assert not (stage.demo / "count.txt").exists()
    assert stage.call("runs", "apply").status == 0


def test_ctrl_c_on_a_terminal_while_the_model_thinks(stage: Stage) -> None:
    model = stage.script({"content": DONE, "delay_s": 300})
    shell = Terminal(stage, "run", "count", "--folder", str(stage.demo), "--model", model)
    shell.until(b"thinking")
    shell.type(b"\x03")
    assert shell.status() == 130
    assert b"interrupted: the run is closed and on record" in shell.seen
    assert stage.left_behind() == []


@pytest.mark.parametrize(("flags", "environment"), [(("--plain",), {}), ((), {"NO_COLOR": "1"})])
def test_no_colours_when_asked(stage: Stage, flags: tuple[str, ...], environment: dict[str, str]) -> None:
    shell = terminal(stage, "--apply", *flags, **environment)
    assert shell.status() == 0
    colours = re.findall(rb"\x1b\[[0-9;]*m", shell.seen)
    assert not [code for code in colours if re.search(rb"\b(3|4|9)[0-7]\b", code)]
    if flags:
        assert b"\x1b" not in shell.seen


def test_hang_up_while_a_command_runs(stage: Stage) -> None:
    from_model = stage.script('{"action": {"tool": "shell", "command": "sleep 300"}}', DONE)
    shell = Terminal(stage, "run", "count", "--folder", str(stage.demo), "--model", from_model)
    shell.until(b"running")
    shell.process.send_signal(signal.SIGHUP)
    assert shell.status() == 130
    assert stage.left_behind() == []
