"""The real command in a real sandbox with models that reason, whose servers are as strict as the real ones: several
turns of calls, a resumed run, a key that is another, what is said on screen, and what is on record.
"""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.cli.conftest import Ended, Stage
from tests.support.fake_openai import FakeOpenAI, Reply, fails
from tests.support.fake_reasoning import Claude, Gpt

pytestmark = pytest.mark.anyio
Run = Callable[..., Coroutine[Any, Any, Ended]]
COUNT = ("shell", {"command": "wc -l < data.csv > count.txt; cat count.txt"})
LOOK = ("shell", {"command": "cat count.txt"})
READ = ("read_file", {"path": "data.csv"})
FINISH = ("finish", {"answer": "3 lines"})


@asynccontextmanager
async def serving(stage: Stage, server: FakeOpenAI, variable: str = "ANTHROPIC_BASE_URL") -> AsyncIterator[Run]:
    """`stockade` against this server."""
    async with server:
        place = {variable: server.base_url if variable.startswith("OPENAI") else server.url, "NO_COLOR": "1"}
        place |= {"AZURE_OPENAI_API_KEY": "k"}

        async def run(*arguments: str) -> Ended:
            command = [sys.executable, "-m", "stockade.cli", *arguments]
            process = await anyio.run_process(command, check=False, env=stage.environment() | place)
            return Ended(process.returncode, process.stdout.decode(), process.stderr.decode())

        yield run


def started(stage: Stage, model: str, *flags: str) -> tuple[str, ...]:
    return ("run", "count", "--folder", str(stage.demo), "--model", model, "--no-input", "--answers", "native", *flags)


def prices(stage: Stage, model: str) -> None:
    """What it costs, in the user's own table."""
    table = stage.home / ".config" / "stockade" / "prices.toml"
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_text(f'"{model}" = {{ input = 10, output = 100, cached = 1, cache_write = 20 }}\n')


def answers(ended: Ended) -> list[dict[str, Any]]:
    return [event["answer"] for event in ended.events if event["type"] == "model_answered"]


async def test_anthropics_thinking_goes_back_block_by_block_over_many_turns(stage: Stage) -> None:
    prices(stage, "anthropic/claude-x")
    claude = Claude()
    turns = [
        claude.turn("I count the lines.", calls=[COUNT], split=7),
        claude.turn("", redacted="a secret thought", text="Now I look twice.", calls=[LOOK, READ], split=1),
        claude.turn("Ünïcödé, in two pieces, and a ] \\ \" ' 🙂", redacted="more", calls=[LOOK], split=3),
        claude.turn("All is done.", calls=[FINISH]),
    ]
    server = claude.server(turns)
    async with serving(stage, server) as run:
        ended = await run(*started(stage, "anthropic/claude-x", "--json", "-o", "effort=high"))
    assert (ended.status, ended.result["answer"]) == (0, "3 lines"), ended.err
    bodies = [asked.body for asked in server.questions if asked.path == "/v1/messages"]
    assert len(bodies) == 4
    for body in bodies:
        assert (body["thinking"], body["output_config"]) == (
            {"type": "adaptive", "display": "summarized"},
            {"effort": "high"},
        )
        assert "temperature" not in body
    kinds = [block["type"] for block in bodies[2]["messages"][3]["content"]]
    assert kinds == ["redacted_thinking", "text", "tool_use", "tool_use"]
    usage = ended.result["usage"]
    assert (usage["thinking_tokens"], usage["completion_tokens"], usage["cached_tokens"]) == (80, 120, 16)
    assert usage["thinking_cost"] == pytest.approx(4 * 20 * 100 / 1e6)
    assert usage["cost"] == pytest.approx(4 * (10 * 10 + 4 * 1 + 2 * 20 + 30 * 100) / 1e6)
    assert answers(ended)[0]["reasoning"]["items"][0]["thinking"] == "I count the lines."


async def test_openais_reasoning_items_go_back_as_they_came_over_many_turns(stage: Stage) -> None:
    gpt = Gpt()
    turns = [
        gpt.turn("I count.", calls=[COUNT], split=5),
        gpt.turn("", text="Now I look twice.", calls=[LOOK, READ], split=1),
        gpt.turn("Ünïcödé 🙂", calls=[LOOK], split=3),
        gpt.turn("Done.", calls=[FINISH]),
    ]
    server = gpt.server(turns)
    async with serving(stage, server, "OPENAI_BASE_URL") as run:
        ended = await run(*started(stage, "openai/o", "--json", "-o", "effort=xhigh", "-o", "api=responses"))
    assert (ended.status, ended.result["answer"]) == (0, "3 lines"), ended.err
    bodies = [asked.body for asked in server.questions if asked.path == "/v1/responses"]
    assert {json.dumps([body["store"], body["include"], body["reasoning"]]) for body in bodies} == {
        json.dumps([False, ["reasoning.encrypted_content"], {"effort": "xhigh"}])
    }
    assert ended.result["usage"]["thinking_tokens"] == 80
    assert bodies[-1]["input"][2] == answers(ended)[0]["reasoning"]["items"][0]


async def test_openais_summaries_are_shown(stage: Stage) -> None:
    gpt = Gpt()
    server = gpt.server([gpt.turn("**Counting**", calls=[COUNT]), gpt.turn("", calls=[FINISH])])
    async with serving(stage, server, "AZURE_OPENAI_ENDPOINT") as run:
        ended = await run(*started(stage, "azure/o"))
    assert (ended.status, ended.out) == (0, "3 lines\n"), ended.err
    assert "**Counting**" in ended.err
    assert {asked.body["reasoning"]["summary"] for asked in server.questions} == {"auto"}


@pytest.mark.parametrize(("kind", "variable", "model"), [
    (Claude, "ANTHROPIC_BASE_URL", "anthropic/claude-x"), (Gpt, "OPENAI_BASE_URL", "openai/o"),
])  # fmt: skip
async def test_a_resumed_run_sends_the_same_blocks(
    stage: Stage, kind: type[Claude | Gpt], variable: str, model: str
) -> None:
    theirs = kind()
    server = theirs.server([theirs.turn("I count.", calls=[COUNT]), theirs.turn("And?", calls=[FINISH])])
    async with serving(stage, server, variable) as run:
        flags = ("--json", "-o", "api=responses", "--max-turns", "1")
        first = await run(*started(stage, model, *flags))
        assert (first.status, first.result["reason"]) == (3, "turns"), first.err
        ended = await run("runs", "resume", first.result["run"], "--max-turns", "5", "--json", "--no-input")
    assert (ended.status, ended.result["answer"]) == (0, "3 lines"), ended.err
    [item] = [item for item in _sent(server.questions[-1].body) if item.get("type") in ("thinking", "reasoning")]
    assert item == answers(first)[0]["reasoning"]["items"][0]


@pytest.mark.parametrize(("kind", "variable", "model"), [
    (Claude, "ANTHROPIC_BASE_URL", "anthropic/claude-x"), (Gpt, "OPENAI_BASE_URL", "openai/o"),
])  # fmt: skip
async def test_a_killed_run_has_them_on_record(
    stage: Stage, kind: type[Claude | Gpt], variable: str, model: str
) -> None:
    theirs = kind()
    busy = fails(503, "Overloaded", headers={"Retry-After": "6"})
    server = theirs.server([theirs.turn("I count.", calls=[COUNT]), busy, theirs.turn("And?", calls=[FINISH])])
    async with serving(stage, server, variable) as run:
        place = {variable: server.url if kind is Claude else server.base_url}
        arguments = started(stage, model, "-o", "api=responses", "-o", "effort=low")
        command = [sys.executable, "-m", "stockade.cli", *arguments]
        environment = stage.environment() | place
        async with await anyio.open_process(command, stdin=subprocess.DEVNULL, env=environment) as process:
            while len(server.replies) > 1:  # noqa: ASYNC110 (the server tells nobody)
                await anyio.sleep(0.05)
            process.kill()
        ended = await run("runs", "resume", "last", "--json", "--no-input")
    assert (ended.status, ended.result["answer"]) == (0, "3 lines"), ended.err
    assert not server.replies
    body = server.questions[-1].body
    assert len([item for item in _sent(body) if item.get("type") in ("thinking", "reasoning")]) == 1
    assert body.get("output_config", body.get("reasoning")) == {"effort": "low"}


def _sent(body: dict[str, Any]) -> list[dict[str, Any]]:
    blocks = [block for message in body.get("messages", ()) for block in message["content"]]
    return [*body.get("input", ()), *blocks]


@pytest.mark.parametrize(("kind", "variable", "model"), [
    (Claude, "ANTHROPIC_BASE_URL", "anthropic/claude-x"), (Gpt, "OPENAI_BASE_URL", "openai/o"),
])  # fmt: skip
async def test_thinking_that_is_taken_back_no_more_is_left_out_and_said(
    stage: Stage, kind: type[Claude | Gpt], variable: str, model: str
) -> None:
    """As after a key of another account: a run goes on without what was thought before."""
    theirs = kind()

    class Other(FakeOpenAI):
        async def _answer(self, stream: Any, reply: Reply) -> None:
            await super()._answer(stream, reply)
            theirs.key = "another"

    turns = [theirs.turn("I count.", calls=[COUNT])]
    theirs.key = "another"
    turns += [theirs.turn("Next.", calls=[LOOK]), theirs.turn("Last.", calls=[FINISH])]
    theirs.key = "one"
    plain = theirs.server(turns)
    server = Other(turns, routes=plain.routes, refuses=theirs.refuses)
    async with serving(stage, server, variable) as run:
        ended = await run(*started(stage, model, "-o", "effort=low", "-o", "api=responses"))
    assert (ended.status, ended.out) == (0, "3 lines\n"), ended.err
    assert ended.err.count("does not take back its own thinking (400)") == 1
    last = server.questions[-1].body
    assert len([item for item in _sent(last) if item.get("type") in ("thinking", "reasoning")]) == 1


async def test_a_busy_server_is_waited_for_as_long_as_it_says_and_that_is_said(stage: Stage) -> None:
    claude = Claude()
    busy = fails(529, "Overloaded", headers={"retry-after-ms": "2100"})
    server = claude.server([busy, claude.turn("Done.", calls=[FINISH])])
    async with serving(stage, server) as run:
        ended = await run(*started(stage, "anthropic/claude-x"))
        assert (ended.status, ended.out) == (0, "3 lines\n"), ended.err
        assert "is busy (529): Overloaded; asked again in 2 s" in ended.err
        server.replies.append(fails(429, "Rate limited", headers={"Retry-After": "7200"}))
        ended = await run(*started(stage, "anthropic/claude-x"))
    assert ended.status == 5
    assert "ask again later: it wants to be left alone for 7200 s" in ended.err


async def test_what_was_thought_is_counted_on_the_screen(stage: Stage) -> None:
    prices(stage, "anthropic/claude-x")
    claude = Claude()
    server = claude.server([claude.turn("Done.", calls=[FINISH])])
    async with serving(stage, server) as run:
        ended = await run(*started(stage, "anthropic/claude-x", "-o", "effort=max"))
    assert "30 answer tokens (20 of thinking)" in ended.err
    assert "0.0031 USD (0.0020 of thinking)" in ended.err
