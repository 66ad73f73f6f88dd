"""A bot in `with`: one conversation, one sandbox, and results that are what was asked for."""

import os
import signal
import time
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from pydantic import BaseModel, field_validator

from stockade import Bot, Folder, ReadingBot, Sandbox, WritingBot, tool
from stockade.core.actions import Action
from stockade.core.errors import UsageError
from stockade.core.events import RunResumed
from stockade.loop.hooks import Hook
from stockade.paths import run_dir
from stockade.run_lock import is_locked
from stockade.testing import ScriptedModel, say
from stockade_sandbox.processes import descendants, start_time


class Lines(BaseModel):
    lines: int

    @field_validator("lines")
    @classmethod
    def _some(cls, value: int) -> int:
        if value == 13:
            raise ValueError("13 is unlucky")
        return value


def shell(command: str) -> str:
    return say("shell", command=command)


def done(answer: str) -> str:
    return say("finish", answer=answer)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "demo"
    place.mkdir()
    (place / "data.csv").write_text("a,b\n1,2\n3,4\n")
    return place


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE", "CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))


def said(model: ScriptedModel) -> list[str]:
    return [message.content for message in model.requests[-1].messages]


def test_the_second_task_is_in_the_same_shell_and_conversation(folder: Path) -> None:
    model = ScriptedModel(
        [shell("seen=42; sleep 300 & echo one > one.txt"), done("first"), shell("echo $seen; jobs"), done("second")]
    )
    with WritingBot(folder=folder, model=model) as bot:
        first = bot.run("One")
        assert is_locked(first.run_id)
        assert first.apply() == ("one.txt",)
        assert (folder / "one.txt").read_text() == "one\n"
        second = bot.run("Two")
        assert (bool(second), second.answer, second.run_id) == (True, "second", first.run_id)
        seen = "\n".join(said(model))
        assert "42\n" in seen
        assert "sleep 300" in seen.rpartition("Two")[2]
        assert "The shell is new" not in seen
        assert "Your changes were accepted" in seen
        assert [request.messages[0] for request in model.requests].count(model.requests[0].messages[0]) == 4
        going_on = second.events[0]
        assert isinstance(going_on, RunResumed)
        assert going_on.live
        assert second.changes == ()
        assert second.undo() == ("one.txt",)
        assert not (folder / "one.txt").exists()
    assert not is_locked(first.run_id)


def test_what_runs_in_it_stands_still_between_the_tasks(folder: Path) -> None:
    ticks = shell("while sleep 0.01; do date +%N >> tick; done & sleep 0.1")
    model = ScriptedModel([ticks, done("ticks"), shell("sleep 0.1; tail -n 1 tick"), done("on")])
    with WritingBot(folder=folder, model=model) as bot:
        first = bot.run("Tick")
        assert first.diff == first.diff != ""
        applied = first.apply()
        assert applied == ("tick",)
        then = (folder / "tick").read_text().splitlines()[-1]
        assert bot.run("And on").diff != ""
        assert then not in said(model)[-1]


def test_it_cannot_be_thrown_away_under_the_bot(folder: Path) -> None:
    model = ScriptedModel([shell("echo x > x"), done("made"), done("still")])
    with WritingBot(folder=folder, model=model) as bot:
        result = bot.run("Make x")
        with pytest.raises(UsageError, match="still up"):
            result.discard()
        assert bot.run("And?")
    result.discard()
    assert not run_dir(result.run_id).exists()


def test_nothing_is_left_where_nothing_was_written(folder: Path) -> None:
    with ReadingBot(folder=folder, model=ScriptedModel([done("a"), done("b")])) as bot:
        result = bot.run("One")
        assert bot.run("Two").answer == "b"
    assert not run_dir(result.run_id).exists()


def test_a_check_may_come_with_the_second_task_and_is_run_apart(folder: Path) -> None:
    model = ScriptedModel([shell("touch made /tmp/forged"), done("a"), *[done("b")] * 4])
    with WritingBot(folder=folder, model=model) as bot:
        assert bot.run("One").verified is None
        forged = bot.run("Two", check="test -e /tmp/forged", max_iterations=1)
        assert (bool(forged), forged.verified) == (False, False)
        assert bot.run("Three", check="test -e made").verified is True
        assert bot.run("Four").verified is None


def test_a_check_of_the_bots_holds_for_each_task(folder: Path) -> None:
    model = ScriptedModel([done("a"), *[done("b")] * 3])
    with WritingBot(folder=folder, model=model, check="true") as bot:
        assert bot.run("One").verified is True
        assert bot.run("Two", max_iterations=1).verified is True
        assert bot.run("Three", check="false", max_iterations=1).verified is False
        assert bot.run("Four", max_iterations=1).verified is True


@pytest.mark.parametrize(
    ("name", "value"), [("net", "open"), ("memory", "1G"), ("protect", ["tests"]), ("tool", ["memory"])]
)
def test_what_the_sandbox_and_the_bot_are_is_said_once(folder: Path, name: str, value: object) -> None:
    with WritingBot(folder=folder, model=ScriptedModel([done("a"), done("b")])) as bot:
        bot.run("One")
        with pytest.raises(UsageError, match=f"{name} is what it was when the conversation began"):
            bot.run("Two", **{name: value})  # type: ignore[arg-type]
        assert bot.run("Two").answer == "b"


def test_a_sandbox_that_died_is_followed_by_another(folder: Path) -> None:
    answers = [shell("echo x > x"), done("a"), shell("cat x"), shell("cat x"), done("c")]
    model = ScriptedModel(answers)
    with WritingBot(folder=folder, model=model) as bot:
        first = bot.run("One")
        assert bot._talk is not None
        up = bot._talk.live.up
        assert up is not None
        pid = up[0].host_pid  # type: ignore[attr-defined]
        inside = [pid, *descendants(pid)]
        os.kill(pid, signal.SIGKILL)
        while any(start_time(one, zombies=False) for one in inside):  # what is inside dies a little later
            time.sleep(0.01)
        second = bot.run("Two")
        assert (second.status, second.reason) == ("failed", "sandbox")
        assert bot._talk.live.up is None
        third = bot.run("Three")
        assert (third.answer, third.run_id) == ("c", first.run_id)
        assert "The shell is new" in "\n".join(said(model))
        assert "Output:\nx" in said(model)[-1]
        assert [change.path for change in third.changes] == ["x"]


def test_tools_and_hooks_of_ones_own_stay(folder: Path) -> None:
    called: list[str] = []

    @tool
    def note(text: str) -> str:
        "Takes a note."
        called.append(text)
        return "noted"

    class Watching(Hook):
        name = "watching"

        async def before_action(self, ctx: object, action: Action) -> None:
            called.append("watched")

    model = ScriptedModel([say("note", text="a"), done("a"), say("note", text="b"), done("b")])
    with WritingBot(folder=folder, model=model, tools=[note], hooks=[Watching()]) as bot:
        assert bot.run("One")
        assert bot.run("Two")
    assert called == ["watched", "a", "watched", "b"]


def test_an_answer_is_of_the_type_that_was_asked_for(folder: Path) -> None:
    model = ScriptedModel(
        [done('{"lines": 3}'), done("words"), done("many"), done('{"lines": 4}'), done('{"lines": 13}'), done("[1, 2]")]
    )
    later = ScriptedModel([done("words"), done("words"), done('{"lines": 5}')])
    with ReadingBot(folder=folder, model=later) as bot:
        assert bot.run("In words").value is None
        assert bot.run("Count", result_type=Lines).value == Lines(lines=5)
    with ReadingBot(folder=folder, model=model) as bot:
        assert bot.run("Count", result_type=Lines).value == Lines(lines=3)
        plain = bot.run("In words")
        assert (plain.value, plain.answer) == (None, "words")
        assert "in words again" in said(model)[-1]
        again = bot.run("Count again", result_type=Lines)
        assert again.value == Lines(lines=4)
        assert any('"lines"' in text and "Count again" in text for text in said(model))
        unlucky = bot.run("And now", result_type=Lines)
        assert (bool(unlucky), unlucky.value) == (False, None)
        assert "13 is unlucky" in (unlucky.error or "")
    assert ReadingBot(folder=folder, model=model).run("List", result_type=list[int]).value == [1, 2]


def test_awaited_and_streamed(folder: Path) -> None:
    model = ScriptedModel([shell("x=1"), done("a"), shell("echo $x"), done("b")])
    heard: list[str] = []

    async def work() -> list[str]:
        async with WritingBot(folder=folder, model=model, on_event=lambda event: heard.append(event.type)) as bot:
            assert (await bot.arun("One")).answer == "a"
            with pytest.raises(UsageError, match="event loop"):
                bot.run("Two")
            async with aclosing(bot.stream("Two")) as events:
                return [event.type async for event in events]

    streamed = anyio.run(work)
    assert (streamed[0], streamed[-1]) == ("run_resumed", "run_finished")
    assert heard[-len(streamed) :] == streamed


def test_who_leaves_a_stream_ends_its_run(folder: Path) -> None:
    model = ScriptedModel([shell("touch made; sleep 300"), done("never")])

    async def work() -> str:
        bot = WritingBot(folder=folder, model=model)
        async with aclosing(bot.stream("Sleep")) as events:
            async for event in events:
                if event.type == "action_started":
                    return bot.spec.name
        return ""

    with anyio.from_thread.start_blocking_portal() as portal:
        assert portal.start_task_soon(work).result(60)


@pytest.mark.parametrize("awaited", [False, True])
def test_the_user_is_a_function(folder: Path, awaited: bool) -> None:
    asked: list[object] = []

    def plain(what: object) -> str:
        asked.append(what)
        return "y" if isinstance(what, str) is False else "blue"

    async def coroutine(what: object) -> str:
        return plain(what)

    user = coroutine if awaited else plain
    model = ScriptedModel([shell("echo x > x"), say("ask_user", question="Which colour?"), done("ok")])
    bot = Bot(folder=Folder(folder), model=model, approve="ask", tool=["ask_user"], on_approval=user, on_question=user)
    result = bot.run("Ask")
    assert [change.path for change in result.changes] == ["x"]
    assert (getattr(asked[0], "command", None), asked[1]) == ("echo x > x", "Which colour?")
    assert "blue" in said(model)[-1]


@pytest.mark.parametrize("word", ["run", "always"])
def test_a_tool_that_was_allowed_once_is_asked_about_with_other_arguments(folder: Path, word: str) -> None:
    """What a bot reads may tell it to call the tool that its user has just allowed."""
    paid: list[tuple[str, int]] = []
    asked: list[str] = []

    def send_money(to: str, amount: int) -> str:
        paid.append((to, amount))
        return "Sent."

    def user(action: Action) -> str:
        to = getattr(action, "arguments", {})["to"]
        asked.append(to)
        return word if to == "landlord" else "not to them"

    def pay(to: str, amount: int) -> str:
        return say("send_money", to=to, amount=amount)

    calls = [pay("landlord", 9), pay("landlord", 9), pay("thief", 9), done("ok")]
    model = ScriptedModel(calls)
    bot = Bot(folder=Folder(folder), model=model, approve="ask", tools=[send_money], on_approval=user)
    assert bot.run("Pay the rent").status == "done"
    assert (paid, asked) == ([("landlord", 9), ("landlord", 9)], ["landlord", "thief"])
    assert "not to them" in said(model)[-1]


def test_a_sandbox_that_runs_already_has_a_conversation_too(folder: Path) -> None:
    model = ScriptedModel([shell("echo 1 > one"), done("a"), shell("cat one"), done("b")])
    with Sandbox(folder) as box, WritingBot(model=model, sandbox=box) as bot:
        assert bot.run("One")
        assert bot.run("Two").answer == "b"
        assert "Output:\n1" in said(model)[-1]
        assert box.exec(["cat", "one"]).text == "1\n"
