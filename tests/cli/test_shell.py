"""`stockade auto` for real: its workspace, what the bot may set itself, and defects of pocket-ASI that stay away."""

import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from stockade.testing import say
from tests.cli.conftest import COUNT, DONE, PATIENCE_S, Ended, Stage, interrupt, until_event

FULL_SCREEN = ("vim x", "nano x", "less x", "top", "man ls", "python3", "ssh host")


def act(**fields: str) -> str:
    return json.dumps([fields])


def live(stage: Stage, *answers: str, flags: tuple[str, ...] = (), turns: int | None = None) -> Ended:
    """A bot with these answers in a workspace of its own, as many turns as it has answers."""
    where, limit = str(stage.tmp_path / "home"), str(turns or len(answers))
    return stage.call("auto", "--workspace", where, "--model", stage.script(*answers), "--no-intro", "--json",
                      "--max-turns", limit, *flags)  # fmt: skip


def seen(ended: Ended) -> list[dict[str, Any]]:
    """What came of each action."""
    return [event["observation"] for event in ended.events if event["type"] == "action_finished"]


def text(observation: dict[str, Any], stream: str = "stdout") -> str:
    return "".join(chunk["text"] or "" for chunk in observation["chunks"] if chunk["stream"] == stream)


def rules(ended: Ended) -> list[dict[str, Any]]:
    return [event for event in ended.events if event["type"] == "self_config_changed"]


def test_a_bot_lives_in_a_new_workspace_until_its_budget_ends_it(stage: Stage) -> None:
    cooler = act(file="config.json", content='{"temperature": 0.5}')
    ended = live(stage, act(file="goal", content="learn C", comment="mine"), cooler, act(command="cat goal main.py"))
    assert (ended.status, ended.result["status"], ended.result["reason"]) == (3, "stopped", "turns")
    home = stage.tmp_path / "home"
    assert sorted(path.name for path in home.iterdir()) == ["config.json", "goal", "main.py", "system.md"]
    assert text(seen(ended)[-1]).startswith("learn C")
    found = [(one["turn"], one["goal"], one["sampling"]["temperature"]) for one in rules(ended)]
    assert found == [(1, None, 1.0), (2, "learn C", 1.0), (3, "learn C", 0.5)]


def test_what_it_does_over_and_over_it_sees_in_short(stage: Stage) -> None:
    """A model goes on with what stands before it many times, however it is sampled (docs/measured/shell.md)."""
    ended = live(stage, act(command="echo new"), *[act(command="echo a; false")] * 5, act(command="echo b"))
    folded = [event for event in ended.events if event["type"] == "history_compacted"]
    assert [(event["turn"], event["before_turn"]) for event in folded] == [(6, 6), (7, 7)]
    new, same = folded[0]["summary"].splitlines()
    assert new.startswith('- {"command":"echo new"}: ')
    assert "times" not in new
    assert same.startswith('- {"command":"echo a; false"}: ')
    assert "exit status 1" in same
    assert same.endswith("(4 times the same)")
    assert len(seen(ended)) == 7


def test_the_intro_is_there_hidden_and_can_be_shown(stage: Stage) -> None:
    home = str(stage.tmp_path / "home")
    common = (
        "auto",
        "--workspace",
        home,
        "--model",
        stage.script(act(command="echo after")),
        "--max-turns",
        "1",
    )
    hidden = stage.call(*common)
    assert "echo after" in hidden.err
    assert "git init" not in hidden.err
    assert (Path(home) / "test.txt").read_text() == "This is a test.\n"
    shutil.rmtree(home)
    cast = stage.tmp_path / "live.cast"
    shown = stage.call(*common, "--show-intro", "--cast", str(cast))
    assert "git init" in shown.err
    lines = [json.loads(line) for line in cast.read_text().splitlines()]
    assert lines[0]["version"] == 2
    played = "".join(line[2] for line in lines[1:])
    assert "git" in played
    assert "after" in played
    again = stage.call("runs", "export", "last", "--format", "asciicast")
    assert again.status == 0
    assert json.loads(again.out.splitlines()[0])["version"] == 2


@pytest.mark.parametrize(
    ("flags", "variables", "goal"),
    [
        (("--goal", "from the flag"), {"STOCKADE_GOAL": "x"}, "from the flag"),
        ((), {"STOCKADE_GOAL": "ours", "LLAMA_DEFAULT_GOAL": "theirs"}, "ours"),
        ((), {"LLAMA_DEFAULT_GOAL": "theirs"}, "theirs"),
        ((), {}, "Become the best programmer in the world!"),
    ],
)
def test_the_goal_comes_from_the_flag_or_the_environment(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], variables: dict[str, str], goal: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ended = live(stage, act(command="true"), flags=flags)
    assert ended.events[0]["task"] == goal
    assert "not a setting" not in ended.err


def test_what_it_may_not_set_it_does_not_set(stage: Stage) -> None:
    flags = ("--no-own-goal", "--no-own-prompt", "--no-own-sampling")
    ended = live(stage, act(file="goal", content="evil"), act(command="true"), flags=flags)
    assert not rules(ended)
    assert "rule yourself" not in ended.events[0]["system_prompt"]


def test_hostile_files_of_its_own_are_refused_and_it_lives_on(stage: Stage) -> None:
    ended = live(
        stage,
        act(command="rm -f goal system.md config.json; mkfifo goal; ln -s /dev/zero system.md; mkdir config.json"),
        act(command="rm -rf goal system.md config.json; yes x | head -c 9M > system.md; ln -s /etc/passwd config.json"),
        act(command="echo alive"),
    )
    assert text(seen(ended)[-1]) == "alive\n"
    assert len(rules(ended)[1]["refused"]) == 3
    assert len(rules(ended)[2]["refused"]) == 2


def test_a_folder_of_yours_is_its_home_only_when_you_name_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stage.tmp_path)
    stage.demo.rename(stage.tmp_path / "workspace")
    common = ("--model", stage.script(act(command="touch new")), "--max-turns", "1", "--no-intro")
    refused = stage.call("auto", *common)
    assert (refused.status, "--workspace" in refused.err) == (2, True)
    assert sorted(path.name for path in (stage.tmp_path / "workspace").iterdir()) == ["data.csv"]
    assert stage.call("auto", *common, "--workspace", "workspace").status == 3
    assert (stage.tmp_path / "workspace" / "new").exists()


def test_ctrl_c_ends_it_in_order_nobody_else_may_have_its_workspace_and_it_goes_on(stage: Stage) -> None:
    home = str(stage.tmp_path / "home")
    script = stage.script(act(file="goal", content="learn C"), act(command="sleep 300"), act(command="cat goal"))
    process = stage.start("auto", "--workspace", home, "--model", script, "--json", "--no-intro")
    until_event(process, "self_config_changed")
    until_event(process, "self_config_changed")
    until_event(process, "action_started")
    second = stage.call("auto", "--workspace", home, "--model", script, "--max-turns", "1")
    assert (second.status, "a bot lives in" in second.err) == (2, True)
    interrupt(process, signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
    again = stage.call("runs", "resume", "last", "--json", "--max-turns", "3")
    assert again.result["reason"] == "turns"
    assert text(seen(again)[-1]) == "learn C"
    assert not rules(again), "what was in force is in force: nothing new to put on record"


def test_writes_are_writes_and_strings_hold_anything(stage: Stage) -> None:
    content = "say \"hi\" `now` 'and' \\ then\n\ttab ünï\n"
    answer = json.dumps([{"file": "a.txt", "content": content}, {"file": "a.txt"}, {"command": 'echo `echo "q"`'}])
    ended = live(stage, answer)
    written, read, said = seen(ended)
    assert (written["kind"], written["size"], read["text"]) == ("written", len(content.encode()), content)
    assert text(said) == "q\n"


def test_the_time_limit_of_the_environment_holds_and_the_model_is_told(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_EXIT_TIMEOUT", "0.5")
    ended = live(stage, act(command="cd /tmp"), act(command="sleep 60"), act(command="pwd"))
    _, late, after = seen(ended)
    assert (late["timed_out"], late["exit_code"]) == (True, 124)
    assert text(after) == "/tmp\n"


def test_shell_syntax_that_a_parser_would_choke_on(stage: Stage) -> None:
    commands = ("case a in a) echo one;; esac", "echo $((6*7))", "> made; ls made", "printf '\\377\\376'",
                "cat; echo read", "if", "", "# only a comment", "exit 5", "echo still here")  # fmt: skip
    ended = live(stage, json.dumps([{"command": command or ":"} for command in commands]))
    found = seen(ended)
    assert [text(one) for one in found[:3]] == ["one\n", "42\n", "made\n"]
    assert found[3]["chunks"][0]["base64"] == "//4="
    assert text(found[4]) == "read\n"
    assert found[5]["exit_code"] == 2
    assert (found[7]["exit_code"], found[8]["exit_code"], text(found[9])) == (0, 5, "still here\n")


def test_programs_for_a_screen_are_refused_or_end_at_once(stage: Stage) -> None:
    ended = live(
        stage, json.dumps([{"command": command} for command in FULL_SCREEN]), flags=("--command-timeout", "20")
    )
    assert not [one for one in seen(ended) if one["timed_out"]]


def test_answers_without_an_action_do_not_spin_for_ever(stage: Stage) -> None:
    ended = live(stage, *["I would rather write about it."] * 30)
    assert (ended.status, ended.result["reason"], ended.result["turns"]) == (3, "unreadable", 0)
    assert sum(event["type"] == "answer_unreadable" for event in ended.events) == 20


def test_raw_answers_are_shown_as_they_come(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = '[{"command": "echo \\u001b[2Jon"}]'
    arguments = ("auto", "--workspace", str(stage.tmp_path / "home"), "--no-intro", "--max-turns", "1", "--model")
    assert raw not in stage.call(*arguments, stage.script(raw)).err
    monkeypatch.setenv("LLAMA_STREAM", "True")
    shown = stage.call(*arguments, stage.script(raw)).err
    assert f"{raw}\n" in shown
    assert shown.index(raw) < shown.index("$ echo")
    monkeypatch.setenv("LLAMA_STREAM", "False")
    assert raw not in stage.call(*arguments, stage.script(raw)).err
    assert raw in stage.call(*arguments, stage.script(raw), "-o", "raw_answers=true").err


def test_a_log_says_when_what_happened(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("run", "count", "--folder", str(stage.demo), "--model", stage.script(COUNT, DONE), "--json", "-o")
    plain = stage.call(*arguments, "log_level=warning")
    assert " - " not in plain.err
    monkeypatch.setenv("STOCKADE_LOG_LEVEL", "info")
    told = stage.call(*arguments, "max_turns=9")
    lines = re.findall(r"^\d\d:\d\d\.\d{3} - INFO - stockade\.run - (.*)$", told.err, re.MULTILINE)
    assert (lines[0], lines[-1]) == ("run_started", "run_finished")
    assert "action_finished, turn 1" in lines
    assert not [line for line in told.out.splitlines() if not line.startswith("{")]
    monkeypatch.setenv("A_KEY", "sk-0123456789abcdef0123")
    say_it = stage.script(say("shell", command="echo $A_KEY"), DONE)
    whole = stage.call("run", "x", "--no-folder", "--model", say_it, "--env", "A_KEY", "-o", "log_level=debug")
    assert '- DEBUG - stockade.run - {"at":' in whole.err
    assert "sk-0123456789abcdef0123" not in whole.err
    wrong = stage.call(*arguments, "log_level=loud")
    assert (wrong.status, "off, error, warning, info" in wrong.err) == (2, True), wrong.err


def test_a_stream_in_config_json_changes_nothing(stage: Stage) -> None:
    ended = live(stage, act(file="config.json", content='{"stream": true, "temperature": 0.7}'), act(command="echo on"))
    assert text(seen(ended)[-1]) == "on\n"
    assert rules(ended)[-1]["sampling"]["temperature"] == 0.7
    assert not rules(ended)[-1]["refused"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--workspace", ""), "names no folder"),
        (("--workspace", "/proc/nothing/here"), "cannot be made"),
        (("--cast", "/"), "there already"),
        (("--goal", " "), "empty"),
        (("dance", "--goal", "x"), "--goal and TASK are the same"),
        (("dance", "twice"), "unexpected extra argument"),
    ],
)
def test_mistakes_are_named_in_one_line(stage: Stage, arguments: tuple[str, ...], words: str) -> None:
    where = () if "--workspace" in arguments else ("--workspace", str(stage.tmp_path / "home"))
    ended = stage.call("auto", *arguments, *where, "--model", stage.script(act(command="true")), "--max-turns", "1")
    assert ended.status == 2
    assert words in ended.err
    assert "Traceback" not in ended.err
