"""Runs that go on, go back and are shown again: the real command, the real sandbox, a scripted model."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from stockade.testing import say
from stockade_sandbox.overlay.discard import remove_tree
from tests.cli.conftest import COUNT, DONE, PATIENCE_S, Stage, descendants, gone, until_event, watched

ONE = say("shell", command="export NAME=kept; mkdir sub; cd sub; echo one >> ../log")
TWO = say("shell", command="echo two >> ../log; sleep 300")
THREE = say("shell", command='echo "three $NAME" >> ../log; pwd; cat ../log')
SCRIPT = (ONE, TWO, THREE, DONE, DONE)


def cut(stage: Stage, *answers: str) -> None:
    """A run that is killed while its second command is under way."""
    model = stage.script(*answers)
    process = stage.start("run", "append", "--folder", str(stage.demo), "--model", model, "--json")
    until_event(process, "action_finished")
    until_event(process, "action_started")
    below = watched(descendants(process.pid))
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert gone(below)


def events(stage: Stage, run: str = "last") -> list[dict[str, Any]]:
    return stage.call("runs", "show", run, "--json").events


def outputs(stage: Stage) -> list[str]:
    found = [event["observation"] for event in events(stage) if event["type"] == "action_finished"]
    return ["".join(chunk["text"] for chunk in one.get("chunks", ())) for one in found]


def test_the_current_folder_is_the_default(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STOCKADE_NO_FOLDER")
    model = stage.script(COUNT, DONE, DONE)
    ended = stage.call("run", "count", "--model", model, "--json", folder=stage.demo)
    assert ended.events[0]["policy"]["folders"][0]["host"] == str(stage.demo)
    assert ended.events[0]["policy"]["folders"][0]["mode"] == "overlay"
    assert stage.tree() == {"data.csv": b"a\nb\nc\n"}
    assert stage.call("apply", folder=stage.demo).status == 0
    assert stage.tree()["count.txt"] == b"3\n"
    reading = stage.call("run", "look", "--bot", "reading", "--model", model, "--json", folder=stage.demo)
    assert reading.events[0]["policy"]["folders"][0]["mode"] == "ro"
    living = stage.call(
        "run", "live", "--bot", "shell", "--model", model, "--json", "--max-turns", "1", folder=stage.demo
    )
    assert living.events[0]["policy"]["folders"][0]["mode"] == "overlay"
    nowhere = stage.call("run", "count", "--no-folder", "--model", stage.script(DONE), "--json", folder=stage.demo)
    assert nowhere.events[0]["policy"]["folders"] == []
    both = stage.call("run", "count", "--no-folder", "--folder", ".", folder=stage.demo)
    assert (both.status, "--folder and --no-folder exclude each other" in both.err) == (2, True)


@pytest.mark.parametrize(
    ("place", "why"),
    [("/", "the whole machine"), ("~", "the home"), ("~/.local/state", "its own files"), ("/usr/lib", "the system")],
)
def test_folders_that_are_nobodys_project_are_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, place: str, why: str
) -> None:
    monkeypatch.delenv("STOCKADE_NO_FOLDER")
    folder = Path(place.replace("~", str(stage.home)))
    folder.mkdir(parents=True, exist_ok=True)
    for command in ("run", "code"):
        refused = stage.call(command, "count", "--model", stage.script(DONE), folder=folder)
        assert (refused.status, why in refused.err) == (2, True), refused.err
        assert "or --no-folder" in refused.err
    assert stage.call("runs", "list", "--json").out == ""


def test_the_last_run_of_this_folder_goes_on(stage: Stage) -> None:
    model = stage.script(COUNT, DONE, say("finish", answer="As I said: 3."))
    assert stage.call("run", "count", "--folder", str(stage.demo), "--model", model).status == 0
    other = stage.tmp_path / "other"
    other.mkdir()
    assert stage.call("run", "wait", "--folder", str(other), "--model", stage.script(DONE, name="b")).status == 0
    went_on = stage.call("run", "-c", "and?", folder=stage.demo)
    assert (went_on.status, went_on.out) == (0, "As I said: 3.\n")
    assert "goes on with run" in went_on.err
    refused = stage.call("run", "-c", "and?", "--folder", str(other), folder=stage.demo)
    assert (refused.status, "--folder: the run goes on with what it began with" in refused.err) == (2, True)
    assert "no run of" in stage.call("run", "-c", "and?", folder=stage.tmp_path).err


def test_a_killed_run_goes_on_with_folder_shell_and_conversation(stage: Stage) -> None:
    cut(stage, *SCRIPT)
    ended = stage.call("runs", "resume", "--apply")
    assert ended.status == 0, ended.err
    assert outputs(stage)[-1] == "/workspace/sub\none\nthree kept\n"
    assert (stage.demo / "log").read_text() == "one\nthree kept\n"
    assert stage.left_behind() == []
    again = stage.call("runs", "resume")
    assert again.status == 2
    assert "is done" in again.err


def test_a_run_whose_layer_is_gone_goes_on_only_when_told_so(stage: Stage) -> None:
    """On 90cacfa it went on silently, and `runs diff` said that it had changed nothing."""
    more = say("shell", command="cat log; echo more >> log")
    ended = stage.run(say("shell", command="echo one >> log"), DONE, more, DONE, flags=("--no-input",))
    assert ended.status == 0, ended.err
    (layer,) = stage.state.glob("runs/*/0")
    remove_tree(layer)
    for command in (("diff", "last"), ("apply", "last"), ("resume", "last", "and more")):
        ended = stage.call("runs", *command)
        assert ended.status == 2
        assert f"what the run wrote to {stage.demo} is gone" in ended.err
        assert f"stockade runs resume {layer.parent.name} --from-scratch" in ended.err
    assert f"what the run wrote to {stage.demo} is gone" in stage.call("runs", "show").out.replace("\n", " ")
    assert f"left out: what the run wrote to {stage.demo} is gone" in stage.call("runs", "export").out
    replayed = stage.call("runs", "replay", "--speed", "0")
    assert f"the changes are not shown: what the run wrote to {stage.demo} is gone" in replayed.err
    ended = stage.call("runs", "resume", "last", "and more", "--from-scratch", "--apply")
    assert ended.status == 0, ended.err
    assert f"what it wrote to {stage.demo} before is gone" in ended.err
    assert (stage.demo / "log").read_text() == "more\n"
    said = [event["text"] for event in events(stage) if event["type"] == "message_injected"]
    assert "before is lost" in said[-1]


def test_a_run_whose_layer_is_gone_can_be_closed(stage: Stage) -> None:
    assert stage.run(say("shell", command="echo one >> log"), DONE, flags=("--no-input",)).status == 0
    (layer,) = stage.state.glob("runs/*/0")
    remove_tree(layer)
    assert stage.call("runs", "discard", "last").status == 0
    assert "were discarded on" in stage.call("runs", "diff", "last").err
    assert stage.left_behind() == []


def test_a_new_task_after_the_end_and_after_applying(stage: Stage) -> None:
    more = say("shell", command="cat ../log; echo more >> ../log")
    ended = stage.run(ONE, DONE, more, DONE, flags=("--apply",))
    assert ended.status == 0, ended.err
    ended = stage.call("runs", "resume", "last", "and more", "--apply")
    assert ended.status == 0, ended.err
    assert (stage.demo / "log").read_text() == "one\nmore\n"
    said = [
        event["text"] for event in events(stage) if event["type"] == "message_injected" and event["source"] == "resume"
    ]
    assert "Your changes were accepted" in said[0]
    assert stage.left_behind() == []


def test_a_script_goes_on_behind_what_helpers_took_of_it(stage: Stage) -> None:
    more = say("shell", command="echo more")
    ended = stage.run(say("sub_task", task="look"), say("shell", command="ls"), DONE, DONE, more, DONE,
                      flags=("--no-input", "--bot", "boss"))  # fmt: skip
    assert ended.status == 0, ended.err
    assert stage.call("runs", "resume", "last", "and more", "--no-input").status == 0
    assert outputs(stage)[-1] == "more\n"


def test_rewind_is_another_run_with_the_files_of_that_turn(stage: Stage) -> None:
    two, three = say("shell", command="echo two >> ../log"), say("shell", command="echo three >> ../log; rm -r ../sub")
    assert stage.run(ONE, two, three, DONE, DONE, flags=("--no-input",)).status == 0
    first = events(stage)[0]["run_id"]
    stage.script(ONE, two, say("shell", command="echo other >> ../log"), DONE, DONE)
    ended = stage.call("runs", "rewind", "last", "--to", "2", "--apply")
    assert ended.status == 0, ended.err
    assert (stage.demo / "log").read_text() == "one\ntwo\nother\n"
    assert (stage.demo / "sub").is_dir()
    branch = events(stage)[0]
    assert (branch["parent"], branch["parent_turn"]) == (first, 2)
    diff = stage.call("runs", "diff", first)
    assert "+three" in diff.out, "the run itself is as it was"
    for wrong in ("-1", "9"):
        assert stage.call("runs", "rewind", first, "--to", wrong).status == 2
    assert stage.call("runs", "discard", first).status == 0
    gone_by_now = stage.call("runs", "rewind", first, "--to", "1")
    assert gone_by_now.status == 2
    assert "not on this machine any more" in gone_by_now.err
    assert stage.left_behind() == []


@pytest.mark.parametrize("wrong", [("--max-turns", "1"), ("--net", "x y"), ("--model", "no//such")])
def test_nothing_is_left_of_a_rewind_that_cannot_go_on(wrong: tuple[str, str], stage: Stage) -> None:
    assert stage.run(ONE, say("shell", command="echo two >> ../log"), DONE, flags=("--no-input",)).status == 0
    before, kept, known = stage.tree(), stage.left_behind(), stage.call("runs", "list").out
    assert stage.call("runs", "rewind", "last", "--to", "2", *wrong).status == 2
    assert stage.call("runs", "list").out == known
    assert (stage.tree(), stage.left_behind()) == (before, kept)


def test_the_number_that_rewind_takes_is_in_what_show_shows(stage: Stage) -> None:
    assert stage.run(ONE, "", say("shell", command="echo two >> ../log"), DONE).status == 0
    shown = stage.call("runs", "show").out.splitlines()
    at = next(place for place, line in enumerate(shown) if "echo two" in line)
    number = next(line for line in reversed(shown[:at]) if line.startswith("turn "))
    assert number == "turn 3"
    assert stage.call("runs", "rewind", "last", "--to", number.removeprefix("turn "), "--only").status == 0


def test_the_list_and_the_end_count_the_same_turns(stage: Stage) -> None:
    stopped = stage.run("", "", "", flags=("--json",))
    assert stopped.result["reason"] == "unreadable"
    done = stage.run(ONE, "", DONE, flags=("--json",))
    listed = {run["run_id"]: run["turns"] for run in stage.call("runs", "list", "--json").events}
    assert listed == {ended.result["run"]: ended.result["turns"] for ended in (stopped, done)}
    assert listed[stopped.result["run"]] == 0


def test_replay_is_the_picture_of_the_run(stage: Stage) -> None:
    ended = stage.run(ONE, say("read_file", path="data.csv"), DONE, DONE, flags=("--no-input",))
    shown = stage.call("runs", "replay", "--speed", "0")
    assert shown.status == 0
    assert shown.out == ended.out
    assert ended.err.startswith(shown.err)
    assert ended.err.removeprefix(shown.err).startswith("Not applied")


def test_verify_does_it_again_and_names_the_first_difference(stage: Stage) -> None:
    look = say("shell", command="cat data.csv; cat ../log 2>/dev/null")
    assert stage.run(look, ONE, THREE, DONE, DONE, flags=("--discard",)).status == 0
    before = stage.tree()
    same = stage.call("runs", "replay", "--verify")
    assert same.status == 0, same.err
    assert "3 actions done again: all the same" in same.err
    assert stage.tree() == before
    (stage.demo / "data.csv").write_text("a\nchanged\nc\n")
    other = stage.call("runs", "replay", "--verify")
    assert other.status == 1
    assert "turn 1: shell cat data.csv; cat ../log 2>/dev/null: stdout differs" in other.err
    assert "recorded: 'b'" in other.err
    assert "now:      'changed'" in other.err
    assert stage.left_behind() == []


def test_bounds_of_a_run_that_goes_on(stage: Stage) -> None:
    ended = stage.run(
        ONE, say("shell", command="echo two >> log"), DONE, DONE, flags=("--max-turns", "1", "--no-input")
    )
    assert ended.status == 3
    refused = stage.call("runs", "resume")
    assert refused.status == 2
    assert "--max-turns" in refused.err
    assert stage.call("runs", "resume", "--max-turns", "9", "--apply").status == 0


def test_nobody_goes_on_with_a_run_that_is_under_way(stage: Stage) -> None:
    model = stage.script(say("shell", command="sleep 300"), DONE)
    flags = ("--folder", str(stage.demo), "--model", model, "--json", "--command-timeout", "0", "--timeout", "0")
    process = stage.start("run", "wait", *flags)
    until_event(process, "action_started")
    for words in (("resume",), ("rewind", "--to", "0")):
        refused = stage.call("runs", *words)
        assert refused.status == 2
        assert "still under way" in refused.err
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize("form", ["atif", "jsonl", "markdown", "asciicast"])
def test_export_writes_each_form(stage: Stage, form: str, tmp_path: Path) -> None:
    hostile = say("shell", command=r"printf '\033]0;owned\007red\n'; echo x > new")
    assert stage.run(hostile, DONE, DONE, flags=("--no-input",)).status == 0
    target = tmp_path / "out"
    assert stage.call("runs", "export", "--format", form, "-o", str(target)).status == 0
    data = target.read_bytes()
    assert (b"\x1b" in data) == (form == "markdown")  # it keeps the bytes; the others spell them
    assert b"red" in data
    assert stage.call("runs", "export", "--format", form).out.encode() == data
    if form == "markdown":
        assert b"+x" in data
    refused = stage.call("runs", "export", "--format", form, "-o", str(target))
    assert refused.status == 2
    assert "is there already" in refused.err
    if form == "atif":
        assert json.loads(data)["schema_version"] == "ATIF-v1.7"


def test_a_damaged_snapshot_is_one_clear_line(stage: Stage) -> None:
    cut(stage, *SCRIPT)
    (segment,) = stage.state.glob("runs/*/0/kept/1")
    os.truncate(segment, 20)
    ended = stage.call("runs", "resume")
    assert ended.status == 4
    assert "snapshot" in ended.err
    assert "Traceback" not in ended.err
