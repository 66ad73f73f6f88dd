"""Sessions of an editor: begun, shown again, gone on with, forked, listed and closed; several at once."""

import asyncio
import json
import sys
from typing import Any

import pytest
from acp import RequestError, text_block
from acp.schema import McpServerStdio

from tests.editors.conftest import Stand, called, finish, shell

pytestmark = pytest.mark.anyio
WRITES = shell("echo new > new.txt; echo written")


def keep(*_: Any) -> str:
    return "keep"


async def test_a_session_is_shown_again_and_goes_on_in_another_process(stand: Stand) -> None:
    answers = (WRITES, finish("made"), shell("cat new.txt; echo seen"), finish("read"))
    async with stand.editor(*answers, choose=keep) as (agent, before):
        session = (await agent.new_session(cwd=str(stand.demo))).session_id
        await agent.prompt(session_id=session, prompt=[text_block("make it")])
    assert stand.layers() == [session]
    async with stand.editor(*answers, choose=lambda call, options: "apply") as (agent, editor):
        loaded = await agent.load_session(cwd=str(stand.demo), session_id=session, mcp_servers=[])
        assert loaded.modes is not None
        assert loaded.modes.current_mode_id == "never"
        assert editor.words("user_message_chunk") == "make it"
        assert editor.words() == before.words() == "made"
        assert _commands(editor.calls()) == _commands(before.calls())
        await agent.prompt(session_id=session, prompt=[text_block("read it")])
        assert "new\nseen" in _commands(editor.calls())[-1][2]
        assert stand.tree() == {"data.csv": "a\nb\nc\n", "new.txt": "new\n"}
        assert [one["task"] for one in await stand.events(session) if one.get("task")] == ["make it", "read it"]
    assert stand.layers() == []


async def test_resuming_shows_nothing_again(stand: Stand) -> None:
    answers = (shell("echo one"), finish("1"), shell("echo two"), finish("2"))
    async with stand.editor(*answers) as (agent, _):
        session = (await agent.new_session(cwd=str(stand.demo))).session_id
        await agent.prompt(session_id=session, prompt=[text_block("go")])
        await agent.close_session(session_id=session)
        with pytest.raises(RequestError, match="there is no session"):
            await agent.prompt(session_id=session, prompt=[text_block("go")])
    async with stand.editor(*answers) as (agent, editor):
        await agent.resume_session(session_id=session, cwd=str(stand.demo))
        assert (editor.calls(), editor.words()) == ({}, "")
        await agent.prompt(session_id=session, prompt=[text_block("go on")])
        assert editor.words() == "2"


async def test_a_run_of_the_command_line_is_gone_on_with(stand: Stand) -> None:
    model = stand.script(shell("echo cli > cli.txt"), finish("ran"), shell("cat cli.txt"), finish("looked"))
    flags = ("--folder", ".", "--model", model, "--answers", "native", "--quiet", "--apply")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "stockade.cli", "run", "look", *flags,
        env=stand.environment, cwd=stand.demo, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    told, _ = await process.communicate()
    assert (told, process.returncode) == (b"ran\n", 0)
    async with stand.editor(model=model) as (agent, editor):
        (found,) = (await agent.list_sessions(cwd=str(stand.demo))).sessions
        assert (found.title, found.cwd) == ("look", str(stand.demo))
        await agent.load_session(cwd=str(stand.demo), session_id=found.session_id)
        assert editor.words() == "ran"
        assert "applied: 1 change" in [call["title"] for call in editor.calls().values()]
        await agent.prompt(session_id=found.session_id, prompt=[text_block("again")])
        assert editor.words() == "ranlooked"
        await agent.prompt(session_id=found.session_id, prompt=[text_block("/undo")])
        assert sorted(stand.tree()) == ["data.csv"]


async def test_one_that_has_not_begun_is_there_in_its_process(stand: Stand) -> None:
    async with stand.editor(shell("echo one"), finish("1")) as (agent, editor):
        session = (await agent.new_session(cwd=str(stand.demo))).session_id
        await agent.load_session(cwd=str(stand.demo), session_id=session)
        await agent.resume_session(cwd=str(stand.demo), session_id=session)
        for command in ("/undo", "/apply", "/discard"):
            with pytest.raises(RequestError, match="has not begun"):
                await agent.prompt(session_id=session, prompt=[text_block(command)])
        await agent.prompt(session_id=session, prompt=[text_block("go")])
        assert editor.words() == "1"


async def test_a_fork_goes_its_own_way_from_the_same_files(stand: Stand) -> None:
    answers = (WRITES, finish("made"), shell("echo more >> new.txt; cat new.txt"), finish("on"))
    async with stand.editor(*answers, choose=keep) as (agent, editor):
        session = (await agent.new_session(cwd=str(stand.demo))).session_id
        await agent.prompt(session_id=session, prompt=[text_block("make it")])
        fork = (await agent.fork_session(session_id=session, cwd=str(stand.demo))).session_id
        assert fork != session
        await agent.prompt(session_id=fork, prompt=[text_block("more")])
        assert "new\nmore" in _commands(editor.calls())[-1][2]
        editor.choose = lambda call, options: "apply"
        await agent.prompt(session_id=session, prompt=[text_block("/apply")])
        assert stand.tree()["new.txt"] == "new\n"


async def test_two_sessions_work_at_once_in_folders_of_their_own(stand: Stand) -> None:
    other = stand.tmp / "other"
    other.mkdir()
    meet = "touch here; for i in $(seq 600); do test -e /tmp/go && break; sleep 0.1; done; pwd; ls"
    async with stand.editor(shell(meet), finish("done"), choose=lambda call, options: "apply") as (agent, editor):
        one = (await agent.new_session(cwd=str(stand.demo))).session_id
        two = (await agent.new_session(cwd=str(other))).session_id
        turns = [asyncio.create_task(agent.prompt(session_id=it, prompt=[text_block("go")])) for it in (one, two)]
        await editor.until(lambda: len(editor.of("tool_call")) == 2)  # both run
        with pytest.raises(RequestError, match="a turn of this session is under way"):
            await agent.prompt(session_id=one, prompt=[text_block("go")])
        await agent.cancel(session_id=one)
        assert (await turns[0]).stop_reason == "cancelled"
        assert not turns[1].done()
        await agent.cancel(session_id=two)
        assert (await turns[1]).stop_reason == "cancelled"
        assert stand.layers() == sorted((one, two))
        await agent.prompt(session_id=two, prompt=[text_block("/apply")])
        assert ([path.name for path in other.iterdir()], sorted(stand.tree())) == (["here"], ["data.csv"])


async def test_another_model_goes_on_with_the_next_prompt(stand: Stand) -> None:
    first = stand.script(shell("X=kept; echo 1 > made"), finish("by the first"))
    second = stand.script(
        *[finish("unused")] * 2, shell("cat made; echo .$X."), finish("by the second"), name="2.jsonl"
    )
    async with stand.editor(model=first, choose=keep) as (agent, _):
        began = await agent.new_session(cwd=str(stand.demo))
        session = began.session_id
        assert [one.current_value for one in began.config_options or () if one.id == "model"] == [first]
        await agent.prompt(session_id=session, prompt=[text_block("go")])
        with pytest.raises(RequestError, match="none of the models"):
            await agent.set_config_option(session_id=session, config_id="model", value=second)
        with pytest.raises(RequestError, match="there is no option"):
            await agent.set_config_option(session_id=session, config_id="colour", value="red")
    async with stand.editor(model=second, choose=keep) as (agent, editor):
        loaded = await agent.load_session(cwd=str(stand.demo), session_id=session)
        (models,) = [one for one in loaded.config_options or () if one.id == "model"]
        assert (models.current_value, [it.value for it in models.options[:2]]) == (first, [first, second])
        chosen = await agent.set_config_option(session_id=session, config_id="model", value=second)
        assert chosen is not None
        assert [one.current_value for one in chosen.config_options if one.id == "model"] == [second]
        await agent.prompt(session_id=session, prompt=[text_block("go on")])
        assert editor.words().endswith("by the second")
        assert "1\n" in _commands(editor.calls())[-1][2]


async def test_a_folder_beside_it_and_servers_of_the_editor(stand: Stand) -> None:
    beside = stand.tmp / "beside"
    beside.mkdir()
    (beside / "notes.txt").write_text("of the other folder\n")
    server = McpServerStdio(name="outside", command="/bin/true", args=[], env=[])
    async with stand.editor(shell("cat /folders/beside/notes.txt"), finish("done")) as (agent, editor):
        session = await agent.new_session(
            cwd=str(stand.demo), additional_directories=[str(beside)], mcp_servers=[server]
        )
        await agent.prompt(session_id=session.session_id, prompt=[text_block("go")])
        assert "of the other folder" in next(iter(editor.calls().values()))["raw_output"]["output"]
        assert "MCP servers of the editor are not used here: outside" in editor.words()


async def test_a_plan_is_shown_as_one(stand: Stand) -> None:
    thoughts = {"text": "t", "reasoning": "r", "plan": ["look", "count"], "criticism": "c", "speak": "I look"}
    actions: tuple[dict[str, Any], ...] = ({"tool": "shell", "command": "ls"}, {"tool": "finish", "answer": "ok"})
    answers = [{"content": json.dumps({"thoughts": thoughts, "action": action})} for action in actions]
    profile = {"name": "Counter", "role": "an expert for lines", "constraints": ["Do no harm."], "best_practices": []}
    fast = stand.script({"content": json.dumps(profile)}, name="fast.jsonl")
    flags = ("--bot", "planner", "--answers", "plan", "--fast-model", fast)
    async with stand.editor(*answers, flags=flags) as (agent, editor):
        session = await agent.new_session(cwd=str(stand.demo))
        await agent.prompt(session_id=session.session_id, prompt=[text_block("go")])
        plan, *_, last = editor.of("plan")
        assert [(one.content, one.status) for one in plan.entries] == [("look", "pending"), ("count", "pending")]
        assert {one.status for one in last.entries} == {"completed"}
        assert "I look" in editor.words()


async def test_a_secret_of_the_environment_is_shown_nowhere(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_API_KEY", "s3cret-very-long-value")
    answers = (
        shell("printf 's3cret-very'; sleep 0.2; echo '-long-value'", timeout=9),
        finish("s3cret-very-long-value"),
    )
    leak = called("write_file", path="leak.txt", content="s3cret-very-long-value\n")
    async with stand.editor(leak, *answers, choose=keep) as (agent, editor):
        session = (await agent.new_session(cwd=str(stand.demo))).session_id
        await agent.prompt(session_id=session, prompt=[text_block("go")])
        assert editor.asked
        await agent.load_session(cwd=str(stand.demo), session_id=session)
        seen = "".join(one.model_dump_json() for one in (*editor.updates, *(call for call, _ in editor.asked)))
        assert "leak.txt" in seen
        assert "very-long" not in seen


def _commands(calls: dict[str, dict[str, Any]]) -> list[tuple[str, str, str]]:
    """What was run, and what came of it."""
    done = [call for call in calls.values() if call["kind"] == "execute"]
    return [(call["title"], call["status"], call["raw_output"]["output"]) for call in done]
