"""`stockade wrap`: a program of the user's in the sandbox, with their terminal or their pipes, and the review after."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import PATIENCE_S, Stage
from tests.support.tmux import Screen

STAND_IN = Path(__file__).parents[1] / "support" / "stand_in.py"


@pytest.fixture
def client(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> str:
    """The stand-in, on the PATH of the user; where it lies nothing else is seen of inside."""
    folder = stage.tmp_path / "own" / "bin"
    folder.mkdir(parents=True)
    program = folder / "stand-in"
    shutil.copy(STAND_IN, program)
    program.chmod(0o755)
    (folder / "beside").write_text("of the user\n")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    (stage.demo / "a.txt").write_text("one\n")
    (stage.demo / "gone.txt").write_text("to be removed\n")
    return str(program)


OnScreen = Callable[..., Screen]


@pytest.fixture
def screen(stage: Stage, client: str) -> Iterator[OnScreen]:
    """`stockade wrap` with the arguments, on a terminal."""
    shown: list[Screen] = []

    def begin(*arguments: str) -> Screen:
        shown.append(
            Screen(stage.tmp_path, ["wrap", "--folder", ".", *arguments], stage.demo, stage.environment(), PATIENCE_S)
        )
        return shown[-1]

    yield begin
    for one in shown:
        one.close()


def test_a_program_has_the_terminal_and_what_it_did_is_reviewed(stage: Stage, screen: OnScreen) -> None:
    before = stage.tree()
    shown = screen("--", "stand-in")
    shown.until("stand-in term=xterm", "size 120x40")
    shown.resize(90, 30)
    shown.until("size 90x30")
    shown.type("\x03")
    shown.until("ctrl-c is mine")
    shown.type("\x1b[<0;5;6M")
    shown.until("mouse 0;5;6M")
    shown.type("e")
    shown.until("edited")
    shown.type("s")
    shown.until("May I run a command?")
    shown.type("y")
    shown.until("ran")
    assert "\x1b[32mstand-in" in shown.cells
    shown.type("q")
    shown.until("passed on as it is", "3 files changed", "Apply to")
    assert "size 90x30" not in shown.text, "the other screen is left"
    assert stage.tree() == before
    shown.type("y\r")
    shown.until("stockade undo", "status=0")
    after = {"a.txt": b"one\nedited\n", "made.txt": b"by-the-shell\n", "data.csv": before["data.csv"]}
    assert stage.tree() == after
    shown_run = stage.call("runs", "show", "last", "--json")
    ended = [event for event in shown_run.events if event["type"] == "action_finished"]
    assert [one["observation"]["exit_code"] for one in ended] == [0]
    assert stage.call("undo", folder=stage.demo).status == 0
    assert stage.tree() == before


def test_what_a_program_leaves_of_the_terminal_is_put_back(screen: OnScreen) -> None:
    shown = screen("--no-input", "--", "stand-in")
    shown.until("size 120x40")
    assert shown.modes == (True, True)
    shown.type("x")
    shown.until("status=7")
    assert shown.modes == (False, False)


def test_piped_its_streams_and_its_status_are_the_programs_own(stage: Stage, client: str) -> None:
    told = "cat; echo aside >&2; echo x > b; exit 9"
    ended = stage.call("wrap", "--folder", ".", "--", "sh", "-c", told, stdin=b"in\0\n\n", folder=stage.demo)
    assert (ended.status, ended.out) == (9, "in\0\n\n")
    assert "aside\n" in ended.err
    assert "Not applied. Review: stockade diff" in ended.err
    assert not (stage.demo / "b").exists()
    assert "+x" in stage.call("diff", folder=stage.demo).out
    assert stage.call("apply", folder=stage.demo).status == 0
    assert (stage.demo / "b").read_text() == "x\n"


def test_a_program_of_ones_own_is_seen_and_nothing_beside_it(stage: Stage, client: str) -> None:
    ended = stage.call("wrap", "--folder", ".", "--", "sh", "-c", f"ls {Path(client).parent}", folder=stage.demo)
    assert ended.status == 2
    looking = f"shell ls {Path(client).parent}\nedit a.txt two\n"
    ended = stage.call("wrap", "--folder", ".", "--apply", "--", "stand-in", stdin=looking.encode(), folder=stage.demo)
    assert ended.status == 0
    assert ended.out == "shell: 0 stand-in\ndid 2 of nothing\n"
    assert (stage.demo / "a.txt").read_text() == "one\ntwo\n"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--",), 2, "which program?"),
        (("--", "no-such-program"), 127, "no-such-program"),
        (("--timeout", "1", "--", "sleep", "60"), 124, "stopped (time"),
        (("--command-timeout", "1", "--", "sleep", "2"), 0, "done"),
        (("--sandbox", "no-such", "--", "true"), 2, "there is no sandbox"),
        (("-p", "x", "--", "true"), 2, "nobody says how true does a task by itself"),
        (("--folder", "/", "--", "true"), 2, "/"),
        (("--bad", "--", "true"), 2, "put -- before the command: stockade wrap"),
    ],
)
def test_statuses(stage: Stage, arguments: tuple[str, ...], status: int, words: str) -> None:
    ended = stage.call("wrap", *arguments, folder=stage.demo)
    assert ended.status == status, ended.err
    assert words in ended.err
    assert "Traceback" not in ended.err


PRESET = """\
bot = "stander"
summary = "the stand-in does the task"
prompt = ["-p"]
turns = ["--turns", "{turns}"]
model = ["--model", "{model}"]
login = [".stand-in/token", ".stand-in.json#who"]
environment = {STAND_IN = "a preset"}
settings = {memory = "1G"}
"""


@pytest.fixture
def preset(stage: Stage, client: str) -> Path:
    """A preset of the user's own for the stand-in."""
    place = stage.home / ".config" / "stockade" / "presets"
    place.mkdir(parents=True)
    (place / "stand-in.toml").write_text(PRESET)
    return place / "stand-in.toml"


def test_a_task_by_itself(stage: Stage, preset: Path) -> None:
    told = ("-p", "edit a.txt two\nshell rm gone.txt; echo $STAND_IN", "--", "stand-in")
    ended = stage.call("wrap", "--folder", ".", "--apply", *told, folder=stage.demo)
    assert (ended.status, ended.out) == (0, "shell: 0 a preset\ndid 2 of a preset\n")
    assert (stage.demo / "a.txt").read_text() == "one\ntwo\n"
    assert not (stage.demo / "gone.txt").exists()
    slow = stage.call("wrap", "--command-timeout", "1", "-p", "shell sleep 2", "--", "stand-in", folder=stage.demo)
    assert slow.status == 0, "a command's limit is not the program's"
    for flag, words in (("--max-tokens", "--timeout S bounds it"), ("--max-cost", "-o max_cost=0")):
        ended = stage.call("run", "x", "--bot", "stander", flag, "1", "--folder", str(stage.demo))
        assert ended.status == 2
        assert words in ended.err
    ended = stage.call("wrap", "--max-turns", "2", "--", "stand-in", folder=stage.demo)
    assert (ended.status, "kept with -p only" in ended.err) == (2, True), ended.err


@pytest.mark.parametrize(
    ("program", "check", "status", "verdict"),
    [("echo x > made", "test -s made", 0, "· verified ·"), ("echo x > made", "false", 1, "the check does not pass"),
     ("exit 3", "true", 3, "ended with status 3) · not verified")],
)  # fmt: skip
def test_a_check_decides_about_any_program(stage: Stage, program: str, check: str, status: int, verdict: str) -> None:
    ended = stage.call("wrap", "--folder", str(stage.demo), "--check", check, "--discard", "--", "sh", "-c", program)
    assert (ended.status, verdict in ended.err) == (status, True), ended.err


def test_a_bot_is_told_that_its_check_fails_and_goes_on(stage: Stage, preset: Path) -> None:
    task, check = ("run", "edit a.txt two"), ("--check", "grep -q fixed a.txt")
    where = ("--folder", str(stage.demo), "--bot", "stander")
    ended = stage.call(*task, *where, *check, "--apply", "--json", stdin=b"")
    assert (ended.status, ended.result["verified"]) == (0, True)
    checks = [event["passed"] for event in ended.events if event["type"] == "check_finished"]
    assert checks == [False, True]
    assert (stage.demo / "a.txt").read_text() == "one\ntwo\nfixed\n"
    never = stage.call(*task, *where, "--check", "false", "--json", stdin=b"")
    assert (never.status, never.result["verified"], never.result["reason"]) == (1, False, "check_failed")
    late = stage.call("run", "shell sleep 60", *where, "--timeout", "2", "--json", stdin=b"")
    assert (late.status, late.result["reason"]) == (3, "time")


def test_a_model_that_is_named_is_the_programs_and_a_configured_one_is_ours(
    stage: Stage, preset: Path, screen: OnScreen
) -> None:
    (stage.home / ".config" / "stockade" / "config.toml").write_text('model = "embedded/smollm2"\n')
    for named, ours in (((), "program/stand-in"), (("-m", "a/b 1"), "program/stand-in/a/b 1")):
        told = ("run", "edit a.txt two", "--folder", str(stage.demo), "--bot", "stander", "--max-turns", "3", *named)
        events = stage.call(*told, "--json", stdin=b"").events
        assert next(one for one in events if one["type"] == "run_started")["model"] == ours
        begun = next(one for one in events if one["type"] == "action_started")["action"]["action"]["command"]
        assert ("--model 'a/b 1' --turns 3 -p" in begun) == bool(named)
    again = stage.call("runs", "resume", "last", "edit a.txt three", "-m", "c", stdin=b"")
    assert again.status == 2
    assert "to its end" in again.err
    shown = screen("-m", "c", "--", "stand-in", "-v")
    shown.until("size 120x40")
    shown.type("q")
    shown.until("stand-in --model c -v", "status=0")
    preset.write_text(PRESET.replace("model =", "again ="))
    ended = stage.call("run", "x", "--bot", "stander", "-m", "c", stdin=b"")
    assert ended.status == 2
    assert "nobody says how stand-in is told its model" in ended.err
    preset.write_text('command = ["do"]\n' + PRESET)
    ended = stage.call("wrap", "-m", "c", "--", "stand-in", folder=stage.demo)
    assert ended.status == 2
    assert "nobody says how stand-in is told its model" in ended.err


def test_what_it_started_is_on_record(stage: Stage, client: str) -> None:
    told = b'shell for i in 1 2 3; do /bin/true "$TOKEN"; done; exec env a=1 true\n'
    secret = ("--env", "TOKEN=s3cret-t0ken-of-the-user", "--redact", "TOKEN")
    ended = stage.call("wrap", *secret, "--folder", ".", "--", "stand-in", stdin=told, folder=stage.demo)
    assert ended.status == 0, ended.err
    assert "[8 programs started: true 4, env 2, " in ended.err
    events = stage.call("runs", "show", "last", "--json").events
    (event,) = (one for one in events if one["type"] == "programs_started")
    assert "s3cret" not in json.dumps(event)
    started = [(Path(program).name, words, count) for program, words, count in event["programs"]]
    assert started[0] == ("env", ["/usr/bin/env", "python3", client], 1)
    assert started[1][1:] == (["python3", client], 1)
    assert started[2][1:] == (["sh", "-c", told[6:-1].decode()], 1)
    assert [(name, words[0], count) for name, words, count in started[3:4]] == [("true", "/bin/true", 3)]
    assert started[4:] == [("env", ["env", "a=1", "true"], 1), ("true", ["true"], 1)]
    assert "programs started" in stage.call("runs", "show", "last").out


def test_a_named_home_stays_and_is_none_of_the_users(stage: Stage, preset: Path) -> None:
    (stage.home / ".mine").write_text("of the user\n")
    writing = ("shell", "echo kept > ~/.state; ls -A ~")
    for seen in ("shell: 0 .state", "shell: 0 .state"):
        ended = stage.call("wrap", "--home", "work", "--no-folder", "-p", " ".join(writing), "--", "stand-in")
        assert seen in ended.out, ended.err
    assert not (stage.home / ".state").exists()
    kept = stage.home / ".local" / "share" / "stockade-homes" / "work"
    assert (kept / ".state").read_text() == "kept\n"
    assert kept.stat().st_mode & 0o077 == 0
    other = stage.call("wrap", "--home", "other", "--no-folder", "-p", "shell ls -A ~", "--", "stand-in")
    assert other.out.startswith("shell: 0 \n")
    for name in ("../x", "", "a/b"):
        assert stage.call("wrap", "--home", name, "--", "true").status == 2


def test_a_login_is_taken_over_once_by_consent(stage: Stage, preset: Path, screen: OnScreen) -> None:
    (stage.home / ".stand-in").mkdir()
    (stage.home / ".stand-in" / "token").write_text("t0ken")
    (stage.home / ".stand-in.json").write_text('{"who": "me", "projects": ["secret"]}')
    homes = stage.home / ".local" / "share" / "stockade-homes"
    for name, answer, found in (("no", "\r", []), ("yes", "y\r", [".stand-in", ".stand-in.json"])):
        shown = screen("--home", name, "--", "stand-in")
        shown.until("Copy it into the home")
        shown.type(answer)
        shown.until("size 120x40")
        shown.type("q")
        shown.until("status=0")
        assert sorted(path.name for path in (homes / name).iterdir()) == found
    assert (homes / "yes" / ".stand-in.json").read_text() == '{"who": "me"}'
    assert (homes / "yes" / ".stand-in" / "token").read_text() == "t0ken"
    again = screen("--home", "no", "--", "stand-in")
    again.until("size 120x40")
    assert "Copy it" not in again.text


def test_what_is_shown_is_kept_as_an_asciicast(stage: Stage, screen: OnScreen) -> None:
    cast = stage.tmp_path / "demo.cast"
    shown = screen("--cast", str(cast), "--", "stand-in")
    shown.until("size 120x40")
    shown.resize(90, 30)
    shown.until("size 90x30")
    shown.type("q")
    shown.until("status=0")
    lines = [json.loads(line) for line in cast.read_text().splitlines()]
    assert (lines[0]["version"], lines[0]["width"], lines[0]["height"]) == (2, 120, 40)
    assert ["r", "90x30"] in [line[1:] for line in lines[1:]]
    assert "stand-in term=" in "".join(line[2] for line in lines[1:] if line[1] == "o")
    ended = stage.call("wrap", "--cast", str(cast), "--", "true")
    assert ended.status == 2
    assert "it has none here" in ended.err
    again = screen("--cast", str(cast), "--", "stand-in")
    again.until("is there already", "status=2")
