"""The real command with servers on loopback: Anthropic's API, faults that pass, and those that last."""

import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from stockade.testing import say
from tests.cli.conftest import Ended, Stage
from tests.support import fake_anthropic as theirs
from tests.support.fake_openai import FakeOpenAI, Reply, fails, piece, says
from tests.support.fake_reasoning import Claude

pytestmark = pytest.mark.anyio
Run = Callable[..., Coroutine[Any, Any, Ended]]
EVERY_TOOL = ["shell", "read_file", "write_file", "edit_file", "finish"]


@asynccontextmanager
async def running(stage: Stage, server: FakeOpenAI, variable: str, versioned: bool) -> AsyncIterator[Run]:
    """`stockade run` against this server."""
    async with server:
        place = {variable: server.base_url if versioned else server.url}

        async def run(model: str, *flags: str) -> Ended:
            arguments = ("run", "count", "--folder", str(stage.demo), "--model", model, "--no-input", *flags)
            environment = stage.environment() | place
            command = [sys.executable, "-m", "stockade.cli", *arguments]
            process = await anyio.run_process(command, check=False, env=environment)
            return Ended(process.returncode, process.stdout.decode(), process.stderr.decode())

        yield run


async def test_anthropic_from_the_trial_to_the_result(stage: Stage) -> None:
    replies = [
        theirs.calls("list_files", folder="/srv"),
        theirs.calls("answer", word="plover-17"),
        theirs.calls("shell", command="wc -l < data.csv"),
        *[theirs.calls("finish", answer="3 lines")] * 3,
    ]
    server = theirs.fake_anthropic(replies)
    async with running(stage, server, "ANTHROPIC_BASE_URL", versioned=False) as run:
        ended = await run("anthropic/claude-x", "--json")
        assert ended.result["answer"] == "3 lines", ended.err
        assert ended.result["usage"]["cached_tokens"] >= 8
        assert ended.events[0]["answers"] == "native"
        last = server.questions[3].body["messages"]  # two trials, the first turn, and this
    assert last[-1]["content"][0]["type"] == "tool_result"
    assert "3" in last[-1]["content"][0]["content"]


async def test_what_claude_says_between_calls_is_shown_though_it_comes_as_thinking(stage: Stage) -> None:
    claude = Claude(types=("adaptive",))
    turns = [
        claude.turn("I count the lines.", calls=[("shell", {"command": "wc -l < data.csv"})]),
        claude.turn("", calls=[("finish", {"answer": "3 lines"})]),
    ]
    async with running(stage, claude.server(turns), "ANTHROPIC_BASE_URL", versioned=False) as run:
        ended = await run("anthropic/claude-x", "-o", "answers=native", "-o", "effort=low")
    assert (ended.status, ended.out) == (0, "3 lines\n"), ended.err
    assert "I count the lines.\n" in ended.err
    exported = await anyio.to_thread.run_sync(stage.call, "runs", "export", "last")
    assert "> I count the lines.\n" in exported.out


@pytest.mark.parametrize(
    ("n_params", "tools", "turns", "timeout_s", "profile", "shown"),
    [
        (1_543_714_304, ["shell", "finish"], 20, 600, "small", True),
        (7_600_000_000, EVERY_TOOL, 100, 3600, "full", False),
        (None, EVERY_TOOL, 100, 3600, "full", False),
    ],
)
async def test_the_model_decides_the_tools_the_bounds_and_what_it_is_shown_unasked(
    stage: Stage, n_params: int | None, tools: list[str], turns: int, timeout_s: int, profile: str, shown: bool
) -> None:
    (stage.demo / "data.csv").write_text("name,salary\nAnna,91000\n")
    listed = {"data": [{"id": "m", "meta": {"n_params": n_params}}]}
    server = FakeOpenAI([says(say("finish", answer="done"))] * 3, routes={"/v1/models": listed})
    async with running(stage, server, "LLAMA_SERVER_URL", versioned=False) as run:
        ended = await run("llama-server/m", "--json", "--answers", "json")
        prompt = server.questions[0].body["messages"][0]["content"]
    started = ended.events[0]
    assert (started["actions"], started["model_profile"]) == (tools, profile), ended.err
    assert (started["budget"]["max_turns"], started["budget"]["timeout_s"]) == (turns, timeout_s)
    assert "data.csv" in prompt
    assert ("91000" in prompt) is shown


async def test_what_the_user_says_goes_before_the_profile(stage: Stage) -> None:
    server = FakeOpenAI(
        [says(say("finish", answer="done"))] * 3,
        routes={"/v1/models": {"data": [{"id": "m", "meta": {"n_params": 9}}]}},
    )
    async with running(stage, server, "LLAMA_SERVER_URL", versioned=False) as run:
        ended = await run(
            "llama-server/m", "--answers", "json", "--tool", "edit_file", "--max-turns", "7", "--timeout", "0"
        )
    assert "small: 0 M parameters by the server's /v1/models · shell, edit_file, finish" in ended.err
    assert "7 turns, any time · answers json: as set" in ended.err


async def test_what_was_picked_for_the_user_is_named_with_what_it_is_good_for(stage: Stage) -> None:
    listed = {"data": [{"id": "/srv/qwen.gguf", "meta": {"n_params": 1_543_714_304}}]}
    server = FakeOpenAI([says(say("finish", answer="done"))] * 3, routes={"/v1/models": listed})
    async with running(stage, server, "LLAMA_SERVER_URL", versioned=False) as run:
        ended = await run("auto", "--answers", "json")
    assert (ended.status, ended.out) == (0, "done\n"), ended.err
    assert (
        f"using llama-server/qwen.gguf: it is what {server.url} has running; a stronger one: stockade model use"
        in ended.err
    )
    assert "A model of this size does small tasks in a shell, offline and private" in ended.err


async def test_a_model_that_could_not_be_tried_is_known_by_nobody(stage: Stage) -> None:
    async with running(stage, FakeOpenAI([fails(401)] * 9), "OPENAI_BASE_URL", versioned=True) as run:
        ended = await run("openai/m", "--json")
    assert ended.events[0]["sources"]["answers"] == "nobody knows what the model can do", ended.err


async def test_a_probe_tries_again_and_the_next_run_goes_by_it(stage: Stage) -> None:
    listed = {"data": [{"id": "m", "max_model_len": 8192, "meta": {"n_params": 7_600_000_000}}]}
    call = [
        piece(
            tool_calls=[{"index": 0, "id": "1", "function": {"name": "list_files", "arguments": '{"folder": "/srv"}'}}]
        )
    ]
    server = FakeOpenAI(
        [says("no call"), says("no schema"), Reply(call), says('{"word": "plover-17"}')], routes={"/v1/models": listed}
    )
    async with running(stage, server, "LLAMA_SERVER_URL", versioned=False) as run:
        environment = stage.environment() | {"LLAMA_SERVER_URL": server.url}
        command = [sys.executable, "-m", "stockade.cli", "model", "probe", "llama-server/m"]
        first = await anyio.run_process([*command, "--json"], check=False, env=environment)
        assert json.loads(first.stdout)["answers"] == "fenced", first.stderr
        again = await anyio.run_process(command, check=False, env=environment)
        ended = await run("llama-server/m")
    assert again.stdout.decode().splitlines() == [
        "model        llama-server/m",
        "answers      native",
        "tool calls   come back",
        "JSON schema  is kept",
        "images       unknown",
        "window       8192 (the server's /v1/models)",
        "parameters   7.6 B (the server's /v1/models)",
        "profile      full",
    ]
    assert "full: 7.6 B parameters by the server's /v1/models" in ended.err
    assert "answers native: tried on 2" in ended.err


async def test_what_passes_is_waited_for(stage: Stage) -> None:
    replies = [fails(503), Reply([piece("{")], end="cut"), *[says(say("finish", answer="done at last"))] * 3]
    async with running(stage, FakeOpenAI(replies), "OPENAI_BASE_URL", versioned=True) as run:
        ended = await run("openai/m", "--json", "--answers", "json")
    assert (ended.status, ended.result["answer"]) == (0, "done at last"), ended.err


@pytest.mark.parametrize(
    ("reply", "status", "said"),
    [
        (fails(401, "bad key"), 5, "refused the key (401): bad key (set OPENAI_API_KEY to a valid key)"),
        (fails(404, "no such model"), 5, "has no model 'm'"),
        (fails(429, code="insufficient_quota"), 5, "wants to be paid"),
        (Reply(body=b"<html>", headers={"Content-Type": "text/html"}), 5, "this is no model API"),
        (fails(400, "prompt is too long: 9 tokens > 8 maximum"), 5, "prompt is too long"),
    ],
)
async def test_what_lasts_is_one_line(stage: Stage, reply: Reply, status: int, said: str) -> None:
    async with running(stage, FakeOpenAI([reply] * 9), "OPENAI_BASE_URL", versioned=True) as run:
        ended = await run("openai/m", "--json", "--answers", "json")
    assert ended.status == status, ended.err
    assert said in ended.result["detail"]
    assert "Traceback" not in ended.err


async def test_no_server_is_one_line(stage: Stage) -> None:
    server = FakeOpenAI()
    async with running(stage, server, "OPENAI_BASE_URL", versioned=True) as run:
        await server.__aexit__()
        ended = await run("openai/m", "--json")
    assert ended.status == 5
    assert "no model server at 127.0.0.1" in ended.result["detail"]


async def test_a_cost_that_nobody_knows_cannot_be_bounded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://models.invalid/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    ended = await anyio.to_thread.run_sync(stage.call, "run", "x", "--model", "openai/m", "--max-cost", "1")
    assert ended.status == 2
    assert "--max-cost cannot be kept: nobody says what openai/m costs" in ended.err


async def test_what_ollama_hands_to_its_cloud_costs_something(stage: Stage) -> None:
    """Nobody says how much but the user, in a table of their own."""
    routes = {"/api/show": {"remote_host": "https://ollama.com:443", "model_info": {"x.context_length": 100_000}}}
    server = FakeOpenAI(models=[{"id": "m"}], routes=routes, otherwise=lambda: says(say("finish", answer="x")))
    async with running(stage, server, "OLLAMA_HOST", versioned=False) as run:
        assert (await run("ollama/m")).status == 0
        ended = await run("ollama/m", "--max-cost", "1")
        assert ended.status == 2
        assert "--max-cost cannot be kept: nobody says what ollama/m costs" in ended.err
        own = stage.home / ".config" / "stockade" / "prices.toml"
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text('"ollama/m" = { input = 1, output = 2 }\n')
        ended = await run("ollama/m", "--max-cost", "1", "--json")
    assert (ended.status, ended.result["usage"]["cost"] > 0) == (0, True), ended.err
