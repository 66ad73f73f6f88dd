"""`stockade chat` in a real terminal: one live sandbox, one shell, and what the user types while the bot works."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from stockade.testing import say
from tests.cli.conftest import DONE, PATIENCE_S, Stage, descendants, gone, watched
from tests.cli.test_terminal import Terminal
from tests.support.tmux import Screen

READY = "Ctrl-D leaves"
CHANGE = say("shell", thought="Begin.", command="lives=nine; sleep 1000 & echo begun > out.txt")
LOOK = say("shell", command="echo $lives lives; kill -0 $! && echo alive")
LONG = say("shell", command="echo tock; sleep 1000; echo never")


class Chat(Screen):
    """Whose line is ready."""

    def say(self, words: str, *seen: str) -> None:
        """And wait until all this is on the screen, one behind the other."""
        self.type(f"{words}\r")
        self.until(*seen)

    def leave(self) -> int:
        self.type("\x04")
        return self.status()


Start = Callable[..., Chat]


@pytest.fixture
def chatting(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    for name in ("CI", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    made: list[Chat] = []

    def start(*answers: str | dict[str, Any], words: Sequence[str] | None = None, flags: Sequence[str] = ()) -> Chat:
        """A chat with a model that gives these answers, or the command of these words."""
        model = stage.script(*answers) if answers else ""
        words = ("chat", "--folder", str(stage.demo), "--model", model, *flags) if words is None else words
        made.append(Chat(stage.tmp_path, list(words), stage.demo, stage.environment(), PATIENCE_S))
        made[-1].until(READY)
        return made[-1]

    yield start
    for one in made:
        one.close()


def recorded(stage: Stage) -> list[dict[str, Any]]:
    return stage.call("runs", "show", "--json").events


def outputs(stage: Stage) -> list[tuple[int, str]]:
    """Of each command: its status and what it wrote."""
    found = [event["observation"] for event in recorded(stage) if event["type"] == "action_finished"]
    return [
        (one["exit_code"], "".join(chunk["text"] for chunk in one["chunks"])) for one in found if "exit_code" in one
    ]


def test_one_shell_between_messages_and_all_on_record(stage: Stage, chatting: Start) -> None:
    chat = chatting(CHANGE, DONE, LOOK, say("finish", answer="Nine."))
    chat.say("begin", "3 lines", "1 file changed and to decide on", READY)
    chat.say("how many Lives?", "Nine.", READY)
    assert chat.leave() == 0
    chat.until("1 file changed: Not applied. Review: stockade diff ", "to go on: stockade chat -c")
    assert outputs(stage)[-1] == (0, "nine lives\nalive\n")
    events = recorded(stage)
    kinds = [event["type"] for event in events]
    assert (kinds.count("sandbox_started"), kinds.count("run_resumed"), kinds[-1]) == (1, 1, "run_finished")
    assert [event["task"] for event in events if "task" in event] == ["begin", "how many Lives?"]
    assert events[-1]["seals"] != [None]
    assert stage.call("runs", "apply", "last").status == 0
    assert stage.tree()["out.txt"] == b"begun\n"
    assert stage.left_behind() == []


def test_what_is_typed_while_the_bot_works_is_told_before_its_next_turn(stage: Stage, chatting: Start) -> None:
    wait = say("shell", command="until test -e go; do sleep 0.1; done")
    model = stage.script(wait, DONE)
    chat = chatting(words=("chat", "--folder", f"{stage.demo}:rw", "--model", model))
    chat.say("begin", "until test", "running")
    chat.say("and be Brief", "the bot is told before its next turn")
    (stage.demo / "go").touch()
    chat.until("3 lines")
    assert chat.leave() == 0
    told = [event for event in recorded(stage) if event["type"] == "message_injected"]
    assert [(one["turn"], one["source"], one["text"]) for one in told] == [(2, "user", "The user says: and be Brief")]


def test_ctrl_c_interrupts_a_command_and_keeps_the_chat(stage: Stage, chatting: Start) -> None:
    chat = chatting(CHANGE, LONG, LOOK, DONE)
    chat.say("begin", "tock; sleep")
    chat.until("running")
    chat.type("\x03")
    chat.until("stopped")
    chat.until(READY)
    chat.say("go on", "3 lines", READY)
    assert chat.leave() == 0
    begun, cut, last = outputs(stage)
    assert begun == (0, "")
    assert cut == (130, "tock\nstockade: the user interrupted this command; the shell is as it was before it\n")
    assert last == (0, "nine lives\nalive\n")


def test_ctrl_c_while_the_model_thinks_keeps_the_chat(stage: Stage, chatting: Start) -> None:
    chat = chatting(CHANGE, {"content": DONE, "delay_s": 1000}, LOOK, DONE)
    chat.say("begin", "begun", "thinking")
    chat.type("\x03")
    chat.until("stopped")
    chat.type("half a line\x03")
    chat.say("go on", "3 lines", READY)
    assert chat.leave() == 0
    assert outputs(stage)[-1] == (0, "nine lives\nalive\n")
    assert [event["task"] for event in recorded(stage) if "task" in event] == ["begin", "go on"]


def test_a_killed_chat_has_lost_nothing(stage: Stage, chatting: Start) -> None:
    chat = chatting(CHANGE, DONE, say("shell", command="cat out.txt"), DONE)
    chat.say("begin", "3 lines", READY)
    inside = watched(descendants(chat.pid))
    os.kill(chat.pid, signal.SIGKILL)
    assert gone(inside)
    again = chatting(words=("chat", "-c"))
    again.say("and now?", "3 lines", READY)
    assert again.leave() == 0
    assert outputs(stage)[-1] == (0, "begun\n")
    assert [event["task"] for event in recorded(stage) if "task" in event] == ["begin", "and now?"]


def test_a_chat_killed_in_mid_command_goes_on(stage: Stage, chatting: Start) -> None:
    chat = chatting(CHANGE, LONG, say("shell", command="cat out.txt"), DONE)
    chat.say("begin", "tock; sleep", "running")
    inside = watched([chat.pid, *descendants(chat.pid)])
    os.kill(chat.pid, signal.SIGKILL)
    assert gone(inside)
    went_on = stage.call("run", "-c", "what is there?", folder=stage.demo)
    assert went_on.status == 0, went_on.err
    assert outputs(stage)[-1] == (0, "begun\n")


def test_apply_and_undo_in_a_sandbox_that_goes_on(stage: Stage, chatting: Start) -> None:
    more = say("shell", command="echo $lives >> out.txt; mkdir deep; mv data.csv deep/moved.csv")
    chat = chatting(CHANGE, DONE, more, DONE, DONE)
    chat.say("begin", "3 lines", READY)
    chat.say("/apply", "+begun", "[y]es, [f]iles")
    assert not (stage.demo / "out.txt").exists()
    chat.say("y", "applied: out.txt", READY)
    assert stage.tree()["out.txt"] == b"begun\n"
    chat.say("more", "Your changes were accepted", "3 lines", "2 files changed and to decide on", READY)
    chat.say("/files", "2 files changed", " R data.csv -> deep/moved.csv", " M out.txt +1 -0", READY)
    chat.say("/apply", "+nine", "[y]es, [f]iles")
    chat.say("y", "applied: data.csv, deep, deep/moved.csv, out.txt", READY)
    assert stage.tree()["out.txt"] == b"begun\nnine\n"
    chat.say("/undo", "undone: ", READY)
    assert "out.txt" not in stage.tree()
    assert chat.leave() == 0
    assert [event["type"] for event in recorded(stage)].count("sandbox_started") == 1


def test_words_at_the_question_are_the_next_message(stage: Stage, chatting: Start) -> None:
    chat = chatting(CHANGE, DONE, LOOK, say("finish", answer="Nine."))
    chat.say("begin", "3 lines", READY)
    chat.say("/apply", "[y]es, [f]iles")
    chat.say("say how many first", "Nine.", READY)
    assert chat.leave() == 0
    assert outputs(stage)[-1] == (0, "nine lives\nalive\n")


def test_discarded_changes_are_gone_from_the_next_sandbox(stage: Stage, chatting: Start) -> None:
    chat = chatting(CHANGE, DONE, say("shell", command="ls"), DONE)
    chat.say("begin", "3 lines", READY)
    chat.say("/apply", "[y]es, [f]iles")
    chat.say("x", "changes discarded", READY)
    chat.say("what is there?", "3 lines", READY)
    assert chat.leave() == 0
    assert outputs(stage)[-1] == (0, "data.csv\n")
    assert stage.left_behind() == []


def test_a_question_is_answered_in_the_line(stage: Stage, chatting: Start) -> None:
    chat = chatting(CHANGE, DONE, flags=("--approve", "ask"))
    chat.say("begin", "words for the bot:")
    chat.say("o", "3 lines", READY)
    assert chat.leave() == 0
    assert outputs(stage) == [(0, "")]


def test_another_model_from_now_on(stage: Stage, chatting: Start) -> None:
    other = stage.script(say("shell", command="cat out.txt"), say("finish", answer="The other."), name="other.jsonl")
    chat = chatting(CHANGE, DONE)
    chat.say("begin", "3 lines", READY)
    chat.say(f"/model {other}", "goes to that model", READY)
    (stage.tmp_path / "other.jsonl").write_text((stage.tmp_path / "other.jsonl").read_text() * 3)
    chat.say("and now?", "The other.", READY)
    assert chat.leave() == 0
    assert outputs(stage)[-1] == (0, "begun\n")


def test_another_network_from_now_on(stage: Stage, chatting: Start) -> None:
    chat = chatting(CHANGE, DONE, say("shell", command="cat out.txt; echo proxy=${http_proxy:+there}"), DONE)
    chat.say("begin", "3 lines", READY)
    chat.say("/net opne", "is not understood")
    chat.say("/net pypi.org", "in a new shell", READY)
    chat.say("and now?", "network: pypi.org", "3 lines", READY)
    chat.say("/net", "network: pypi.org (/net")
    assert chat.leave() == 0
    assert outputs(stage)[-1] == (0, "begun\nproxy=there\n")
    told = [event["text"] for event in recorded(stage) if event["type"] == "message_injected"]
    assert "What you can reach from now on: a network by HTTP and TLS (only pypi.org)." in told[-1]


def test_another_bot_is_another_conversation(stage: Stage, chatting: Start) -> None:
    chat = chatting(CHANGE, DONE)
    chat.say("begin", "3 lines", READY)
    first = recorded(stage)[0]
    chat.say("/bot nobody", "nobody")
    chat.say("/bot reading", "a conversation with reading", READY)
    stage.script(DONE)
    chat.say("look", "3 lines", READY)
    assert chat.leave() == 0
    second = recorded(stage)[0]
    assert (first["bot"], second["bot"]) == ("writing", "reading")
    assert second["run_id"] != first["run_id"]
    assert stage.call("runs", "apply", first["run_id"]).status == 0
    assert stage.tree()["out.txt"] == b"begun\n"


def test_back_to_the_beginning(stage: Stage, chatting: Start) -> None:
    chat = chatting(CHANGE, DONE, say("shell", command="ls"), DONE)
    chat.say("begin", "3 lines", READY)
    chat.say("/rewind 0", "after turn 0", READY)
    chat.say("begin again", "3 lines", READY)
    assert chat.leave() == 0
    assert recorded(stage)[0]["parent_turn"] == 0


def test_slash_commands_say_what_there_is(stage: Stage, chatting: Start) -> None:
    chat = chatting(CHANGE, DONE, DONE)
    chat.say("/diff", "there is no sandbox yet")
    chat.say("begin", "3 lines", READY)
    chat.say("/nothing", "there is no /nothing", "/help lists them")
    chat.say("/rewnd 1", "there is no /rewnd", "did you mean /rewind?")
    chat.say("/rewind soon", "wants the number of a turn")
    chat.say("/cost", "2 turns")
    chat.say("/tools", "edit_file")
    chat.say("/net", "no network")
    chat.say("/compact", "in one line each from here on")
    chat.say("and?", "3 lines", READY)
    chat.say("/help", "/compact", READY)
    chat.say("/quit")
    assert chat.status() == 0


def test_history_completion_and_several_lines(stage: Stage, chatting: Start) -> None:
    finish = [say("finish", answer=f"answer {n}") for n in range(4)]
    chat = chatting(*finish)
    chat.say("the first message", "answer 0", READY)
    chat.type("read dat\t")
    chat.until("data.csv")
    chat.say("", "answer 1", READY)
    chat.type("one\x1b\rtwo\\\rthree\r")
    chat.until("answer 2")
    chat.type("\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\r")
    chat.until("answer 3")
    assert chat.leave() == 0
    tasks = [event["task"] for event in recorded(stage) if "task" in event]
    assert tasks == ["the first message", "read data.csv", "one\ntwo\nthree", "the first message"]


def test_stockade_alone_is_a_chat_on_a_terminal_and_the_help_elsewhere(stage: Stage, chatting: Start) -> None:
    assert chatting(words=()).leave() == 0
    assert stage.call("runs", "list", "--json").out == ""
    helped = stage.call()
    assert (helped.status, "Commands:" in helped.err) == (2, True)
    refused = stage.call("chat", "hello")
    assert (refused.status, "a chat needs a terminal" in refused.err) == (2, True)


def test_a_dumb_terminal_has_a_chat_too(stage: Stage) -> None:
    model, folder = stage.script(CHANGE, DONE), str(stage.demo)
    chat = Terminal(stage, "chat", "begin", "--model", model, "--folder", folder, TERM="dumb")
    chat.until(b"3 lines")
    chat.until(b"to decide on")
    chat.type(b"/quit\n")
    assert chat.status() == 0
