"""`stockade plan` on a terminal and off one: the profile, the thoughts, and who authorises what (AG-11 to AG-26)."""

import json
import os
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from tests.cli.conftest import Stage
from tests.cli.test_terminal import QUESTION as DECIDE
from tests.cli.test_terminal import Terminal
from tests.support.hostile_site import hostile_site
from tests.support.strong_model import strong_model

SETTINGS = b"settings? [Y/n] "
ASKED = b"or feedback for Counter: "
PROFILE = {"name": "Counter", "role": "an expert for lines", "constraints": ["Do not delete."],
           "best_practices": ["Count twice."]}  # fmt: skip


def plans(command: str, text: str = "I act.") -> str:
    thoughts = {
        "text": text,
        "reasoning": "It is needed.",
        "plan": ["count", "finish"],
        "criticism": "",
        "speak": "Hm.",
    }
    return json.dumps({"thoughts": thoughts, "action": {"tool": "shell", "command": command}})


def ends(answer: str) -> str:
    return json.dumps({"thoughts": {"text": "Done."}, "action": {"tool": "finish", "answer": answer}})


COUNT = plans("wc -l < data.csv > count.txt", "I count.\x1b[31m")
DONE = ends("3 lines")


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def flags_of(stage: Stage, answers: Sequence[str | dict[str, Any]]) -> list[str]:
    fast = stage.script(json.dumps(PROFILE), name="fast.jsonl")
    return ["--folder", str(stage.demo), "--model", stage.script(*answers), "--fast-model", fast]


def planning(stage: Stage, *answers: str | dict[str, Any], flags: Sequence[str] = ("-y",)) -> Terminal:
    return Terminal(stage, "plan", "count", *flags_of(stage, answers), *flags)


def events(stage: Stage, kind: str) -> list[dict[str, Any]]:
    return [event for event in stage.call("runs", "show", "--json").events if event["type"] == kind]


def observations(stage: Stage) -> list[dict[str, Any]]:
    return [event["observation"] for event in events(stage, "action_finished")]


def test_the_whole_of_it(stage: Stage) -> None:
    shell = planning(stage, COUNT, DONE, DONE, flags=())
    shell.until(SETTINGS)
    for words in (b"Counter", b"an expert for lines", b"Do not delete.", b"Count twice.", b"/workspace"):
        assert words in shell.seen
    shell.type(b"\n")
    shell.until(ASKED)
    for words in (b"COUNTER THOUGHTS:", b"I count.\\x1b[31m", b"REASONING:", b"- count", b"SPEAK:", b"wc"):
        assert words in shell.seen
    assert b"CRITICISM" not in shell.seen
    shell.type(b"y\n")
    shell.until(DECIDE)
    assert b"AUTHORISED BY USER" in shell.seen
    shell.type(b"y\n")
    assert shell.status() == 0
    assert (stage.demo / "count.txt").read_text() == "3\n"
    started = events(stage, "run_started")[0]
    assert started["system_prompt"].startswith("You are Counter, an expert for lines. You work in /workspace")
    assert "Count twice." in started["system_prompt"]
    assert started["options"]["profile"]["name"] == "Counter"
    assert [event["said"] for event in events(stage, "paused")] == ["y"]


def test_the_person_changes_the_profile(stage: Stage) -> None:
    shell = planning(stage, DONE, flags=())
    shell.until(SETTINGS)
    shell.type(b"what?\n")
    shell.until(SETTINGS)
    shell.type(b"n\n")
    for asked, typed in (
        (b"Name [Counter]: ", b"Abacus\n"),
        (b"]: ", b"\n"),
        (b"Constraint 1", b"\n"),
        (b"Constraint 2", b"-\n"),
        (b"Constraint 3", b"Delete nothing at all.\n"),
        (b"Another constraint (Enter: none): ", b"Be kind.\n"),
        (b"Another constraint (Enter: none): ", b"\n"),
        (b"Resource 1", b"-\n"),
        (b"Another resource (Enter: none): ", b"-\n"),
        (b"Best practice 1", b"-\n"),
        (b"Best practice 2", b"\n"),
        (b"Best practice 3", b"\n"),
        (b"Another best practice (Enter: none): ", b"\n"),
    ):
        shell.until(asked)
        shell.type(typed)
    shell.until(SETTINGS)
    assert b"Revised settings" in shell.seen
    shell.type(b"y\n")
    assert shell.status() == 0
    profile = events(stage, "run_started")[0]["options"]["profile"]
    assert (profile["name"], profile["role"]) == ("Abacus", "an expert for lines")
    assert profile["constraints"][1:] == ["Delete nothing at all.", "Be kind."]
    assert profile["resources"] == []
    assert profile["best_practices"][-1] == "Count twice."


def test_the_end_of_input_at_the_profile_begins_nothing(stage: Stage) -> None:
    shell = planning(stage, DONE, flags=())
    shell.until(SETTINGS)
    shell.type(b"\x04")
    assert shell.status() == 130
    assert stage.call("runs", "list").out == ""
    assert stage.left_behind() == []


def test_bad_input_is_asked_again_and_runs_nothing(stage: Stage) -> None:
    """AutoGPT: `y -abc` ran the command."""
    shell = planning(stage, plans("touch ran.txt"), DONE)
    shell.until(ASKED)
    for typed in (b"y -abc\n", b"\n", b"y -0\n"):
        shell.type(typed)
        shell.until(ASKED)
        assert b"AUTHORISED" not in shell.seen
    shell.type(b"n\n")
    assert shell.status() == 3
    assert [one["kind"] for one in observations(stage)] == ["refused"]
    assert events(stage, "paused")[0]["said"] == "y -abc /  / y -0 / n"
    assert not events(stage, "run_finished")[0]["changes"]


def test_n_saves_and_the_run_goes_on_with_the_same_question(stage: Stage) -> None:
    """AutoGPT: `n` ended the program without saving."""
    shell = planning(stage, plans("echo 1 > one"), plans("echo 2 > two"), DONE, DONE)
    shell.until(ASKED)
    shell.type(b"y\n")
    shell.until(ASKED)
    shell.type(b"N\n")
    shell.until(DECIDE)
    shell.type(b"\n")
    assert shell.status() == 3
    last = events(stage, "run_finished")[-1]
    assert (last["status"], last["reason"], last["detail"]) == ("stopped", "user", "the user stopped the run")
    assert [one["kind"] for one in observations(stage)] == ["command", "refused"]
    unasked = stage.call("runs", "resume")
    assert unasked.status in (0, 3), unasked.err
    assert not any(one["kind"] == "command" for one in observations(stage)[2:])


def test_going_on_asks_again(stage: Stage) -> None:
    shell = planning(stage, plans("echo 1 > one"), plans("echo 2 > two"), DONE, DONE)
    shell.until(ASKED)
    shell.type(b"n\n")
    assert shell.status() == 3
    again = Terminal(stage, "runs", "resume")
    again.until(ASKED)
    assert b"echo 2" in again.seen.replace(b"\x1b[36m", b"") or b"two" in again.seen
    again.type(b"y\n")
    again.until(DECIDE)
    again.type(b"y\n")
    assert again.status() == 0
    assert (stage.demo / "two").read_text() == "2\n"


def test_feedback_is_what_the_bot_observes(stage: Stage) -> None:
    shell = planning(stage, plans("rm data.csv"), COUNT, DONE, DONE, flags=("-y", "--discard"))
    shell.until(ASKED)
    shell.type("use wc, bitte schön\n".encode())
    shell.until(ASKED)
    shell.type(b"y\n")
    assert shell.status() == 0
    refused = observations(stage)[0]
    assert refused["kind"] == "refused"
    assert refused["reason"] == "the user refused it: use wc, bitte schön"


def change_goals(shell: Terminal, name: tuple[bytes, bytes], constraint: tuple[bytes, bytes]) -> None:
    """At the question: `g`, then what is asked for the name and the first constraint, and what is typed."""
    for asked, typed in (
        (ASKED, b"g\n"),
        name,
        (b"Role [", b"\n"),
        constraint,
        *((asked, b"\n") for asked in (b"Constraint 2", b"Constraint 3", b"Another constraint")),
        *((asked, b"\n") for asked in (b"Resource 1", b"Another resource")),
        *((asked, b"\n") for asked in (b"practice 1", b"practice 2", b"practice 3", b"Another best practice")),
        (SETTINGS, b"y\n"),
    ):
        shell.until(asked)
        shell.type(typed)


def test_goals_are_changed_in_mid_run(stage: Stage) -> None:
    shell = planning(stage, plans("rm data.csv"), COUNT, DONE, DONE, flags=("-y", "--discard"))
    change_goals(shell, (b"Name [Counter]: ", b"Abacus\n"), (b"Constraint 1", b"Remove no file.\n"))
    shell.until(ASKED)
    shell.type(b"y\n")
    assert shell.status() == 0
    assert (stage.demo / "data.csv").exists()
    told = observations(stage)[0]
    assert told["kind"] == "refused"
    for words in ("your settings have changed, and this was not done", "You are Abacus, ", "1. Remove no file."):
        assert words in told["reason"], told


def test_goals_that_were_changed_are_there_when_the_run_goes_on_and_are_changed_again(stage: Stage) -> None:
    shell = planning(stage, *map(plans, ("rm data.csv", "rm *", "rm *")), COUNT, DONE, DONE, flags=("-y", "--discard"))
    change_goals(shell, (b"Name [Counter]: ", b"Abacus\n"), (b"Constraint 1", b"Remove no file.\n"))
    shell.until(ASKED)
    shell.type(b"n\n")
    assert shell.status() == 3
    again = Terminal(stage, "runs", "resume", "--discard")
    change_goals(again, (b"Name [Abacus]: ", b"\n"), (b"Constraint 1: Remove no file.: ", b"\n"))
    again.until(ASKED)
    again.type(b"y\n")
    assert again.status() == 0
    reasons = [one["reason"].partition("this was not done. ")[2] for one in observations(stage) if "reason" in one]
    first, second = filter(None, reasons)
    assert first == second
    assert first.startswith("You are Abacus, ")


@pytest.mark.parametrize("key", [b"\x03", b"\x04"], ids=["Ctrl-C", "Ctrl-D"])
def test_who_leaves_while_goals_are_changed_stops_and_saves(stage: Stage, key: bytes) -> None:
    shell = planning(stage, plans("rm data.csv"), COUNT, DONE, DONE, flags=("-y", "--discard"))
    shell.until(ASKED)
    shell.type(b"g\n")
    shell.until(b"Name [Counter]: ")
    shell.type(key)
    assert shell.status() in (3, 130)
    assert (stage.demo / "data.csv").exists()
    assert not [one for one in observations(stage) if one["kind"] == "command"]


def test_a_question_of_the_bot_needs_no_authorisation(stage: Stage) -> None:
    asks = json.dumps({"thoughts": {"text": "?"}, "action": {"tool": "ask_user", "question": "Lines or bytes?"}})
    shell = planning(stage, asks, DONE, DONE)
    shell.until(b"(empty: none): ")
    assert b"Lines or bytes?" in shell.seen
    assert b"authorise" not in shell.seen
    shell.type(b"lines\n")
    assert shell.status() == 0
    assert observations(stage) == [{"kind": "answered", "text": "lines"}]


def test_what_the_rules_ask_about_is_asked_about_in_continuous_mode_too(stage: Stage) -> None:
    shell = planning(
        stage, plans("ls"), plans("rm -rf data.csv"), DONE, DONE, flags=("-y", "--continuous", "--approve", "rules")
    )
    shell.until(b"words for the bot: ")
    assert b"rm -rf data.csv" in shell.seen
    shell.type(b"keep it\n")
    assert shell.status() == 0
    assert [one["kind"] for one in observations(stage)] == ["command", "refused"]


def test_y_n_does_so_many_and_asks_again(stage: Stage) -> None:
    steps = [plans(f"echo {number} >> log") for number in range(4)]
    shell = planning(stage, *steps, DONE)
    shell.until(ASKED)
    shell.type(b"y -3\n")
    shell.until(ASKED)
    assert b"actions left: 1]" in shell.seen
    assert b"actions left: 0]" in shell.seen
    shell.type(b"n\n")
    shell.until(DECIDE)
    shell.type(b"y\n")
    assert shell.status() == 3
    assert (stage.demo / "log").read_text() == "0\n1\n2\n"


def test_what_was_typed_before_the_question_authorises_nothing(stage: Stage) -> None:
    shell = planning(stage, plans("sleep 3; echo 1 > one"), plans("echo 2 > two"), DONE)
    shell.until(ASKED)
    shell.type(b"y\n")
    shell.until(b"AUTHORISED")
    os.write(shell.descriptor, b"y\ny\n")
    shell.until(ASKED)
    shell.type(b"n\n")
    shell.until(DECIDE)
    shell.type(b"y\n")
    assert shell.status() == 3
    assert sorted(stage.tree()) == ["data.csv", "one"]


@pytest.mark.parametrize("keys", [b"\x04", b"y\x04\x04"])
def test_a_line_without_its_end_authorises_nothing(stage: Stage, keys: bytes) -> None:
    shell = planning(stage, plans("echo 1 > one"), DONE)
    shell.until(ASKED)
    shell.type(keys)
    assert shell.status() == 3
    assert [one["kind"] for one in observations(stage)] == ["refused"]


def test_every_line_of_a_long_command_is_shown(stage: Stage) -> None:
    hidden = "\n".join([*(f"echo {number}" for number in range(50)), "touch hidden-in-the-middle", *["echo x"] * 50])
    shell = planning(stage, plans(hidden), DONE)
    shell.until(ASKED)
    assert b"all of it, as it will be done" in shell.seen
    assert b"touch hidden-in-the-middle" in shell.seen
    shell.type(b"n\n")
    assert shell.status() == 3


def test_ctrl_c_takes_a_grant_back_and_then_stops_and_saves(stage: Stage) -> None:
    shell = planning(stage, plans("sleep 4; echo 1 > one"), plans("echo 2 > two"), DONE, flags=("-y", "--continuous"))
    shell.until(b"sleep")
    os.write(shell.descriptor, b"\x03")
    shell.until(b"asked about again")
    shell.until(ASKED)
    os.write(shell.descriptor, b"\x03")
    assert shell.status() == 130
    assert b"Traceback" not in shell.seen
    kinds = [one["kind"] for one in observations(stage)]
    assert kinds == ["command", "refused"]
    assert [change["path"] for change in events(stage, "run_finished")[-1]["changes"]] == ["one"]


def test_hanging_up_at_the_question_runs_nothing(stage: Stage) -> None:
    shell = planning(stage, plans("echo 1 > one"), DONE)
    shell.until(ASKED)
    shell.process.send_signal(signal.SIGHUP)
    assert shell.status() == 130
    assert events(stage, "run_finished")[-1]["reason"] == "user"
    assert observations(stage) == []


def test_a_follow_up_task_for_the_same_bot(stage: Stage) -> None:
    shell = planning(stage, COUNT, DONE, plans("cat count.txt"), ends("it says 3"), flags=("-y",))
    shell.until(ASKED)
    shell.type(b"y\n")
    shell.until(DECIDE)
    shell.type(b"What does it say?\n")
    shell.until(ASKED)
    shell.type(b"y\n")
    shell.until(DECIDE)
    assert b"it says 3" in shell.seen
    shell.type(b"y\n")
    assert shell.status() == 0
    assert (stage.demo / "count.txt").read_text() == "3\n"
    assert len(events(stage, "run_started")) == 1
    assert [event["task"] for event in events(stage, "run_resumed")] == ["What does it say?"]


def test_off_a_terminal_nothing_is_authorised(stage: Stage) -> None:
    refused = stage.call("plan", "count", *flags_of(stage, [COUNT, DONE]))
    assert refused.status == 2
    assert "cannot ask you to authorise" in refused.err
    assert stage.call("runs", "list").out == ""
    by_run = stage.call("run", "count", "--bot", "planner", *flags_of(stage, [COUNT, DONE]))
    assert by_run.status == 3
    assert "nobody is there to authorise" in by_run.err
    assert [one["kind"] for one in observations(stage)] == ["refused"]


def test_continuous_mode_ends_at_its_limit(stage: Stage) -> None:
    steps = [plans("echo 1 >> log"), plans("echo 2 >> log"), plans("echo 3 >> log"), DONE]
    ended = stage.call("plan", "count", *flags_of(stage, steps), "-l", "2", "--apply")
    assert ended.status == 3
    assert "continuous mode" in ended.err
    assert [one["kind"] for one in observations(stage)] == ["command", "command", "refused"]
    assert stage.call("runs", "show", "--json").events[0]["options"]["continuous"] == 2


def test_continuous_mode_to_the_end_and_as_json(stage: Stage) -> None:
    ended = stage.call("plan", "count", *flags_of(stage, [COUNT, DONE, DONE]), "--continuous", "--apply", "--json")
    assert ended.status == 0
    assert ended.result["answer"] == "3 lines"
    assert (stage.demo / "count.txt").read_text() == "3\n"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("-l", "0"), "-l"),
        (("-l", "many"), "-l"),
        (("-c", "--worktree"), "-c goes on with one"),
        (("--continuous", "--fast-model", "nobody"), "nobody"),
    ],
)
def test_wrong_flags_are_named(stage: Stage, flags: tuple[str, ...], words: str) -> None:
    ended = stage.call("plan", "count", "--folder", str(stage.demo), "--model", stage.script(DONE), *flags)
    assert ended.status == 2
    assert words in ended.err
    assert "Traceback" not in ended.err
    assert stage.left_behind() == []


def test_flags_make_the_profile_and_nothing_is_asked(stage: Stage) -> None:
    flags = ("--ai-name", "Abacus", "--ai-role", "a {counter}", "--constraint", "Only wc.", "--override-directives")
    shell = planning(stage, DONE, flags=flags)
    assert shell.status() == 0
    assert b"settings?" not in shell.seen
    started = events(stage, "run_started")[0]
    assert started["options"]["profile"]["constraints"] == ["Only wc."]
    assert started["system_prompt"].startswith("You are Abacus, a {counter}.")
    assert "an expert for lines" not in started["system_prompt"]


def called(tool: str, **arguments: Any) -> str:
    """As AutoGPT's models say it."""
    return json.dumps({"thoughts": {"text": "I act."}, "command": {"name": tool, "args": arguments}})


def test_the_sample_task_searches_reads_and_writes_a_file(stage: Stage) -> None:
    """AutoGPT's own: one script for the profile and the run, which replays from it; web tools as soon as there is a
    network; `finish` with a reason.
    """
    with hostile_site() as site:
        address = f"localhost:{site.port}"
        answers = (
            json.dumps(PROFILE), called("web_search", query="price of tea"),
            called("read_page", url=f"http://{address}/tea"),
            called("write_file", path="tea.txt", content="3 euros 40\n"), called("finish", reason="It is in tea.txt."),
        )  # fmt: skip
        flags = ("--folder", str(stage.demo), "--model", stage.script(*answers), "--continuous", "--apply")
        net = ("--net", address, "--search", f"http://127.0.0.1:{site.port}")
        ended = stage.call("plan", "What does tea cost? Write it to tea.txt.", *flags, *net)
    assert (ended.status, ended.out) == (0, "It is in tea.txt.\n"), ended.err
    assert (stage.demo / "tea.txt").read_text() == "3 euros 40\n"
    seen = [one.get("text", "") for one in observations(stage)]
    assert "results from SearXNG" in seen[0]
    assert "3 euros and 40 cents in Vienna" in seen[1]
    assert events(stage, "run_started")[0]["options"]["profile"]["name"] == "Counter"


def test_without_a_network_there_is_no_web_tool_and_a_hint(stage: Stage) -> None:
    flags = ("--folder", str(stage.demo), "--model", stage.script(json.dumps(PROFILE), DONE), "--continuous")
    ended = stage.call("plan", "count", *flags)
    assert "no tool for the web" in ended.err
    assert "--net open" in ended.err
    assert events(stage, "run_started")[0]["tools"] == []


def test_the_maker_of_the_profile_knows_the_tools_and_the_network(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with strong_model([json.dumps(PROFILE), DONE]) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
        flags = ("--continuous", "--no-folder", "--model", "openai/strong", "--net", "example.org", "--answers", "plan")
        ended = stage.call("plan", "count", *flags)
    assert ended.status == 0, ended.err
    asked = json.loads(model.turns[0].raw)["messages"][-1]["content"]
    assert "The worker has: shell, " in asked
    assert "read_page, of the network example.org." in asked


def test_a_profile_that_cannot_be_read_is_the_default(stage: Stage) -> None:
    fast = stage.script("I'd be glad to help!", name="bad.jsonl")
    flags = ("--folder", str(stage.demo), "--model", stage.script(DONE), "--fast-model", fast, "--continuous")
    ended = stage.call("plan", "count", *flags)
    assert ended.status == 0, ended.err
    assert "the default profile: " in ended.err
    assert events(stage, "run_started")[0]["options"]["profile"]["name"] == "Planner"


def test_a_follow_up_long_after_has_both_models_again(stage: Stage) -> None:
    flags = flags_of(stage, [COUNT, DONE, ends("it says 3")])
    assert stage.call("plan", "count", *flags, "--continuous", "--apply").status == 0
    again = stage.call("runs", "resume", "last", "What does it say?")
    assert again.status == 0, again.err
    assert again.out == "it says 3\n"
    (stage.tmp_path / "fast.jsonl").unlink()
    gone = stage.call("runs", "resume", "last", "And now?")
    assert gone.status in (2, 5)
    assert "fast.jsonl" in gone.err
