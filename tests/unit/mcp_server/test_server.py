"""The MCP server with the official client, in this process: real sandboxes, a scripted model, a record of its own."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult, TextContent

from stockade.core.events import RunStarted
from stockade.mcp_server.app import make_server
from stockade.mcp_server.service import Service
from stockade.runtime import records
from stockade.runtime.roots import Roots
from stockade.runtime.spec import RunSpec

pytestmark = pytest.mark.anyio


def answer(tool: str, **arguments: Any) -> str:
    call = {"function": {"name": tool, "arguments": json.dumps(arguments)}}
    return json.dumps({"tool_calls": [call]})


WRITES = [answer("shell", command="echo new > made.txt"), *[answer("finish", answer="made it")] * 2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("STATE", "CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    made = tmp_path / "projects" / "one"
    made.mkdir(parents=True)
    (made / "a.txt").write_text("alpha\n")
    (tmp_path / "secret").mkdir()
    return made


def service(folder: Path, *lines: str, **more: Any) -> Service:
    script = folder.parents[1] / "script.jsonl"
    script.write_text("\n".join(lines) + "\n")
    options = RunSpec(model=f"scripted/{script}", answers="native", **more)
    return Service(options, Roots.of((str(folder.parent),)))


@asynccontextmanager
async def client(
    found: Service, *, allow_apply: bool = False, mode: str = "auto", **more: Any
) -> AsyncIterator[Client]:
    async with Client(make_server(found, allow_apply=allow_apply), mode=mode, **more) as one:
        yield one


def text(result: CallToolResult) -> str:
    return "\n".join(one.text for one in result.content if isinstance(one, TextContent))


def data(result: CallToolResult) -> Any:
    assert not result.is_error, text(result)
    return result.structured_content


async def test_its_tools_say_what_they_want(folder: Path) -> None:
    async with client(service(folder, *WRITES)) as one:
        tools = {tool.name: tool for tool in (await one.list_tools()).tools}
        bots = {"run_bot", "runs_list", "run_show", "run_diff", "run_apply"}
        assert {name for name in tools if not name.startswith("sandbox_")} == bots
        assert tools["run_bot"].input_schema["required"] == ["task"]
        assert set(tools["run_apply"].input_schema["properties"]) == {"run", "flagged"}


async def test_every_tool_says_what_it_is_before_it_is_called(folder: Path) -> None:
    changing: dict[bool, set[str]] = {}
    bot = folder.parents[1] / "own.toml"
    bot.write_text('prompt = "p"\nnet = "pypi.org"\n')
    said: tuple[tuple[bool, dict[str, Any]], ...] = (
        (False, {}),
        (True, {"net": "pypi.org"}),
        (True, {"bot": str(bot)}),
    )
    for networked, more in said:
        async with client(service(folder, *WRITES, **more)) as one:
            tools = (await one.list_tools()).tools
        for tool in tools:
            hints = tool.annotations
            assert tool.title
            assert "\n " not in (tool.description or "")
            assert hints is not None
            assert None not in hints.model_dump(exclude={"title"}).values()
            assert tool.input_schema["additionalProperties"] is False
            assert tool.output_schema is not None
            assert tool.output_schema["required"]
        changing[networked] = {tool.name for tool in tools if tool.annotations and tool.annotations.destructive_hint}
        reads = {tool.name for tool in tools if tool.annotations and tool.annotations.read_only_hint}
        assert reads == {"runs_list", "run_show", "run_diff", "sandbox_poll", "sandbox_read", "sandbox_diff"}
    assert changing[False] == {"run_apply", "sandbox_kill", "sandbox_close"}
    assert changing[True] - changing[False] == {"run_bot", "sandbox_exec", "sandbox_run", "sandbox_start"}


async def test_a_client_may_ask_for_less_than_the_bot_of_the_server_has_and_not_for_more(folder: Path) -> None:
    bot = folder.parents[1] / "own.toml"
    bot.write_text('prompt = "p"\nmax_turns = 1\ntimeout = 60\n')
    found = service(folder, *[WRITES[0]] * 5, bot=str(bot))
    async with client(found) as one:
        for wanted in ({}, {"max_turns": 4, "timeout_s": 500}):
            told = data(await one.call_tool("run_bot", {"task": "t", "folder": "one", **wanted}))
            assert (told["reason"], told["detail"]) == ("turns", "turns: 1 of 1")
            store = records.open_store(None)
            started = (await store.events(told["run"]))[0]
            await store.close()
            assert isinstance(started, RunStarted)
            assert started.budget.timeout_s == 60
        bot.unlink()
        assert data(await one.call_tool("runs_list", {}))
        assert "own.toml" in text(await one.call_tool("run_bot", {"task": "t"}))


async def test_runs_are_resources(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", "brown horse 4711")
    async with client(service(folder, *WRITES)) as one:
        run = data(await one.call_tool("run_bot", {"task": "log in: brown horse 4711", "folder": "one"}))["run"]
    found = service(folder, *WRITES, redact=("LOGIN",))  # named later than it was written down
    async with client(found) as one:
        listed = {str(item.uri): item for item in (await one.list_resources()).resources}
        assert set(listed) == {"stockade://runs", f"stockade://runs/{run}"}
        assert listed[f"stockade://runs/{run}"].title == "log in: [redacted: LOGIN]"

        async def read(uri: str) -> Any:
            (content,) = (await one.read_resource(uri)).contents
            return content

        assert json.loads((await read("stockade://runs")).text)[0]["run"] == run
        assert "echo new > made.txt" in (await read(f"stockade://runs/{run}")).text
        diff = await read(f"stockade://runs/{run}/diff")
        assert (diff.mime_type, "+new" in diff.text) == ("text/x-diff", True)
        for uri in ("stockade://runs/nonesuch", "stockade://runs/..%2F..%2Fetc", "file:///etc/passwd"):
            with pytest.raises(MCPError):
                await read(uri)
    async with Client(make_server(found, only_sandbox=True)) as one:
        assert not (await one.list_resources()).resources
        assert not (await one.list_resource_templates()).resource_templates


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_run_its_record_its_diff_and_the_person_who_says_yes(folder: Path, mode: str) -> None:
    asked: list[str] = []
    heard: list[str] = []

    async def person(context: Any, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"apply": True})

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    async with client(service(folder, *WRITES), mode=mode, elicitation_callback=person) as one:
        found = data(await one.call_tool("run_bot", {"task": "make it", "folder": "one"}, progress_callback=progress))
        assert (found["status"], found["answer"]) == ("done", "made it")
        assert [change["path"] for change in found["changes"]] == ["made.txt"]
        assert any("has begun" in words for words in heard)
        assert not (folder / "made.txt").exists()
        (listed,) = data(await one.call_tool("runs_list", {}))["result"]
        assert (listed["run"], listed["status"]) == (found["run"], "done")
        assert "echo new > made.txt" in text(await one.call_tool("run_show", {"run": found["run"]}))
        assert "+new" in text(await one.call_tool("run_diff", {}))
        applied = data(await one.call_tool("run_apply", {"run": "last"}))
        assert applied["applied"] == ["made.txt"]
    assert (folder / "made.txt").read_text() == "new\n"
    assert "made.txt" in asked[0]


async def test_nothing_is_applied_without_a_yes(folder: Path) -> None:
    async def no(context: Any, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"apply": False})

    async def never(context: Any, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="decline")

    found = service(folder, *WRITES)
    async with client(found) as one:
        await one.call_tool("run_bot", {"task": "make it", "folder": "one"})
        refused = await one.call_tool("run_apply", {"run": "last"})
        assert refused.is_error
        assert "cannot ask the user" in text(refused)
    for answer_of in (no, never):
        async with client(found, elicitation_callback=answer_of) as one:
            assert "did not agree" in text(await one.call_tool("run_apply", {"run": "last"}))
    assert not (folder / "made.txt").exists()
    async with client(found, allow_apply=True) as one:
        assert data(await one.call_tool("run_apply", {"run": "last"}))["applied"] == ["made.txt"]


async def test_no_client_gets_what_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a tool answers, asks, or reports on its way, and its errors too."""
    value = "brown horse 4711"
    monkeypatch.setenv("LOGIN", value)
    writes = 'echo "$LOGIN" | tee made.txt; touch "$LOGIN"'
    lines = [answer("shell", command=writes), *[answer("finish", answer=f"it is {value}")] * 2]
    seen: list[str] = []

    async def person(context: Any, params: ElicitRequestParams) -> ElicitResult:
        seen.append(params.message)
        return ElicitResult(action="accept", content={"apply": True})

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message or "")

    found = service(folder, *lines, env=("LOGIN",), redact=("LOGIN",))
    async with client(found, elicitation_callback=person) as one:
        for tool, arguments in (
            ("run_bot", {"task": f"log in with {value}", "folder": "one"}),
            ("runs_list", {}),
            ("run_show", {"run": "last"}),
            ("run_diff", {"run": "last"}),
            ("sandbox_exec", {"command": 'echo "$LOGIN"; echo "$LOGIN" >&2'}),
            ("run_show", {"run": value}),
            ("run_apply", {"run": "last"}),
        ):
            result = await one.call_tool(tool, arguments, progress_callback=progress)
            seen.append(f"{tool}: {text(result)} {json.dumps(result.structured_content)}")
    assert not [words for words in seen if value in words]
    (diff,) = [words for words in seen if words.startswith("run_diff")]
    assert "+[redacted: LOGIN]" in diff
    assert "Not to be applied as a patch" in diff
    assert (folder / "made.txt").read_text() == f"{value}\n"


async def test_a_diff_is_refused_where_its_values_are_not_known_any_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGIN", "brown horse 4711")
    lines = [answer("shell", command='echo "$LOGIN" > made.txt'), *[answer("finish", answer="done")] * 2]
    async with client(service(folder, *lines, env=("LOGIN",), redact=("LOGIN",))) as one:
        assert data(await one.call_tool("run_bot", {"task": "x", "folder": "one"}))["status"] == "done"
    monkeypatch.delenv("LOGIN")
    async with client(service(folder, *lines)) as one:
        refused = await one.call_tool("run_diff", {"run": "last"})
    assert refused.is_error
    assert "the run hid the value of LOGIN" in text(refused)


async def test_a_command_in_a_sandbox(folder: Path) -> None:
    async with client(service(folder, *WRITES)) as one:
        found = data(await one.call_tool("sandbox_exec", {"command": "cat a.txt; echo x > a.txt", "folder": "one"}))
        assert (found["stdout"], found["exit_code"]) == ("alpha\n", 0)
        found = data(await one.call_tool("sandbox_exec", {"command": "sleep 100", "timeout_s": 0.3}))
        assert found["timed_out"]
    assert (folder / "a.txt").read_text() == "alpha\n"
    assert not list((folder.parents[1] / "STATE" / "stockade" / "runs").glob("*"))


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("sandbox_exec", {"command": "ls", "folder": "/etc"}, "not among the folders"),
        ("sandbox_exec", {"command": "ls", "folder": "../secret"}, "not among the folders"),
        ("sandbox_exec", {"command": "ls", "folder": "link"}, "not among the folders"),
        ("sandbox_exec", {"command": "ls", "folder": "nothing"}, "no folder"),
        ("sandbox_exec", {"command": "x" * 200_000}, "100000"),
        ("sandbox_exec", {"command": "ls", "timeout_s": -1}, "greater than 0"),
        ("run_bot", {"task": "x", "bot": "/etc/passwd.toml"}, "no bot"),
        ("run_bot", {"task": " ", "folder": "one"}, "empty"),
        ("run_bot", {"task": "x", "mode": "rw"}, "ro"),
        ("run_bot", {}, "task"),
        ("sandbox_exec", {"command": "ls", "timeout": 5}, "timeout"),
        ("run_show", {"run": "nonesuch"}, "nonesuch"),
        ("run_diff", {"run": "x" * 300}, "200"),
        ("run_apply", {"run": "nonesuch"}, "nonesuch"),
        ("runs_list", {"limit": 10**30}, "100"),
    ],
)
async def test_what_may_not_be_is_one_clear_error(
    folder: Path, tool: str, arguments: dict[str, Any], words: str
) -> None:
    (folder.parent / "link").symlink_to("/etc")
    async with client(service(folder, *WRITES), allow_apply=True) as one:
        found = await one.call_tool(tool, arguments)
        assert found.is_error
        assert words in text(found)
        assert "Traceback" not in text(found)


async def test_a_cancelled_run_is_on_record_as_stopped(folder: Path) -> None:
    begun = anyio.Event()

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        if message and "shell" in message:
            begun.set()

    found = service(folder, answer("shell", command="sleep 100"))
    async with client(found, mode="legacy") as one:
        async with anyio.create_task_group() as group:

            async def work() -> None:
                await one.call_tool("run_bot", {"task": "wait", "folder": "one"}, progress_callback=progress)

            group.start_soon(work)
            with anyio.fail_after(60):
                await begun.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(30):
            while (listed := data(await one.call_tool("runs_list", {}))["result"])[0]["status"] == "running":
                await anyio.lowlevel.checkpoint()
        assert listed[0]["status"] == "stopped"


async def test_no_more_runs_at_once_than_there_is_room_for(folder: Path) -> None:
    found = service(folder, *WRITES)
    for _ in range(4):
        found.running.acquire_nowait()
    async with client(found) as one:
        assert "under way" in text(await one.call_tool("sandbox_exec", {"command": "ls"}))
