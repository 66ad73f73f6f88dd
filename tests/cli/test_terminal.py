"""On a terminal: the question at the end, colours, and a Ctrl-C at the question."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence

import pytest

from stockade.testing import say
from tests.cli.conftest import COUNT, DONE, PATIENCE_S, Stage, descendants, gone, watched

QUESTION = b"change: "


class Terminal:
    """`stockade` on a pseudo-terminal of its own session (`setsid -c` makes it the controlling one)."""

    def __init__(
        self, stage: Stage, *arguments: str, program: Sequence[str] = ("-m", "stockade.cli"), **environment: str
    ) -> None:
        self.seen = b""
        self.descriptor, theirs = pty.openpty()
        self.process = subprocess.Popen(
            ["setsid", "-c", sys.executable, *program, *arguments],
            stdin=theirs, stdout=theirs, stderr=theirs,
            env={**stage.environment(), "TERM": "xterm-256color", **environment},
        )  # fmt: skip
        stage.terminals.append(self.process)
        os.close(theirs)

    def until(self, words: bytes) -> None:
        """On one line or, where our own lines have no room, on several."""
        end = time.monotonic() + PATIENCE_S
        while words not in self.seen and words not in self.seen.replace(b"\r\n", b" "):
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
    assert b"Not applied" in shell.seen
    assert not (stage.demo / "count.txt").exists()
    assert stage.call("runs", "apply", "last").status == 0


def test_words_at_the_question_go_on_in_the_same_live_sandbox(stage: Stage) -> None:
    first = say("shell", command="lives=nine; sleep 1000 & echo begun > out.txt")
    second = say("shell", command="echo $lives >> out.txt; kill -0 $! && echo alive >> out.txt")
    model = stage.script(first, DONE, second, say("finish", answer="Nine lives."))
    shell = Terminal(stage, "run", "begin", "--folder", str(stage.demo), "--model", model)
    shell.until(QUESTION)
    shell.type(b"what\n")
    shell.until(b"several words for the bot")
    shell.until(QUESTION)
    shell.type(b"And how Many lives?\n")
    shell.until(b"Nine lives.")
    shell.until(QUESTION)
    shell.type(b"y\n")
    assert shell.status() == 0
    assert (stage.demo / "out.txt").read_text() == "begun\nnine\nalive\n"
    events = stage.call("runs", "show", "--json").events
    kinds = [event["type"] for event in events]
    resumed = events[kinds.index("run_resumed")]
    assert (resumed["task"], resumed["live"], kinds.count("sandbox_started")) == ("And how Many lives?", True, 1)
    assert kinds[-3:] == ["answer_understood", "run_finished", "changes_applied"]
    assert stage.left_behind() == []


def _lines(shell: Terminal) -> list[str]:
    """What stays on the screen: without colours, and without what was drawn in one line and erased again."""
    text = re.sub(r"\x1b\[[0-9;]*m|\r(?=\n)", "", shell.seen.decode())
    return [line.rpartition("\r\x1b[2K")[2] for line in text.split("\n") if line.rpartition("\r\x1b[2K")[2]]


def test_what_a_command_writes_is_on_the_screen_while_it_runs(stage: Stage) -> None:
    (stage.demo / "go").write_text("")
    command = "echo one; echo two >&2; printf 'thr'; until ! test -s go; do sleep 0.1; done; echo ee; (exit 3)"
    model = stage.script(say("shell", command=command), DONE)
    (stage.demo / "go").write_text("wait")
    shell = Terminal(stage, "run", "count", "--folder", f"{stage.demo}:rw", "--model", model)
    shell.until(b"one\r\n")
    shell.until(b"two\r\n")
    shell.until(b"running 1 s")
    (stage.demo / "go").write_text("")
    shell.until(b"[exit 3]")
    assert _lines(shell)[-4:] == ["one", "two", "three", "[exit 3]"]
    assert shell.status() == 0


@pytest.mark.parametrize(("flags", "shown"), [((), [*range(1, 31), *range(91, 101)]), (("-v",), [*range(1, 101)])])
def test_long_output_folds_as_it_scrolls(stage: Stage, flags: tuple[str, ...], shown: list[int]) -> None:
    model = stage.script(say("shell", command="seq 60; sleep 1; seq 61 100"), DONE)
    shell = Terminal(stage, "run", "count", "--folder", str(stage.demo), "--model", model, *flags)
    assert shell.status() == 0
    assert [int(line) for line in _lines(shell) if line.isdecimal()] == shown
    assert ("[... 60 lines not shown ...]" in _lines(shell)) == (not flags)


def test_a_secret_that_comes_in_pieces_is_not_on_the_screen(stage: Stage) -> None:
    pieces = "printf 'key hunter'; sleep 1; printf '2hunter2 end\\n'"
    model = stage.script(say("shell", command=pieces), DONE)
    flags = ("--env", "MY_API_TOKEN=hunter2hunter2")
    shell = Terminal(stage, "run", "count", "--folder", str(stage.demo), "--model", model, *flags)
    assert shell.status() == 0
    assert b"key [redacted: MY_API_TOKEN] end" in shell.seen
    assert b"hunter2hunter2" not in shell.seen


def test_a_kill_at_the_question_loses_nothing(stage: Stage) -> None:
    shell = terminal(stage)
    shell.until(QUESTION)
    inside = watched(descendants(shell.process.pid))
    shell.process.kill()
    shell.process.wait(PATIENCE_S)
    assert gone(inside)
    assert stage.call("runs", "apply", "last").status == 0
    assert (stage.demo / "count.txt").read_text() == "3\n"


def test_ctrl_c_at_the_question_keeps_for_later(stage: Stage) -> None:
    shell = terminal(stage)
    shell.until(QUESTION)
    shell.type(b"\x03")
    assert shell.status() == 130
    assert b"Traceback" not in shell.seen
    assert b"Not applied" in shell.seen
    assert not (stage.demo / "count.txt").exists()
    assert stage.call("runs", "apply", "last").status == 0


def test_ctrl_c_on_a_terminal_while_the_model_thinks(stage: Stage) -> None:
    model = stage.script({"content": DONE, "delay_s": 300})
    shell = Terminal(stage, "run", "count", "--folder", str(stage.demo), "--model", model)
    shell.until(b"thinking")
    shell.type(b"\x03")
    shell.until(PAUSED)
    shell.type(b"\x03")
    assert shell.status() == 130
    assert shell.seen.lstrip().startswith(b"^C\r\n")
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


LONG = {"content": say("shell", command="sleep 8; echo ended > ended")}
PAUSED = b"[s]top and save: "


def paused(stage: Stage, *answers: str | dict[str, object]) -> Terminal:
    """A run whose first command is under way when Ctrl-C comes."""
    model = stage.script(LONG, *answers)
    shell = Terminal(stage, "run", "count", "--folder", str(stage.demo), "--model", model)
    shell.until(b"sleep")
    shell.seen = b""
    os.write(shell.descriptor, b"\x03")
    shell.until(PAUSED)
    return shell


def test_a_first_ctrl_c_holds_the_run_and_enter_goes_on(stage: Stage) -> None:
    shell = paused(stage, COUNT, DONE, DONE)
    shell.type(b"\n")
    shell.until(QUESTION)
    shell.type(b"y\n")
    assert shell.status() == 0
    assert (stage.demo / "count.txt").read_text() == "3\n"
    assert (stage.demo / "ended").read_text() == "ended\n"


def test_a_word_reaches_the_bot_before_its_next_turn(stage: Stage) -> None:
    shell = paused(stage, COUNT, DONE, DONE)
    shell.type(b"m\n")
    shell.until(b"to the bot: ")
    shell.type(b"count \x1b[31mtwice\n")
    shell.until(QUESTION)
    shell.type(b"x\n")
    assert shell.status() == 0
    said = [event for event in stage.call("runs", "show", "--json").events if event["type"] == "message_injected"]
    assert said[0]["source"] == "user"
    assert said[0]["text"].startswith("The user says: count ")


def test_stop_and_save_can_be_gone_on_with(stage: Stage) -> None:
    shell = paused(stage, COUNT, DONE, DONE)
    shell.type(b"s\n")
    assert shell.status() == 3
    assert b"hint: to go on: stockade runs resume 2" in shell.seen
    assert stage.tree() == {"data.csv": b"a\nb\nc\n"}
    resumed = stage.call("runs", "resume", "--apply")
    assert resumed.status == 0, resumed.err
    assert stage.tree()["count.txt"] == b"3\n"


def test_a_second_ctrl_c_stops_and_saves_and_a_third_quits(stage: Stage) -> None:
    shell = paused(stage, COUNT, DONE, DONE)
    os.write(shell.descriptor, b"\x03")
    assert shell.status() == 130
    assert b"the run is closed and on record" in shell.seen
    last = stage.call("runs", "show", "--json").events[-1]
    assert (last["type"], last["status"], last["reason"]) == ("run_finished", "stopped", "user")
    assert stage.call("runs", "resume", "--discard").status == 0
    shell = paused(stage, COUNT, DONE, DONE)
    os.write(shell.descriptor, b"\x03\x03")
    assert shell.status() == 130
    assert stage.call("runs", "resume", "--discard").status == 0
    assert stage.left_behind() == []


def _listed(stage: Stage, columns: int, *arguments: str) -> list[str]:
    """What a list shows in a terminal of this width, without colours."""
    shell = Terminal(stage, *arguments, COLUMNS=str(columns), LINES="24")
    shell.status()
    return re.sub(r"\x1b\[[0-9;]*m|\r", "", shell.seen.decode()).splitlines()


@pytest.mark.parametrize("columns", [80, 40])
def test_ids_and_states_are_whole_in_a_narrow_terminal(stage: Stage, columns: int) -> None:
    task = "Write how many lines data.csv has into count.txt, and nothing else, please; and check it"
    model = stage.script(COUNT, DONE, DONE, name=f"{'a-very-long-name' * 3}.jsonl")
    ended = stage.call("run", task, "--folder", str(stage.demo), "--model", model, "--discard", "--json")
    run_id = ended.result["run"]
    lines = _listed(stage, columns, "runs", "list")
    assert all(len(line.rstrip()) <= columns for line in lines), lines
    text = "\n".join(lines)
    assert run_id in text
    assert "done" in text
    assert "turns" in text
    assert "Write how many lines" in text


@pytest.mark.parametrize("columns", [80, 40])
def test_models_are_whole_in_a_narrow_terminal(stage: Stage, columns: int) -> None:
    lines = _listed(stage, columns, "model", "list")
    row = lines.index("embedded/qwen2.5-coder-1.5b") if columns == 40 else 1
    text = "\n".join(lines[row : row + 2])
    assert "embedded/qwen2.5-coder-1.5b" in text
    assert " no " in text
    assert "1.12 GB" in text
    assert "32768" in text


def test_the_doctor_puts_below_each_other_what_has_no_room(stage: Stage) -> None:
    lines = _listed(stage, 40, "doctor")
    at = lines.index("escape: open the memory of process 1")
    assert lines[at + 1] == "  bubblewrap: blocked"
    wide = _listed(stage, 80, "doctor")
    assert next(line for line in wide if line.startswith("tried in each sandbox  ")).split()[4:6] == [
        "bubblewrap",
        "docker",
    ]


def test_a_run_on_a_terminal_has_no_wall_limit(stage: Stage) -> None:
    shown = terminal(stage, "--discard")
    assert shown.status() == 0, shown.seen
    assert b"100 turns, any time" in shown.seen
    assert "100 turns, 60 min" in stage.run(COUNT, DONE, DONE, flags=("--discard",)).err


@pytest.mark.parametrize("words", [("sandbox", "exec", "-t", "--", "bash", "--norc"), ("shell",)], ids=" ".join)
def test_a_program_on_a_terminal_of_its_own(stage: Stage, words: tuple[str, ...]) -> None:
    shell = Terminal(stage, *words, TERM="screen")
    fcntl.ioctl(shell.descriptor, termios.TIOCSWINSZ, struct.pack("4H", 33, 77, 0, 0))
    shell.until(b"$ ")
    assert not termios.tcgetattr(shell.descriptor)[3] & termios.ICANON
    fcntl.ioctl(shell.descriptor, termios.TIOCSWINSZ, struct.pack("4H", 44, 88, 0, 0))
    shell.type(b"until [ \"$(stty size)\" = '44 88' ]; do sleep 0.1; done; echo $TERM si''zed\r")
    shell.until(b"screen sized")
    shell.type(b"sh -c 'echo in fr''ont; exec sleep 1000'\r")  # before that a key may still reach bash itself
    shell.until(b"in front\r\n")
    shell.type(b"\x03")
    shell.until(b"$ ")
    shell.type(b"echo was $?; exit 7\r")
    shell.until(b"was 130")
    assert shell.status() == 7


def test_a_terminal_is_as_before_when_the_program_is_ended(stage: Stage) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    with subprocess.Popen(
        [sys.executable, "-m", "stockade.cli", "sandbox", "exec", "-t", "--timeout", "1", "--", "sleep", "1000"],
        stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=stage.environment(),
    ) as process:  # fmt: skip
        assert process.wait(PATIENCE_S) == 124
        assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def test_without_a_terminal_there_is_none(stage: Stage) -> None:
    ended = stage.call("sandbox", "exec", "-t", "--", "true")
    assert (ended.status, "-t needs a terminal" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [(("mcp",), b"waiting for an MCP client"), (("sandbox", "exec", "--jsonl"), b"a command a line, as")],
    ids=["mcp", "jsonl"],
)
def test_what_reads_lines_of_programs_says_so_on_a_terminal(stage: Stage, words: tuple[str, ...], said: bytes) -> None:
    shell = Terminal(stage, *words)
    shell.until(said)
    os.write(shell.descriptor, b"\x04")
    assert shell.status() == 0
    assert said not in stage.call(*words).err.encode()
