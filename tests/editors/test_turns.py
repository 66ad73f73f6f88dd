"""A conversation of an editor's user with a bot, from the first prompt on."""

import asyncio
import base64
from typing import Any

import pytest
from acp import RequestError, embedded_text_resource, image_block, resource_block, resource_link_block, text_block
from acp.schema import ClientCapabilities

from tests.editors.conftest import Stand, called, finish, shell

pytestmark = pytest.mark.anyio


async def test_a_prompt_is_a_run_in_the_sandbox(stand: Stand) -> None:
    async with stand.editor(shell("pwd; wc -l < data.csv"), finish("3 lines")) as (agent, editor):
        session = await agent.new_session(cwd=str(stand.demo))
        done = await agent.prompt(session_id=session.session_id, prompt=[text_block("count the lines")])
        assert done.stop_reason == "end_turn"
        (call,) = editor.calls().values()
        assert (call["title"], call["kind"], call["status"]) == ("pwd; wc -l < data.csv", "execute", "completed")
        assert "/workspace\n3" in call["raw_output"]["output"]
        assert editor.words() == "3 lines"
        assert not editor.asked
    assert stand.left() == []


async def test_the_next_prompt_is_told_in_the_same_shell(stand: Stand) -> None:
    answers = (shell("X=kept; cd /tmp"), finish("set"), shell("echo $X in $PWD"), finish("said"))
    async with stand.editor(*answers) as (agent, editor):
        session = await agent.new_session(cwd=str(stand.demo))
        await agent.prompt(session_id=session.session_id, prompt=[text_block("set it")])
        await agent.prompt(session_id=session.session_id, prompt=[text_block("say it")])
        assert "kept in /tmp" in [*editor.calls().values()][-1]["raw_output"]["output"]
        assert editor.words() == "setsaid"


async def test_an_editor_with_terminals_is_given_the_output_as_it_comes(stand: Stand) -> None:
    can = ClientCapabilities(field_meta={"terminal_output": True})
    async with stand.editor(shell("echo one; sleep 0.3; echo two; exit 3"), finish("done"), can=can) as (agent, editor):
        session = await agent.new_session(cwd=str(stand.demo))
        await agent.prompt(session_id=session.session_id, prompt=[text_block("go")])
        meta = [one.field_meta for one in editor.updates if getattr(one, "field_meta", None)]
        number = editor.of("tool_call")[0].tool_call_id
        assert meta[0] == {"terminal_info": {"terminal_id": number}}
        assert "".join(one["terminal_output"]["data"] for one in meta if "terminal_output" in one) == "one\ntwo\n"
        assert meta[-1] == {"terminal_exit": {"terminal_id": number, "exit_code": 3, "signal": None}}


async def test_files_of_a_prompt_are_called_what_they_are_inside(stand: Stand) -> None:
    uri = (stand.demo / "data.csv").as_uri()
    blocks: list[Any] = [
        text_block("compare "),
        resource_link_block("data.csv", uri),
        text_block(" with "),
        resource_link_block("passwd", "file:///etc/passwd"),
        text_block(" and "),
        resource_block(embedded_text_resource(uri, "not saved yet")),
    ]
    async with stand.editor(finish("done")) as (agent, _editor):
        session = await agent.new_session(cwd=str(stand.demo))
        await agent.prompt(session_id=session.session_id, prompt=blocks)
        (told,) = await _tasks(stand, session.session_id)
    outside = "`file:///etc/passwd` (which is not in the sandbox)"
    assert told.startswith(f"compare `/workspace/data.csv` with {outside} and `/workspace/data.csv`\n")
    assert "not saved yet" in told


async def test_a_picture_goes_to_the_model_or_is_refused(stand: Stand) -> None:
    pixel = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 20).decode()
    async with stand.editor(finish("done")) as (agent, _editor):
        session = await agent.new_session(cwd=str(stand.demo))
        with pytest.raises(RequestError, match="base64"):
            await agent.prompt(session_id=session.session_id, prompt=[image_block("%%%", "image/png")])
        with pytest.raises(RequestError, match="not one of image/png"):
            await agent.prompt(session_id=session.session_id, prompt=[image_block(pixel, "image/svg+xml")])
        await agent.prompt(session_id=session.session_id, prompt=[text_block("look"), image_block(pixel, "image/png")])
        first = (await stand.events(session.session_id))[0]
        assert [one["media_type"] for one in first["images"]] == ["image/png"]


async def test_edits_are_shown_as_diffs_when_they_are_made(stand: Stand) -> None:
    answers = (
        called("edit_file", path="/workspace/data.csv", old="b\n", new="B\n"),
        called("write_file", path="new.txt", content="made\n"),
        finish("done"),
    )
    async with stand.editor(*answers) as (agent, editor):
        session = await agent.new_session(cwd=str(stand.demo))
        await agent.prompt(session_id=session.session_id, prompt=[text_block("edit")])
        edited, written = [*editor.calls().values()][:2]
        (diff,) = [one for one in edited["content"] if one["type"] == "diff"]
        assert (diff["path"], diff["old_text"], diff["new_text"]) == (str(stand.demo / "data.csv"), "b\n", "B\n")
        (diff,) = [one for one in written["content"] if one["type"] == "diff"]
        assert (diff["path"], diff["old_text"], diff["new_text"]) == (str(stand.demo / "new.txt"), "", "made\n")
        assert edited["locations"][0]["path"] == str(stand.demo / "data.csv")


async def test_a_turn_that_is_cancelled_ends_and_the_session_goes_on(stand: Stand) -> None:
    answers = (shell("X=kept; echo begun; sleep 1000"), shell("echo on"), finish("and on"))
    async with stand.editor(*answers) as (agent, editor):
        session = await agent.new_session(cwd=str(stand.demo))
        turn = asyncio.create_task(agent.prompt(session_id=session.session_id, prompt=[text_block("wait")]))
        await editor.until(lambda: any("```\nbegun\n```" in one for one in editor.shown()))  # as it runs
        assert [call["status"] for call in editor.calls().values()] == ["in_progress"]
        await agent.cancel(session_id=session.session_id)
        assert (await turn).stop_reason == "cancelled"
        done = await agent.prompt(session_id=session.session_id, prompt=[text_block("go on")])
        assert done.stop_reason == "end_turn"
        assert "begun" in next(iter(editor.calls().values()))["raw_output"]["output"]
        assert editor.words() == "and on"


async def test_a_budget_and_a_failure_have_the_protocols_words(stand: Stand) -> None:
    more = ("--max-turns", "1")
    async with stand.editor(shell("true"), shell("true"), flags=more) as (agent, _):
        session = await agent.new_session(cwd=str(stand.demo))
        done = await agent.prompt(session_id=session.session_id, prompt=[text_block("go")])
        assert done.stop_reason == "max_turn_requests"
    async with stand.editor(shell("true")) as (agent, _):
        session = await agent.new_session(cwd=str(stand.demo))
        with pytest.raises(RequestError, match="model"):
            await agent.prompt(session_id=session.session_id, prompt=[text_block("go")])


async def test_a_run_that_cannot_begin_says_why(stand: Stand) -> None:
    async with stand.editor(model="scripted/nowhere.jsonl") as (agent, _):
        session = await agent.new_session(cwd=str(stand.demo))
        with pytest.raises(RequestError, match="nowhere"):
            await agent.prompt(session_id=session.session_id, prompt=[text_block("go")])
    assert stand.left() == []


async def _tasks(stand: Stand, run_id: str) -> list[str]:
    return [one["task"] for one in await stand.events(run_id) if one.get("task")]
