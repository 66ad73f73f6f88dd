"""What an editor's user decides on: actions, the network, and the changes at the end of a turn."""

import asyncio
from typing import Any

import pytest
from acp import RequestError, text_block
from acp.schema import PermissionOption, ToolCallUpdate

from tests.editors.conftest import Choose, Stand, finish, shell

pytestmark = pytest.mark.anyio


def taking(*replies: str | None) -> Choose:
    """The user's replies, in order; then nothing."""
    left = list(replies)
    return lambda call, options: left.pop(0) if left else None


def diffs(call: ToolCallUpdate) -> dict[str, tuple[str | None, str]]:
    content = [one for one in call.content or [] if one.type == "diff"]
    return {one.path.rpartition("/")[2]: (one.old_text, one.new_text) for one in content}


WRITES = shell("sed -i s/b/B/ data.csv; echo new > new.txt")


async def test_changes_are_asked_about_as_diffs_and_applied(stand: Stand) -> None:
    async with stand.editor(WRITES, finish("done"), choose=taking("apply")) as (agent, editor):
        session = await agent.new_session(cwd=str(stand.demo))
        before = stand.tree()
        editor.choose = lambda call, options: "apply" if stand.tree() == before else None
        await agent.prompt(session_id=session.session_id, prompt=[text_block("change it")])
        ((call, options),) = editor.asked
        assert call.title == f"apply 2 changes to {stand.demo}"
        assert diffs(call) == {"data.csv": ("a\nb\nc\n", "a\nB\nc\n"), "new.txt": ("", "new\n")}
        assert [(one.option_id, one.kind) for one in options] == [
            ("apply", "allow_once"), ("keep", "reject_once"), ("discard", "reject_always"),
        ]  # fmt: skip
        assert stand.tree() == {"data.csv": "a\nB\nc\n", "new.txt": "new\n"}
        assert editor.calls()[call.tool_call_id]["title"] == "applied 2 changes"
        await agent.prompt(session_id=session.session_id, prompt=[text_block("/undo")])
        assert stand.tree() == before
        assert "undone: 2 changes" in editor.words()


async def test_what_is_not_applied_is_kept_and_asked_about_again(stand: Stand) -> None:
    answers = (WRITES, finish("done"), shell("echo more > more.txt"), finish("more"))
    async with stand.editor(*answers, choose=taking("keep", None, "apply")) as (agent, editor):
        session = await agent.new_session(cwd=str(stand.demo))
        before = stand.tree()
        await agent.prompt(session_id=session.session_id, prompt=[text_block("change it")])
        await agent.prompt(session_id=session.session_id, prompt=[text_block("and more")])
        assert stand.tree() == before
        await agent.prompt(session_id=session.session_id, prompt=[text_block("/apply")])
        assert [[*diffs(call)] for call, _ in editor.asked] == [
            ["data.csv", "new.txt"], ["data.csv", "more.txt", "new.txt"], ["data.csv", "more.txt", "new.txt"],
        ]  # fmt: skip
        assert stand.tree() == {"data.csv": "a\nB\nc\n", "more.txt": "more\n", "new.txt": "new\n"}


async def test_an_option_that_was_not_offered_applies_nothing(stand: Stand) -> None:
    async with stand.editor(WRITES, finish("done"), choose=taking("yes")) as (agent, _):
        session = await agent.new_session(cwd=str(stand.demo))
        before = stand.tree()
        await agent.prompt(session_id=session.session_id, prompt=[text_block("change it")])
        assert stand.tree() == before


async def test_what_changed_since_it_was_shown_is_shown_again(stand: Stand) -> None:
    def edit(call: ToolCallUpdate, options: list[PermissionOption]) -> str:
        if len(shown) == 0:
            (stand.demo / "data.csv").write_text("a\nb\nc\nmine\n")
        shown.append(call)
        return "merge" if options[0].option_id == "merge" else "apply"

    shown: list[ToolCallUpdate] = []
    async with stand.editor(WRITES, finish("done"), choose=edit) as (agent, _editor):
        session = await agent.new_session(cwd=str(stand.demo))
        await agent.prompt(session_id=session.session_id, prompt=[text_block("change it")])
        assert [call.title for call in shown] == [
            f"apply 2 changes to {stand.demo}", f"apply 2 changes to {stand.demo}",
            "both sides changed the same files",
        ]  # fmt: skip
        assert "this is how it is now" in str(shown[1].content)
        assert stand.tree() == {"data.csv": "a\nB\nc\nmine\n", "new.txt": "new\n"}


async def test_what_runs_by_itself_takes_a_question_of_its_own(stand: Stand) -> None:
    answers = (shell("echo x > .envrc; echo y > plain.txt"), finish("done"))
    async with stand.editor(*answers, choose=taking("apply", "keep", None, "apply", "apply")) as (agent, editor):
        session = await agent.new_session(cwd=str(stand.demo))
        await agent.prompt(session_id=session.session_id, prompt=[text_block("change it")])
        assert sorted(stand.tree()) == ["data.csv", "plain.txt"]
        assert "apply what runs by itself" in str(editor.asked[1][0].title)
        assert ".envrc" in editor.words()
        await agent.prompt(session_id=session.session_id, prompt=[text_block("/apply")])
        await agent.prompt(session_id=session.session_id, prompt=[text_block("/apply")])
        assert sorted(stand.tree()) == [".envrc", "data.csv", "plain.txt"]


async def test_discarded_changes_are_gone_and_the_session_goes_on(stand: Stand) -> None:
    answers = (WRITES, finish("done"), shell("cat data.csv; ls"), finish("looked"))
    async with stand.editor(*answers, choose=taking("discard")) as (agent, editor):
        session = await agent.new_session(cwd=str(stand.demo))
        before = stand.tree()
        await agent.prompt(session_id=session.session_id, prompt=[text_block("change it")])
        assert (stand.tree(), stand.left()) == (before, [])
        await agent.prompt(session_id=session.session_id, prompt=[text_block("look")])
        assert "a\nb\nc\ndata.csv" in [*editor.calls().values()][-1]["raw_output"]["output"]
        kinds = [one["type"] for one in await stand.events(session.session_id)]
        assert "changes_discarded" in kinds


async def test_binary_deleted_and_linked_files_are_named(stand: Stand) -> None:
    answers = (shell("rm data.csv; head -c 100 /dev/zero > zero; ln -s /etc/passwd link"), finish("done"))
    async with stand.editor(*answers, choose=taking("apply")) as (agent, editor):
        session = await agent.new_session(cwd=str(stand.demo))
        await agent.prompt(session_id=session.session_id, prompt=[text_block("change it")])
        (call, _), *_ = editor.asked
        text = next(one.content.text for one in call.content or [] if one.type == "content")
        assert f"deleted {stand.demo}/data.csv" in text
        assert f"added {stand.demo}/zero (binary)" in text
        assert "link" in text
        assert sorted(stand.tree()) == ["zero"]


@pytest.mark.parametrize("says", ["flag", "bot"])
async def test_each_action_is_asked_about_in_the_mode_ask(stand: Stand, says: str) -> None:
    answers = (shell("echo one"), shell("echo two"), finish("done"))
    bot = stand.tmp / "own.toml"
    bot.write_text('prompt = "p"\napprove = "ask"\n')
    more = ("--approve", "ask") if says == "flag" else ("--bot", str(bot))
    async with stand.editor(*answers, flags=more, choose=taking("y", "refuse")) as (agent, editor):
        session = await agent.new_session(cwd=str(stand.demo))
        assert session.modes is not None
        assert session.modes.current_mode_id == "ask"
        await agent.prompt(session_id=session.session_id, prompt=[text_block("go")])
        assert [call.tool_call_id for call, _ in editor.asked] == [*editor.calls()]
        one, two = editor.calls().values()
        assert (one["status"], two["status"]) == ("completed", "failed")
        assert "refused it" in two["raw_output"]["output"]
        assert editor.words() == "done"


async def test_a_mode_holds_from_the_next_action_on(stand: Stand) -> None:
    answers = (shell("echo one"), finish("1"), shell("echo two"), finish("2"), shell("ls"), shell("rm x"), finish("3"))
    async with stand.editor(*answers, choose=taking("y", "y")) as (agent, editor):
        session = await agent.new_session(cwd=str(stand.demo))
        await agent.prompt(session_id=session.session_id, prompt=[text_block("go")])
        assert not editor.asked
        await agent.set_session_mode(session_id=session.session_id, mode_id="ask")
        await agent.prompt(session_id=session.session_id, prompt=[text_block("go")])
        assert [call.title for call, _ in editor.asked] == ["echo two"]
        chosen = await agent.set_config_option(session_id=session.session_id, config_id="mode", value="rules")
        assert chosen is not None
        assert {one.id: one.current_value for one in chosen.config_options}["mode"] == "rules"
        await agent.prompt(session_id=session.session_id, prompt=[text_block("go")])
        assert [call.title for call, _ in editor.asked] == ["echo two", "rm x"]
        assert [one.current_mode_id for one in editor.of("current_mode_update")] == ["rules"]
        with pytest.raises(RequestError, match="there is no mode"):
            await agent.set_session_mode(session_id=session.session_id, mode_id="yolo")


async def test_allowed_in_the_session_is_not_asked_again(stand: Stand) -> None:
    answers = (shell("touch x"), shell("touch x"), shell("touch y"), finish("done"))
    more = ("--approve", "rules")
    async with stand.editor(*answers, flags=more, choose=taking("run", "y")) as (agent, editor):
        session = await agent.new_session(cwd=str(stand.demo))
        await agent.prompt(session_id=session.session_id, prompt=[text_block("go")])
        assert [call.title for call, _ in editor.asked][:2] == ["touch x", "touch y"]


async def test_a_name_that_net_does_not_have_is_asked_about(stand: Stand) -> None:
    fetch = "python3 -c \"import urllib.request as u; u.urlopen('http://other.invalid/')\" 2>&1 | tail -1"
    more = ("--net", "known.invalid")
    async with stand.editor(shell(fetch), finish("done"), flags=more, choose=taking("never")) as (agent, editor):
        session = await agent.new_session(cwd=str(stand.demo))
        await agent.prompt(session_id=session.session_id, prompt=[text_block("go")])
        assert [call.title for call, _ in editor.asked] == ["reach other.invalid"]
        assert "403" in next(iter(editor.calls().values()))["raw_output"]["output"]


@pytest.mark.parametrize("where", ["action", "changes"])
async def test_a_question_that_is_not_answered_ends_with_the_turn(stand: Stand, where: str) -> None:
    flags: tuple[str, ...] = ("--approve", "ask") if where == "action" else ()
    async with stand.editor(WRITES, finish("done"), flags=flags) as (agent, editor):
        editor.silent = True
        session = await agent.new_session(cwd=str(stand.demo))
        before: dict[str, Any] = stand.tree()
        turn = asyncio.create_task(agent.prompt(session_id=session.session_id, prompt=[text_block("go")]))
        await editor.until(lambda: editor.asked)
        await agent.cancel(session_id=session.session_id)
        assert (await turn).stop_reason == "cancelled"
        assert stand.tree() == before
