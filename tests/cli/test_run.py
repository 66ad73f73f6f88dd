"""The main job through the real command: what is typed, what comes out, what stands in the folder afterwards."""

import json
import subprocess
import sys
from typing import Any

import pytest

from stockade.testing import say
from tests.cli.conftest import COUNT, DONE, Stage


def test_the_main_job_applied(stage: Stage) -> None:
    ended = stage.run(COUNT, DONE, DONE, flags=("--apply",))
    assert (ended.status, ended.out) == (0, "3 lines\n"), ended.err
    assert (stage.demo / "count.txt").read_text() == "3\n"
    assert "+++ b/count.txt" in ended.err
    assert "\x1b" not in ended.err
    assert stage.left_behind() == []
    shown = stage.call("runs", "show")
    assert "/workspace $ wc -l < data.csv > count.txt\n" in shown.out
    assert "3 lines\ndone" in shown.out


def test_without_a_terminal_changes_are_kept_and_applied_later(stage: Stage) -> None:
    before = stage.tree()
    ended = stage.run(COUNT, DONE, DONE)
    assert ended.status == 0
    assert stage.tree() == before
    assert "Not applied. Review: stockade diff " in ended.err
    assert "+3\n" in stage.call("runs", "diff", "last").out
    assert stage.call("runs", "apply", "last").status == 0
    assert stage.tree() == before | {"count.txt": b"3\n"}
    assert stage.left_behind() == []


def test_what_the_folder_tells_every_model_is_named(stage: Stage) -> None:
    (stage.demo / "AGENTS.md").write_text("Use tabs.\n")
    assert f"the model reads AGENTS.md of {stage.demo}\n" in stage.run(DONE, DONE).err


def test_json_from_the_first_event_to_the_result(stage: Stage) -> None:
    ended = stage.run(COUNT, DONE, DONE, flags=("--json", "--discard"))
    kinds = [event["type"] for event in ended.events]
    assert kinds[:2] == ["run_started", "sandbox_started"]
    assert kinds[-3:] == ["run_finished", "changes_discarded", "result"]
    assert ended.result["status"] == "done"
    assert [change["path"] for change in ended.result["changes"]] == ["count.txt"]
    assert (ended.err, stage.left_behind()) == ("", [])


def test_a_read_only_folder_cannot_be_written(stage: Stage) -> None:
    before = stage.tree()
    write = say("shell", command="touch count.txt")
    ended = stage.call(
        "run", "count", "--folder", f"{stage.demo}:ro", "--model", stage.script(write, DONE), "--json"
    )  # fmt: skip
    assert ended.status == 0
    (output,) = [event["observation"] for event in ended.events if event["type"] == "action_finished"]
    assert output["exit_code"] != 0
    assert ended.result["changes"] == []
    assert stage.tree() == before
    assert stage.left_behind() == []


@pytest.mark.parametrize(("check", "status", "verified"), [("grep -qx 3 count.txt", 0, True), ("false", 1, False)])
def test_the_check_decides(stage: Stage, check: str, status: int, verified: bool) -> None:
    ended = stage.run(COUNT, *6 * [DONE], flags=("--check", check, "--json", "--discard"))
    assert (ended.status, ended.result["verified"]) == (status, verified)


@pytest.mark.parametrize(
    ("answers", "flags", "reason"),
    [
        ([say("shell", command=f"echo {number}") for number in range(5)], ("--max-turns", "2"), "turns"),
        ([say("shell", command="sleep 60")], ("--timeout", "2"), "time"),
        ([{"content": DONE, "delay_s": 60}], ("--timeout", "2"), "time"),
        ([say("shell", command=f"echo {number}") for number in range(5)], ("--max-tokens", "10"), "tokens"),
        (["no json at all", "", "{}", ""], ("--answers", "json"), "unreadable"),
        ([say("shell", command="echo same")] * 12, (), "loop"),
    ],
)
def test_each_stop_has_its_name_and_status_3(
    stage: Stage, answers: list[str | dict[str, Any]], flags: tuple[str, ...], reason: str
) -> None:
    ended = stage.run(*answers, flags=(*flags, "--json"))
    assert (ended.status, ended.result["status"], ended.result["reason"]) == (3, "stopped", reason), ended.err
    assert stage.left_behind() == []


@pytest.mark.parametrize(
    ("answers", "flags", "words"),
    [
        ([say("shell", command=f"echo {number}") for number in range(5)], ("--max-turns", "2"), "(turns: 2 of 2)"),
        ([say("shell", command="sleep 60")], ("--timeout", "1"), "(time: 1 s are over)"),
        ([say("shell", command=f"echo {number}") for number in range(5)], ("--max-tokens", "9"), "(tokens: "),
    ],
)
def test_the_end_names_its_bound_once(stage: Stage, answers: list[str], flags: tuple[str, ...], words: str) -> None:
    ended = stage.run(*answers, flags=flags)
    bound = words.strip("(").partition(":")[0]
    line = next(line for line in ended.err.splitlines() if line.startswith("stopped"))
    assert words in line
    assert line.count(f"{bound}: ") == 1
    quiet = stage.run(*answers, flags=(*flags, "--quiet"))
    assert quiet.err.count(f"{bound}: ") == 0
    assert f"stockade: stopped ({bound}): " in quiet.err


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_after_a_stop_the_hint_is_a_command_that_goes_on(stage: Stage, quiet: tuple[str, ...]) -> None:
    echoes = [say("shell", command=f"echo {number}") for number in range(2)]
    stopped = stage.run(*echoes, DONE, DONE, flags=("--max-turns", "2", *quiet))
    assert stopped.status == 3
    hint = next(line for line in stopped.err.splitlines() if line.startswith("hint: "))
    command = hint.removeprefix("hint: to go on: stockade ").split()
    assert command[:2] == ["runs", "resume"]
    assert command[3:] == ["--max-turns", "4"]
    gone_on = stage.call(*command, "--discard")
    assert gone_on.status == 0, gone_on.err


def test_no_hint_after_an_end_that_is_none_to_go_on_from(stage: Stage) -> None:
    assert "resume" not in stage.run(COUNT, DONE, DONE).err


def test_tokens_are_hinted_at_as_many_again_as_were_used(stage: Stage) -> None:
    stopped = stage.run(say("shell", command="echo 1"), DONE, DONE, flags=("--max-tokens", "9"))
    command = stopped.err.rpartition("hint: to go on: stockade ")[2].split()
    assert stage.call(*command, "--discard").status in (0, 3)


@pytest.mark.parametrize(
    "odd",
    [
        "", "not JSON", "[]", "{}", '{"action": {"tool": "launch"}}', '{"action": {"tool": "shell"}}',
        "{" * 5000, "\x1b[2J\u202e\x00",
    ],
)  # fmt: skip
def test_one_odd_answer_does_not_end_a_run(stage: Stage, odd: str) -> None:
    ended = stage.run(odd, DONE, flags=("--plain", "--answers", "json"))
    assert (ended.status, ended.out) == (0, "3 lines\n"), ended.err
    assert "unreadable answer, attempt 1" in ended.err
    assert "\x1b" not in ended.err
    assert "\u202e" not in ended.err


def test_an_answer_of_10_mb_ends_by_name(stage: Stage) -> None:
    ended = stage.run("x" * 10_000_000, DONE, flags=("--json",))
    assert ended.result["status"] in ("done", "failed")
    assert ended.status in (0, 5)
    assert "Traceback" not in ended.err
    assert stage.left_behind() == []


def test_what_a_command_prints_cannot_command_the_terminal(stage: Stage) -> None:
    attack = say(
        "shell", command=r"printf '\033]0;owned\007\033[2Jgone\rfake\n'; printf '\302\233'", thought="\x1b[31m"
    )
    ended = stage.run(attack, say("finish", answer="\x1b]8;;http://evil\x07link"))
    assert ended.status == 0
    assert ended.out == "\x1b]8;;http://evil\x07link\n"
    for text in (ended.err, stage.call("runs", "show").out):
        assert not any(char in text for char in "\x1b\x07\r\x9b")
    assert "\\x1b[2Jgone\\x0dfake" in ended.err


def test_any_text_arrives_byte_for_byte(stage: Stage) -> None:
    """About a megabyte as file, in a command and as the answer, through the real sandbox."""
    text = "| a |\r\n\t\"q' `\\ é😀\u2028 {} ```\n  <think>" * 20_000
    answer = f"{text}\b\0\x1b[2J"
    ended = stage.run(
        say("write_file", path="a.txt", content=answer),
        say("shell", command=f"cat > b.txt <<'THE_END'\n{text}\nTHE_END"),
        say("edit_file", path="a.txt", old="\b\0", new="\r\0\b"),
        say("finish", answer=answer),
        flags=("--json", "--apply"),
    )
    assert ended.status == 0, ended.err[-2000:]
    assert ended.result["answer"] == answer
    stage.call("runs", "apply", "last")
    assert (stage.demo / "a.txt").read_bytes() == f"{text}\r\0\b\x1b[2J".encode()
    assert (stage.demo / "b.txt").read_bytes() == f"{text}\n".encode()


def test_the_answer_of_the_model_runs_out(stage: Stage) -> None:
    ended = stage.run(COUNT)
    assert ended.status == 5
    assert "no answer left" in ended.err
    assert "Not applied" in ended.err
    assert stage.call("runs", "discard", "last").status == 0
    assert stage.left_behind() == []


def test_what_a_run_without_a_folder_wrote_is_said_to_be_gone(stage: Stage) -> None:
    write = say("shell", command="echo 12 > count.txt; mkdir sub; for n in 1 2 3 4 5; do echo > sub/$n; done")
    ended = stage.call("run", "write 12", "--model", stage.script(write, DONE, DONE))
    assert ended.status == 0, ended.err
    gone = "these files are gone with the sandbox: count.txt, sub/1, sub/2, sub/3, sub/4 and 1 more\n"
    assert f"stockade: {gone}hint: give --folder PATH to keep them\n" in ended.err
    quiet = stage.call("run", "write 12", "--model", stage.script(write, DONE, DONE), "--quiet")
    assert (quiet.out, quiet.err) == ("3 lines\n", "")


def test_nothing_is_said_to_be_gone_that_is_not(stage: Stage) -> None:
    assert "gone" not in stage.run(COUNT, DONE, DONE).err
    copied = ("--copy", f"{stage.demo}:/workspace/demo")
    ended = stage.call("run", "look", "--model", stage.script(say("shell", command="ls"), DONE, DONE), *copied)
    assert ended.status == 0, ended.err
    assert "gone" not in ended.err


@pytest.mark.parametrize("mode", ["overlay", "rw"])
def test_a_folder_that_one_may_not_write_to_is_named_at_the_start(stage: Stage, mode: str) -> None:
    stage.demo.chmod(0o555)
    model = stage.script(say("shell", command="echo 12 > count.txt"), *[DONE] * 4)
    ended = subprocess.run(
        ["setpriv", "--bounding-set=-dac_override,-dac_read_search", sys.executable, "-m", "stockade.cli", "run",
         "write 12", "--folder", f"{stage.demo}:{mode}", "--model", model, "--discard"],
        env=stage.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    words = f"stockade: you cannot write to the folder {stage.demo}\n"
    assert words in ended.stderr
    assert ended.stderr.index(words) < ended.stderr.index("stockade writing")
    assert stage.tree() == {"data.csv": b"a\nb\nc\n"}


def test_nothing_changed_is_said(stage: Stage) -> None:
    ended = stage.run(say("shell", command="ls"), DONE, DONE, DONE, flags=("--apply",))
    assert ended.status == 0
    assert ended.err.splitlines()[-1] == "nothing changed"
    assert "you cannot write" not in ended.err
    reading = stage.run(say("shell", command="ls"), DONE, DONE, flags=("--bot", "reading"))
    assert "nothing changed" not in reading.err


def test_two_runs_at_once_on_one_folder(stage: Stage) -> None:
    both = []
    for name in ("one", "two"):
        answers = (say("shell", command=f"echo {name} > {name}.txt"), DONE, DONE)
        model = stage.script(*answers, name=f"{name}.jsonl")
        both.append(stage.start("run", "write", "--folder", str(stage.demo), "--model", model, "--json", "--apply"))
    for process in both:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert json.loads(out.splitlines()[-1])["status"] == "done"
    assert (stage.demo / "one.txt").read_text() == "one\n"
    assert (stage.demo / "two.txt").read_text() == "two\n"
    assert stage.left_behind() == []


def test_a_conflict_with_a_change_of_the_person_writes_nothing(stage: Stage) -> None:
    assert stage.run(say("shell", command="echo bot >> data.csv"), DONE, DONE).status == 0
    (stage.demo / "data.csv").write_text("mine\n")
    ended = stage.call("runs", "apply", "last")
    assert ended.status == 1
    assert "data.csv" in ended.err
    assert stage.tree() == {"data.csv": b"mine\n"}


def test_a_reader_that_leaves_stops_the_run_quietly(stage: Stage) -> None:
    slow = [{"content": say("shell", command=f"echo {number}"), "delay_s": 1} for number in range(20)]
    process = stage.start(
        "run", "x", "--folder", str(stage.demo), "--model", stage.script(*slow), "--json", "--max-turns", "20"
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""
    shown = stage.call("runs", "show", "--json").events
    assert (shown[-1]["status"], shown[-1]["reason"]) == ("stopped", "user")


def test_files_that_cannot_be_read_do_not_end_a_run(stage: Stage) -> None:
    secret = stage.demo / "secret"
    secret.write_text("x")
    secret.chmod(0)
    ended = stage.run(say("shell", command="cat secret"), DONE, flags=("--json",))
    assert ended.status == 0, ended.err
    (output,) = [event["observation"] for event in ended.events if event["type"] == "action_finished"]
    assert output["exit_code"] == 1
    assert secret.stat().st_mode & 0o777 == 0


def test_an_odd_folder_name(stage: Stage) -> None:
    odd = stage.tmp_path / "a b'\x1b[2J\n:rw"
    odd.mkdir()
    ended = stage.call("run", "x", "--folder", f"{odd}:overlay", "--model", stage.script(DONE), "--plain")
    assert ended.status == 0, ended.err
    assert "\x1b" not in ended.err


def test_a_run_goes_on_when_nobody_reads_its_progress(stage: Stage) -> None:
    process = stage.start("run", "x", "--folder", str(stage.demo), "--model", stage.script(COUNT, DONE, DONE))
    assert process.stderr is not None
    process.stderr.close()
    assert process.stdout is not None
    assert process.stdout.read() == b"3 lines\n"
    assert process.wait(timeout=60) == 0


def test_a_closed_stdin_is_no_person(stage: Stage) -> None:
    command = (sys.executable, "-m", "stockade.cli", "run", "x", "--folder", str(stage.demo))
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *command, "--model", stage.script(COUNT, DONE, DONE)],
        env=stage.environment(), check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "3 lines\n"), done.stderr
    assert "Not applied" in done.stderr


def test_a_bot_that_says_that_it_is_not_done_has_given_up(stage: Stage) -> None:
    ended = stage.run(COUNT, say("finish", answer="There is no such file.", gave_up=True))
    assert (ended.status, ended.out) == (1, "There is no such file.\n")
    assert "stopped (gave up: the bot says that the task cannot be done)" in ended.err
    assert "to go on: stockade runs resume" in ended.err
