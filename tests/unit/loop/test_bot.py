"""The bot port: a bot runs the loop not at all, once or several times, with all of it on record."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from stockade.core.actions import Action, Refused, Shell, Step
from stockade.core.errors import UsageError
from stockade.core.events import ActionFinished, MessageInjected, RunFinished
from stockade.core.ports import Sandbox
from stockade.loop.ending import Ending
from stockade.loop.hooks import EndRun, Hook, HookContext, Refuse
from stockade.loop.run_context import Bot, RunContext
from stockade.runtime.sandboxes import own_sandbox
from stockade.testing import MemorySandbox
from stockade_sandbox.policy import FolderRule, Policy
from tests.unit.loop.helpers import Bench, HereSandbox, started

pytestmark = pytest.mark.anyio
SHELL = '{"thought": "", "action": {"tool": "shell", "command": "true"}}'


def done(answer: str) -> str:
    return f'{{"thought": "", "action": {{"tool": "finish", "answer": "{answer}"}}}}'


async def run(bench: Bench, bot: Bot) -> RunFinished:
    bench.parts = replace(bench.parts, bot=bot)
    return await bench.run()


class Twice(Bot):
    async def run(self, ctx: RunContext) -> Ending:
        first = await ctx.loop()
        await ctx.say(f"You said {first.answer}. Look again.", "twice")
        return await ctx.loop()


async def test_two_loops_are_one_conversation() -> None:
    bench = Bench([SHELL, done("one"), done("two")])
    finished = await run(bench, Twice())
    assert (finished.status, finished.reason, finished.answer, finished.turns) == ("done", "finish", "two", 3)
    assert [event.text for event in bench.shown if isinstance(event, MessageInjected)] == ["You said one. Look again."]
    assert bench.types().count("run_finished") == 1
    second, third = bench.script.requests[1:]
    assert third.messages[: len(second.messages)] == second.messages
    assert third.messages[-1].content == "You said one. Look again."


async def test_the_budget_is_of_all_loops_together() -> None:
    bench = Bench([SHELL, done("one"), SHELL, done("two")])
    first = started()
    first = first.model_copy(update={"budget": first.budget.model_copy(update={"max_turns": 3})})
    bench.parts = replace(bench.parts, bot=Twice())
    finished = await bench.run(first)
    assert (finished.status, finished.reason, finished.turns) == ("stopped", "turns", 3)


class NoLoop(Bot):
    async def run(self, ctx: RunContext) -> Ending:
        seen = await ctx.act(0, 0, Step(action=Shell(command="true")))
        return Ending("done", "finish", answer=seen.kind)


async def test_a_bot_without_a_loop_asks_no_model_and_is_on_record() -> None:
    bench = Bench([])
    finished = await run(bench, NoLoop())
    assert (finished.status, finished.answer, bench.script.requests) == ("done", "command", [])
    assert [event.type for event in bench.shown if event.type.startswith("action_")] == [
        "action_started",
        "action_finished",
    ]


class Ends(Hook):
    """Refuses the first action, ends the run at the second."""

    name = "ends"

    async def before_action(self, ctx: HookContext, action: Action) -> Refuse | EndRun:
        return EndRun("stopped", "hook", "no more") if ctx.state.done else Refuse("not this one")


class TwoActions(Bot):
    async def run(self, ctx: RunContext) -> Ending:
        first = await ctx.act(0, 0, Step(action=Shell(command="true")))
        assert isinstance(first, Refused), first
        await ctx.act(0, 1, Step(action=Shell(command="true")))
        raise AssertionError("the run has ended")


async def test_hooks_are_asked_about_the_actions_of_a_bot_without_a_loop() -> None:
    bench = Bench([])
    bench.parts = replace(bench.parts, hooks=(Ends(),))
    finished = await run(bench, TwoActions())
    assert (finished.status, finished.reason, finished.detail) == ("stopped", "hook", "no more")
    seen = [event.observation for event in bench.shown if isinstance(event, ActionFinished)]
    assert [(one.by, one.reason) for one in seen if isinstance(one, Refused)] == [
        ("ends", "not this one"),
        ("ends", "the run ends here"),
    ]


class Fails(Bot):
    async def run(self, ctx: RunContext) -> Ending:
        raise UsageError("this bot wants a folder", "give it one")


async def test_what_a_bot_raises_ends_the_run_by_name() -> None:
    finished = await run(Bench([]), Fails())
    assert (finished.status, finished.reason) == ("failed", "usage")
    assert "this bot wants a folder" in finished.detail


class Elsewhere(Bot):
    """Writes to a folder in a second sandbox."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    async def run(self, ctx: RunContext) -> Ending:
        policy = Policy(folders=(FolderRule(host=self.folder, inside="/workspace", mode="overlay"),))
        async with ctx.open_sandbox(policy) as other:
            found = await other.exec(("sh", "-c", "echo there > x; cat x"))
        return Ending("done", "finish", answer=found.stdout.decode().strip())


def left(place: Path) -> list[str]:
    """The names of all files below."""
    return sorted(path.name for path in place.rglob("*") if not path.is_dir())


async def test_a_second_sandbox_is_real_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "mine").mkdir()
    bench = Bench([])
    bench.parts = replace(bench.parts, open_sandbox=own_sandbox)
    finished = await run(bench, Elsewhere(tmp_path / "mine"))
    assert (finished.status, finished.answer) == ("done", "there")
    assert left(tmp_path) == []


async def test_a_second_sandbox_ends_with_the_run_that_it_breaks() -> None:
    left: list[str] = []

    @asynccontextmanager
    async def opened(policy: Policy) -> AsyncIterator[Sandbox]:
        async with MemorySandbox() as sandbox:
            try:
                yield sandbox
            finally:
                left.append("closed")

    class Breaks(Bot):
        async def run(self, ctx: RunContext) -> Ending:
            async with ctx.open_sandbox(Policy()):
                raise UsageError("no")

    bench = Bench([])
    bench.parts = replace(bench.parts, open_sandbox=opened)
    assert (await run(bench, Breaks())).status == "failed"
    assert left == ["closed"]


async def test_without_one_to_be_had_it_says_so() -> None:
    finished = await run(Bench([]), Elsewhere(Path("/nowhere")))
    assert (finished.status, finished.reason) == ("failed", "usage")
    assert "no second sandbox" in finished.detail


async def test_an_intro_is_done_before_the_first_turn_only() -> None:
    class Begins(Bot):
        async def run(self, ctx: RunContext) -> Ending:
            intro = (Step(action=Shell(command="pwd"), comment="Where am I?"),)
            await ctx.loop(intro)
            return await ctx.loop(intro)

    bench = Bench([done("one"), done("two")])
    await run(bench, Begins())
    assert len([event for event in bench.shown if isinstance(event, ActionFinished)]) == 1


@pytest.mark.parametrize(("check", "reason"), [("true", "finish"), ("false", "check_failed")])
async def test_the_check_decides_about_a_bot_that_asks_no_hook(check: str, reason: str, tmp_path: Path) -> None:
    bench = Bench([])
    bench.parts = replace(bench.parts, bot=NoLoop(), sandbox=HereSandbox(tmp_path))
    finished = await bench.run(started(check=check))
    assert (finished.status, finished.reason, finished.verified) == ("done", reason, check == "true")


class OwnCheck(NoLoop):
    async def run(self, ctx: RunContext) -> Ending:
        ending = await super().run(ctx)
        assert (await ctx.hooks.ctx.check("true")).passed
        return ending


async def test_a_check_of_a_bots_own_stands_for_none_of_the_users(tmp_path: Path) -> None:
    bench = Bench([])
    bench.parts = replace(bench.parts, bot=OwnCheck(), sandbox=HereSandbox(tmp_path))
    finished = await bench.run(started(check="false"))
    assert (finished.reason, finished.verified) == ("check_failed", False)


class Afterwards(Bot):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def run(self, ctx: RunContext) -> Ending:
        ending = await ctx.loop()
        assert ctx.state.checked
        await ctx.act(ctx.state.turns, 7, Step(action=Shell(command="true")))
        (self.folder / "more").touch()
        return ending


async def test_what_a_bot_does_after_a_check_is_checked_again(tmp_path: Path) -> None:
    bench = Bench([SHELL, done("one")])
    bench.parts = replace(bench.parts, bot=Afterwards(tmp_path), sandbox=HereSandbox(tmp_path))
    finished = await bench.run(started(check="test ! -e more"))
    assert (finished.reason, finished.verified) == ("check_failed", False)
