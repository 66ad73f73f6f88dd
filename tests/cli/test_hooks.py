"""Hooks through the real command: by name, as commands, from a package; loop detection on real runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from stockade.testing import say
from tests.cli.conftest import Ended, Stage
from tests.support.strong_model import Call, finish, shell, strong_model

GUARD = """
from stockade.core.actions import Shell
from stockade.loop.hooks import Hook, Refuse

class Guard(Hook):
    name = "guard"

    async def before_action(self, ctx, action):
        return Refuse("pushing is for people") if isinstance(action, Shell) and "push" in action.command else None

def broken():
    raise RuntimeError("no licence")
"""
PUSH, DONE = say("shell", command="echo push > pushed"), say("finish", answer="x")
SAID = "The same action has given the same result 3 times in a row."


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that nobody here wrote, installed."""
    site = tmp_path / "site"
    about = site / "guard_for_tests-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "guard_for_tests.py").write_text(GUARD)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: guard-for-tests\nVersion: 1.0\n")
    points = ["guard = guard_for_tests:Guard", "broken = guard_for_tests:broken", "gone = guard_for_tests:Gone"]
    (about / "entry_points.txt").write_text("[stockade.hooks]\n" + "\n".join(points) + "\n")
    monkeypatch.setenv("PYTHONPATH", str(site))


def configure(stage: Stage, text: str) -> None:
    folder = stage.home / ".config" / "stockade"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)


def command(on: str, script: str, name: str = "mine") -> str:
    return f'[[hooks]]\nname = "{name}"\non = "{on}"\ncommand = ["sh", "-c", {json.dumps(script)}]\n'


def of(ended: Ended, kind: str) -> list[dict[str, Any]]:
    return [event for event in ended.events if event["type"] == kind]


@pytest.mark.usefixtures("package")
def test_a_hook_of_another_package_is_on_by_its_name(stage: Stage) -> None:
    ended = stage.run(PUSH, DONE, flags=("-o", "hooks=guard", "--json"))
    assert ended.status == 0, ended.err
    assert ended.events[0]["hooks"][-1] == "guard"
    (done,) = of(ended, "action_finished")
    assert (done["observation"]["by"], done["observation"]["reason"]) == ("guard", "pushing is for people")
    assert "guard" not in stage.run(PUSH, DONE, flags=("--json",)).events[0]["hooks"]


@pytest.mark.usefixtures("package")
def test_a_hook_is_left_out_by_its_name(stage: Stage) -> None:
    configure(stage, 'hooks = ["guard"]\n')
    assert "guard" in stage.run(DONE, flags=("--json",)).events[0]["hooks"]
    ended = stage.run(PUSH, DONE, flags=("--json", "-o", "hooks=-guard,-loop_detection"))
    assert (ended.status, ended.result["changes"][0]["path"]) == (0, "pushed"), ended.err
    assert {"guard", "loop_detection"}.isdisjoint(ended.events[0]["hooks"])


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("broken", "the hook 'broken' of guard_for_tests:broken cannot be made: RuntimeError: no licence"),
        ("gone", "the hook 'gone' of guard_for_tests:Gone cannot be made: AttributeError"),
        ("guardd", "there is no hook 'guardd'\nhint: did you mean guard?"),
        ("qqq", "there is no hook 'qqq'\nhint: there are budget, check"),
        ("-check", "the hook check is part of every run and cannot be left out"),
    ],
)
def test_a_hook_that_cannot_be_had_is_a_sentence(stage: Stage, name: str, said: str) -> None:
    ended = stage.run(PUSH, DONE, flags=("-o", f"hooks={name}"))
    assert ended.status == 2
    assert said in ended.err
    assert "Traceback" not in ended.err
    assert "bug" not in ended.err


def test_a_broken_command_ends_the_run_as_configuration_and_it_goes_on_without_it(stage: Stage) -> None:
    configure(stage, command("before_action", "grep -q second && echo no such rule >&2 && exit 7; exit 0"))
    first, second = say("shell", command="echo 1 > first"), say("shell", command="echo 2 > second")
    ended = stage.run(first, second, second, second, DONE, flags=("--json",))
    assert (ended.status, ended.result["reason"]) == (2, "hook"), ended.err
    assert "the hook 'mine' is broken: sh ended with exit status 7: no such rule" in ended.result["detail"]
    assert [change["path"] for change in ended.result["changes"]] == ["first"]
    assert stage.call("runs", "resume", "last", "--json").result["reason"] == "hook"
    again = stage.call("runs", "resume", "last", "-o", "hooks=-mine", "--json")
    assert (again.status, len(again.result["changes"])) == (0, 2), again.err


def test_a_command_refuses_ends_and_is_named_to_the_user(stage: Stage) -> None:
    configure(
        stage, command("before_action", 'grep -q push && echo "{\\"end\\": \\"pushing is for people\\"}"; exit 0')
    )
    ended = stage.run(PUSH, DONE)
    assert ended.status == 3
    assert "pushing is for people" in ended.err
    assert not (stage.demo / "pushed").exists()


def test_a_bot_file_names_hooks_and_holds_no_command(stage: Stage) -> None:
    """A bot's file comes from anywhere; on 1cf529c its command ran on this machine."""
    bot = stage.tmp_path / "mine.toml"
    bot.write_text(f'prompt = "Work."\n{command("before_turn", "touch " + str(stage.tmp_path / "ran"))}')
    ended = stage.run(DONE, flags=("--bot", str(bot)))
    assert ended.status == 2
    assert "hooks: a bot names hooks; a command is for the configuration" in ended.err
    assert not (stage.tmp_path / "ran").exists()


def test_two_of_one_name_are_refused(stage: Stage) -> None:
    configure(stage, command("before_turn", "true", "budget"))
    ended = stage.run(DONE)
    assert (ended.status, "the name 'budget'" in ended.err) == (2, True), ended.err


@pytest.mark.parametrize(
    ("flag", "now"), [("--no-advice", "-o small-models=false"), ("--advice", "-o small-models=true")]
)
def test_the_flag_of_version_1_names_what_is_there_now(stage: Stage, flag: str, now: str) -> None:
    ended = stage.run(DONE, flags=(flag,))
    assert (ended.status, f"it is {now} now" in ended.err) == (2, True), ended.err


SAME = shell("cat data.csv")


def looping(stage: Stage, calls: list[Call], *flags: str) -> tuple[Ended, list[dict[str, Any]]]:
    """Over HTTP, as with a model that is not here. What it says, and the requests' bodies."""
    with strong_model([*([call] for call in calls), [finish("x")]]) as model, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", model.base_url)
        place = ("--workspace",) if flags[:1] == ("auto",) else ("--folder",)
        start = ("auto",) if flags[:1] == ("auto",) else ("run", "do it")
        rest = flags[1:] if flags[:1] == ("auto",) else flags
        ended = stage.call(*start, *place, str(stage.demo), "--model", "openai/strong", "--json", *rest)
        return ended, [asked.body for asked in model.turns]


def test_a_loop_is_said_once_and_stopped_after_five_repeats_with_every_tool_at_hand(stage: Stage) -> None:
    """On 90cacfa the bot was offered `finish` only, at rising temperature, and forced to `done`."""
    ended, bodies = looping(stage, [SAME] * 12)
    assert (ended.status, ended.result["status"], ended.result["reason"]) == (3, "stopped", "loop"), ended.err
    assert "6 times in a row" in ended.result["detail"]
    assert [(one["source"], one["text"]) for one in of(ended, "message_injected")] == [("loop_detection", SAID)]
    assert len(of(ended, "action_finished")) == len(bodies) == 6
    assert all(body["tools"] == bodies[0]["tools"] for body in bodies)
    assert {body.get("temperature") for body in bodies} == {bodies[0].get("temperature")}


@pytest.mark.parametrize(
    ("call", "flags"),
    [
        (SAME, ("-o", "loop-repeats=0")),
        (SAME, ("-o", "hooks=-loop_detection")),
    ],
    ids=["never", "left-out"],
)
def test_what_is_no_loop_goes_on(stage: Stage, call: Call, flags: tuple[str, ...]) -> None:
    ended, bodies = looping(stage, [call] * 9, *flags)
    assert (ended.status, len(bodies)) == (0, 10), ended.err
    assert of(ended, "message_injected") == []


def test_the_number_of_repeats_is_a_setting(stage: Stage) -> None:
    ended, bodies = looping(stage, [SAME] * 12, "-o", "loop-repeats=8")
    assert (ended.result["reason"], len(bodies)) == ("loop", 9)


def test_a_loop_that_was_stopped_goes_on_when_it_is_resumed(stage: Stage) -> None:
    assert stage.run(*[say("shell", command="ls")] * 24, DONE, flags=("--json",)).result["turns"] == 6
    again = stage.call("runs", "resume", "last", "--json")  # the row begins anew
    assert (again.status, again.result["reason"], again.result["turns"]) == (3, "loop", 12)
    ended = stage.call("runs", "resume", "last", "-o", "loop-repeats=0", "--json")
    assert (ended.status, ended.result["answer"]) == (0, "x"), ended.err


def test_the_shell_bot_is_told_and_sampled_warmer_and_never_ended(stage: Stage) -> None:
    """On 90cacfa its actions were refused and its tools taken."""
    flags = ("--no-intro", "--max-turns", "12", "-o", "answers=native")
    ended, bodies = looping(stage, [SAME] * 12, "auto", *flags)
    assert (ended.result["status"], ended.result["reason"], len(bodies)) == ("stopped", "turns", 12), ended.err
    assert {event["observation"]["kind"] for event in of(ended, "action_finished")} == {"command"}
    assert "Do something else now." in of(ended, "message_injected")[0]["text"]
    assert all(body["tools"] == bodies[0]["tools"] for body in bodies)
    assert bodies[8]["temperature"] > bodies[0]["temperature"]
