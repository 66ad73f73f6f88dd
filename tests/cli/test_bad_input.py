"""What can be typed wrong: one clear line, the right status, nothing left behind, no run on record."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stockade.testing import say
from tests.cli.conftest import COUNT, DONE, PATIENCE_S, Stage


def refused(stage: Stage, *arguments: str, status: int = 2) -> str:
    """The line that was said; nothing else happened."""
    before = stage.tree()
    ended = stage.call("run", *arguments)
    assert ended.status == status, ended.err
    assert ended.out == ""
    first, *rest = ended.err.splitlines()
    assert first.startswith("stockade: ")
    assert all(line.startswith("hint: ") for line in rest)
    assert len(rest) <= 1
    assert stage.left_behind() == []
    assert stage.tree() == before
    assert stage.call("runs", "list").out == ""
    return first


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("{demo}/nothing", "nothing"),
        ("/", "'/'"),
        ("/etc", "/etc"),
        ("/proc", "/proc"),
        ("{home}", "home"),
        ("{demo}/data.csv", "data.csv"),
        ("{state}", "stockade"),
        ("{demo}:zz", "there is no mode 'zz'"),
    ],
)
def test_folders_that_are_not_given(stage: Stage, folder: str, words: str) -> None:
    stage.state.mkdir(parents=True)
    path = folder.format(demo=stage.demo, home=stage.home, state=stage.state)
    assert words in refused(stage, "x", "--folder", path, "--model", stage.script(DONE))


def test_a_folder_given_twice(stage: Stage) -> None:
    run = ("x", "--folder", str(stage.demo), "--folder", f"{stage.demo}:ro", "--model", stage.script(DONE))
    assert refused(stage, *run) == f"stockade: the folder {stage.demo} is given twice"


@pytest.mark.parametrize("limit", [("--memory", "1M"), ("--processes", "1")])
def test_limits_that_nothing_works_in(stage: Stage, limit: tuple[str, str]) -> None:
    first = refused(stage, "x", "--folder", str(stage.demo), "--model", stage.script(DONE), *limit)
    assert limit[0] in first
    assert "at least 8" in first


def test_the_least_limits_are_enough(stage: Stage) -> None:
    work = say("shell", command="ls | sort | wc -l > n.txt; python3 -c 'print(5)'")
    ended = stage.run(work, DONE, DONE, flags=("--memory", "8M", "--processes", "8", "--json"))
    assert ended.status == 0, ended.err
    first = next(event for event in ended.events if event["type"] == "action_finished")
    assert first["observation"]["exit_code"] == 0, first


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('net = "maybe"', "net: 'maybe' is not understood"),
        ('max_turns = "a"', "max_turns: 'a' is not a whole number of at least 0"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_of_the_file(stage: Stage, line: str, words: str) -> None:
    bot = stage.tmp_path / "bot.toml"
    bot.write_text(f'prompt = "You work."\n{line}\n')
    assert refused(stage, "x", "--bot", str(bot), "--model", stage.script(DONE)).startswith(f"stockade: {bot}: {words}")
    config = stage.home / ".config" / "stockade" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f"{line}\n")
    ended = stage.call("run", "x", "--model", stage.script(DONE))
    assert ended.status == 2
    assert ended.err.startswith(f"stockade: {config}: {words}")


def test_a_tool_that_there_is_not_is_told_of_the_bots_file(stage: Stage) -> None:
    bot = stage.tmp_path / "bot.toml"
    bot.write_text('prompt = "You work."\ntools = ["shell", "zap", "finish"]\n')
    said = refused(stage, "x", "--bot", str(bot), "--model", stage.script(DONE))
    assert said == f"stockade: {bot}: tools: there is no tool 'zap'"


def test_a_task_that_is_too_large(stage: Stage) -> None:
    task = stage.tmp_path / "task"
    task.write_text("x" * 1_000_001)
    assert "the task is larger than 1000000 bytes" in refused(stage, f"@{task}", "--model", stage.script(DONE))


def test_a_task_of_1_mb_is_worked_on(stage: Stage) -> None:
    task = stage.tmp_path / "task"
    task.write_text("x" * 1_000_000)
    ended = stage.call("run", f"@{task}", "--model", stage.script(DONE), "--folder", str(stage.demo))
    assert (ended.status, ended.out) == (0, "3 lines\n"), ended.err
    assert len(ended.err) < 5000


def test_a_task_with_control_characters(stage: Stage) -> None:
    ended = stage.call("run", "a\x1b[2Jb\x07\u202e\r\nc", "--model", stage.script(DONE), "--plain")
    assert ended.status == 0, ended.err
    assert not any(char in ended.err for char in "\x1b\x07\u202e\r")


def test_a_task_from_standard_input(stage: Stage) -> None:
    ended = stage.call("run", "-", "--model", stage.script(DONE), "--json", stdin=b"count the lines")
    assert ended.events[0]["task"] == "count the lines"
    assert stage.call("run", "-", stdin=b"\xff\xfe").err == "stockade: the task in standard input is not UTF-8 text\n"


def test_what_is_piped_in_beside_a_task_is_told_and_on_record_as_such(stage: Stage) -> None:
    flags = ("--model", stage.script(DONE), "--json")
    ended = stage.call("run", "explain", *flags, stdin=b"error 7\nat\xff line 3\n")
    words = "Standard input, 19 bytes, which the user piped in beside the task:\n\nerror 7\nat\ufffd line 3\n"
    assert ended.events[0]["task"] == f"explain\n\n{words}"
    assert stage.call("run", "explain", *flags, stdin=b" \n").events[0]["task"] == "explain"
    too_much = stage.call("run", "explain", *flags, stdin=b"x" * 1_000_001)
    assert (too_much.status, len(too_much.err.splitlines())) == (2, 2)
    assert "piped in is larger than 1000000 bytes" in too_much.err
    assert stage.call("runs", "list").out.count("explain") == 2


@pytest.mark.parametrize("words", [b"", b"error 7\n"])
def test_a_socket_that_its_program_leaves_open_is_not_waited_for(stage: Stage, words: bytes) -> None:
    """As Node starts a program. What it writes at once is read to its end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(words)
        if words:
            ours.shutdown(socket.SHUT_WR)
        command = [sys.executable, "-m", "stockade.cli", "run", "explain", "--model", stage.script(DONE), "--json"]
        done = subprocess.run(
            command,
            stdin=theirs.fileno(),
            capture_output=True,
            env=stage.environment(),
            timeout=PATIENCE_S,
            check=False,
        )
    task = json.loads(done.stdout.splitlines()[0])["task"]
    assert (done.returncode, task.startswith("explain"), "error 7" in task) == (0, True, bool(words))
    assert (b"nothing came over standard input" in done.stderr) == (not words)


def test_a_task_that_is_no_text(stage: Stage) -> None:
    ended = stage.call("run", b"count\xff", "--model", stage.script(DONE), "--json")
    assert ended.events[0]["task"] == "count\ufffd"


def test_models_that_are_not_there(stage: Stage) -> None:
    for model in ("scripted//no/such.jsonl", "nonsense/x", "openai", "gguf//no/such.gguf", "embedded/nothing"):
        ended = stage.call("run", "x", "--folder", str(stage.demo), "--model", model)
        assert ended.status in (2, 5), (model, ended.err)
        assert "Traceback" not in ended.err
        assert "bug in Stockade" not in ended.err
        assert stage.left_behind() == [], model


@pytest.mark.parametrize("content", [b"", b"GGUF", b"\x00" * 5000, b"GGUF\x03\x00\x00\x00" + b"\xff" * 400])
def test_broken_model_files(stage: Stage, content: bytes) -> None:
    path = stage.tmp_path / "broken.gguf"
    path.write_bytes(content)
    ended = stage.call("run", "x", "--folder", str(stage.demo), "--model", f"gguf/{path}")
    assert ended.status == 5, ended.err
    assert "broken.gguf" in ended.err
    assert stage.left_behind() == []


@pytest.mark.parametrize("command", [
    "batch run", "batch compare t.jsonl", "mcp --folder", "serve --folder", "code x --no-folder --toolchain",
    "run x --no-folder --lora", "model use", "trust",
])  # fmt: skip
def test_a_name_longer_than_any_files_is_said_to_be_none(command: str, stage: Stage) -> None:
    """On d826b836 the first five were "a bug in Stockade"."""
    ended = stage.call(*command.split(), "a" * 300)
    first, *rest = ended.err.splitlines()
    assert (ended.status, ended.out) == (2, "")
    assert first.startswith("stockade: ")
    assert "bug" not in first
    assert all(line.startswith("hint: ") for line in rest)


def test_a_script_with_a_bad_line_names_it(stage: Stage) -> None:
    path = stage.tmp_path / "bad.jsonl"
    path.write_text('{"content": "{}"}\nnonsense\n')
    ended = stage.call("run", "x", "--model", f"scripted/{path}")
    assert ended.status == 2, ended.err
    assert "2" in ended.err
    assert "bug in Stockade" not in ended.err


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--net", "http://pypi.org/"),
        ("--net", "127.0.0.1"),
        ("--store", "/proc/nothing/runs.db"),
    ],
)
def test_what_cannot_be_held_or_is_not_here_yet(stage: Stage, flag: str, value: str) -> None:
    ended = stage.call("run", "x", "--folder", str(stage.demo), "--model", stage.script(DONE), flag, value)
    assert ended.status in (2, 4)
    assert "Traceback" not in ended.err
    assert "bug in Stockade" not in ended.err
    assert stage.left_behind() == []


def test_a_record_that_is_not_one(stage: Stage) -> None:
    path = stage.tmp_path / "runs.db"
    path.write_bytes(b"nonsense" * 1000)
    ended = stage.call("runs", "list", "--store", str(path))
    assert ended.status == 4
    assert ended.err.startswith(f"stockade: the record {path} is damaged")
    assert path.read_bytes() == b"nonsense" * 1000


def test_a_project_file_of_the_bot_is_not_obeyed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(stage.demo / "stockade.toml").write_text('model = "nonsense/x"\n')
    monkeypatch.chdir(stage.demo)
    ended = stage.call("run", "x", "--model", stage.script(DONE))
    assert ended.status == 0
    assert "stockade.toml was not read: it is not trusted as it stands" in ended.err


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("run", "x", "--model", "smollm2"), "not a model: 'smollm2'", "did you mean embedded/smollm2?"),
        (("model", "info", "smollm2"), "not a model: 'smollm2'", "did you mean embedded/smollm2?"),
        (("model", "serve", "smolm2"), "not a model: 'smolm2'", "did you mean embedded/smollm2?"),
        (("sandbox", "exec", "ls", "-la"), "No such option", "put -- before the command: stockade sandbox exec"),
        (("run", "x", "--tool", "nope"), "there is no tool 'nope'", "`stockade tool list` names them all"),
        (("run", "x", "--tool", "pyton"), "there is no tool 'pyton'", "did you mean python?"),
        (("run", "x", "-m", "embedded/smolm2"), "no embedded model 'smolm2'", "did you mean embedded/smollm2?"),
        (("run", "x", "--no-folder", "--sandbox", "podmn"), "there is no sandbox 'podmn'", "did you mean podman?"),
        (("run", "x", "--approve", "nevr"), "'nevr' is not one of", "did you mean never?"),
        (("run", "x", "-b", "writng"), "there is no bot 'writng'", "did you mean writing?"),
        (("run", "x", "--flder", "y"), "No such option '--flder'. (Did you mean", "stockade run --help"),
        (("completion", "zhs"), "'zhs' is not one of", "did you mean zsh?"),
        (("help", "setings"), "there is no topic 'setings'", "did you mean settings?"),
        (("runs", "lst"), "there is no command 'lst'", "did you mean list?"),
        (("tool", "run", "ok.jsonl"), "must have a .wasm extension", "`stockade tool list`"),
    ],
)
def test_the_hint_is_the_way_out(stage: Stage, arguments: tuple[str, ...], message: str, hint: str) -> None:
    ended = stage.call(*arguments)
    assert ended.status == 2
    first, second = ended.err.splitlines()
    assert message in first
    assert second.startswith("hint: ")
    assert hint in second


def test_a_folder_that_was_moved_has_a_way_out(stage: Stage) -> None:
    assert stage.run(COUNT, DONE, DONE).status == 0
    stage.demo.rename(stage.tmp_path / "moved")
    for again in (("diff", "last"), ("apply", "last"), ("resume", "last", "and more")):
        ended = stage.call("runs", *again)
        assert ended.status == 2
        assert "hint: if it was moved, move it back" in ended.err
    stage.demo.mkdir()
    assert "another folder than the one the run began with" in stage.call("runs", "resume", "last", "more").err
    thrown = stage.call("runs", "discard", "last")
    assert (thrown.status, "threw away all that run" in thrown.err) == (0, True)
    assert stage.left_behind() == []


def test_a_conflict_names_the_flag_as_it_is_typed(stage: Stage) -> None:
    assert stage.run(COUNT, DONE, DONE).status == 0
    (stage.demo / "count.txt").write_text("mine\n")
    assert "then apply with --merge, or with --force" in stage.call("runs", "apply", "last").err
    assert stage.call("runs", "apply", "last", "--force").status == 0
    assert (stage.demo / "count.txt").read_text() == "3\n"


def test_a_diff_of_nothing_is_no_mistake(stage: Stage) -> None:
    assert stage.run(DONE, DONE, DONE).status == 0
    nothing = stage.call("runs", "diff", "last")
    assert (nothing.status, nothing.out) == (0, "")
    assert "changed nothing" in nothing.err
    assert stage.call("runs", "apply", "last").status == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("sandbox", "exec", "--disk", "", "true"), "--disk"),
        (("sandbox", "exec", "--memory", "", "true"), "--memory"),
        (("runs", "list", "--store", b"\xff"), "is not UTF-8"),
        (("runs", "resume", b"\xff"), "there is no run"),
        (("runs", "rm", b"\xff"), "there is no run"),
    ],
)
def test_an_empty_size_and_what_is_no_text_are_usage_errors(
    stage: Stage, words: tuple[str | bytes, ...], told: str
) -> None:
    """On 90cacfa they were bugs in Stockade."""
    ended = stage.call(*words)
    assert (ended.status, "bug" in ended.err) == (2, False), ended.err
    assert told in ended.err


def test_a_module_beside_python_m_is_not_run(stage: Stage) -> None:
    """On 90cacfa a json.py in the current folder was."""
    (stage.demo / "json.py").write_text("raise SystemExit('mine')")
    for module in ("stockade", "stockade.cli"):
        done = subprocess.run(
            [sys.executable, "-m", module, "runs", "list"], cwd=stage.demo, capture_output=True, text=True, check=False,
            env=stage.environment(), timeout=PATIENCE_S,
        )  # fmt: skip
        assert (done.returncode, "mine" in done.stderr) == (0, False), done.stderr
