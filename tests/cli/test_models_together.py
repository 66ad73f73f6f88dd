"""`--fallback`, `--smart-model` and `--fast-model` of every command, with servers that refuse and are gone."""

import json
import os
import sys

import anyio
import pytest

from stockade.testing import say
from tests.cli.conftest import DONE, PATIENCE_S, Ended, Stage
from tests.support import fake_anthropic as claude
from tests.support.fake_openai import Asked, FakeOpenAI, Reply, fails, piece, says
from tests.support.tmux import Screen

pytestmark = pytest.mark.anyio
PLAN = ("plan", "count", "--continuous", "--ai-name", "A", "--ai-role", "b")
NOBODY = "http://127.0.0.1:1"
NO_KEY = {"message": "Incorrect API key provided: sk-x. You can find your API key at https://platform.openai.com/account",
          "type": "invalid_request_error", "code": "invalid_api_key"}  # fmt: skip


async def call(stage: Stage, *arguments: str, **where: str) -> Ended:
    command = [sys.executable, "-m", "stockade.cli", *arguments]
    process = await anyio.run_process(command, check=False, env={**stage.environment(), **where})
    return Ended(process.returncode, process.stdout.decode(), process.stderr.decode())


def run(stage: Stage, model: str, *flags: str) -> tuple[str, ...]:
    return ("run", "count", "--folder", str(stage.demo), "--model", model, "--no-input", "-o", "answers=json", *flags)


async def test_the_next_answers_where_the_first_refuses_the_key_and_the_second_is_down(stage: Stage) -> None:
    refusing = FakeOpenAI(otherwise=lambda: fails(401, NO_KEY["message"], type=NO_KEY["type"], code=NO_KEY["code"]))
    third = stage.script(say("shell", thought="Count.", command="wc -l < data.csv"), DONE)
    async with refusing:
        where = {"OPENAI_BASE_URL": refusing.base_url, "OPENAI_API_KEY": "sk-x", "OLLAMA_HOST": NOBODY}
        fallbacks = ("--fallback", "ollama/qwen3:8b", "--fallback", third)
        ended = await call(stage, *run(stage, "openai/gpt-x", *fallbacks), **where)
        assert (ended.status, ended.out) == (0, "3 lines\n"), ended.err
        assert f"[{third} answers: openai/gpt-x: " in ended.err
        assert "refused the key (401)" in ended.err
        assert "ollama/qwen3:8b: no model server at 127.0.0.1:1" in ended.err
        told = [
            json.loads(line)
            for line in (await call(stage, "runs", "export", "last", "--format", "jsonl")).out.splitlines()
        ]
        by = {event["answer"]["by"] for event in told if event["type"] == "model_answered"}
        assert by == {third}
        asked = len(refusing.questions)
        again = await call(stage, "runs", "resume", "last", "and again", "--no-input", **where)
        assert len(refusing.questions) > asked, again.err
        assert f"[{third} answers: openai/gpt-x: " in again.err


async def test_what_a_model_declines_is_not_acted_on_and_the_next_goes_on(stage: Stage) -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "It could enable harm."}
    half = claude.call("shell", {"command": "touch half"}, 1)
    refusal = claude.event("message_delta", delta={"stop_reason": "refusal", "stop_details": details}, usage={})
    pieces = [claude.start(), *claude.text("First"), *half, refusal, claude.event("message_stop")]
    declining = FakeOpenAI(otherwise=lambda: claude.reply(pieces))
    async with declining:
        where = {"ANTHROPIC_BASE_URL": declining.url, "ANTHROPIC_API_KEY": "k"}
        ended = await call(stage, *run(stage, "anthropic/claude-x"), **where)
        assert (ended.status, ended.out) == (5, ""), ended.err
        assert (
            "failed (declined: the answer was held back by the model's provider (refusal): cyber: It could" in ended.err
        )
        assert len(declining.questions) == 1
        third = stage.script(say("shell", command="wc -l < data.csv"), DONE)
        ended = await call(stage, *run(stage, "anthropic/claude-x", "--fallback", third), **where)
        assert (ended.status, ended.out) == (0, "3 lines\n"), ended.err
        assert f"[{third} answers: anthropic/claude-x: the answer was held back" in ended.err
    assert not (stage.demo / "half").exists()


@pytest.mark.parametrize(
    "command",
    [("run", "count"), ("code", "f(x)"), PLAN],
)
async def test_every_command_takes_them(stage: Stage, command: tuple[str, ...]) -> None:
    """And a name that is none is told before anything is begun."""
    for flag in ("--smart-model", "--fast-model", "--fallback"):
        ended = await call(
            stage, *command, "--model", stage.script(DONE), flag, "embeded/x", "--folder", str(stage.demo)
        )
        assert (ended.status, ended.out) == (2, ""), ended.err
        assert "hint: did you mean embedded/x?" in ended.err


async def test_all_are_down_is_one_line_with_each_cause(stage: Stage) -> None:
    ended = await call(stage, *run(stage, "ollama/a", "--fallback", "vllm/b"), OLLAMA_HOST=NOBODY, VLLM_BASE_URL=NOBODY)
    assert ended.status == 5
    (line,) = [line for line in ended.err.splitlines() if line.startswith("failed (model: ")]
    assert "ollama/a: no model server at 127.0.0.1:1" in line
    assert "vllm/b: no model server at 127.0.0.1:1" in line


async def test_what_it_costs_is_known_of_all_or_the_bound_is_refused(stage: Stage) -> None:
    where = {"OPENAI_BASE_URL": "https://models.example/v1", "OPENAI_API_KEY": "sk-x"}
    ended = await call(stage, *run(stage, stage.script(DONE), "--fallback", "openai/odd", "--max-cost", "1"), **where)
    assert (ended.status, ended.out) == (2, "")
    assert "nobody says what openai/odd costs" in ended.err


async def test_protocols_are_what_all_of_them_can_do(stage: Stage) -> None:
    """One makes calls, the other only keeps a schema: both are asked for JSON. A small window is told once."""
    word = json.dumps({"word": "plover-17"})
    first = FakeOpenAI(otherwise=lambda: fails(500, "boom"), models=[{"id": "m"}])
    second = FakeOpenAI(
        [says("no call"), says(word)],
        otherwise=lambda: says(DONE),
        models=[{"id": "n"}],
        routes={"/api/v0/models/n": {"loaded_context_length": 4096, "max_context_length": 32768}},
    )
    async with first, second:
        first.replies = [call_of("list_files", folder="/srv"), says(word)]
        where = {"OLLAMA_HOST": first.url, "LM_STUDIO_API_BASE": second.url}
        flags = ("run", "count", "--folder", str(stage.demo), "--no-input", "--json")
        ended = await call(stage, *flags, "--model", "ollama/m", "--fallback", "lm-studio/n", **where)
        assert ended.result["answer"] == "3 lines", ended.err
        assert ended.events[0]["answers"] == "json"
        told = await call(stage, *flags[:-1], "--model", "ollama/m", "--fallback", "lm-studio/n", **where)
        assert told.err.count("LM Studio gives n a window of 4096") == 1
        assert os.listdir(stage.home / ".cache/stockade/capabilities")


def call_of(name: str, **arguments: str) -> Reply:
    one = {
        "index": 0,
        "id": "call_1",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }
    return Reply([piece(None, tool_calls=[one]), piece(None, "tool_calls")])


async def test_names_without_a_provider_are_those_of_a_server(stage: Stage) -> None:
    """As --model takes them; the record and what is shown name them in full."""
    first = FakeOpenAI(otherwise=lambda: fails(401, "no key"), models=[{"id": "m"}])
    second = FakeOpenAI(otherwise=lambda: says(DONE), models=[{"id": "plover"}])
    async with first, second:
        where = {"OPENAI_BASE_URL": first.base_url, "OPENAI_API_KEY": "sk-x", "VLLM_BASE_URL": second.base_url}
        beside = ("--fallback", "plover", "--smart-model", "plover", "--fast-model", "plover")
        ended = await call(stage, *run(stage, "openai/m", *beside), **where)
        assert (ended.status, ended.out) == (0, "3 lines\n"), ended.err
        assert "[vllm/plover answers: openai/m: " in ended.err
        for flag in ("--fallback", "--smart-model", "--fast-model"):
            nobody = await call(stage, *run(stage, "openai/m", flag, "curlew"), **where)
            assert (nobody.status, nobody.out) == (2, ""), (flag, nobody.err)
            assert "curlew" in nobody.err


async def test_chat_and_auto_go_on_with_the_next_model(stage: Stage) -> None:
    finish = stage.script(DONE, DONE, name="next.jsonl")
    where = {"OLLAMA_HOST": NOBODY}
    flags = ("--model", "ollama/a", "--fallback", finish)
    chat = ["chat", "--folder", str(stage.demo), *flags]
    screen = Screen(stage.tmp_path, chat, stage.demo, {**stage.environment(), **where}, PATIENCE_S, (200, 40))
    try:
        screen.until("Ctrl-D leaves")
        screen.type("count\r")
        screen.until("next.jsonl", "answers:", "ollama/a:", "3 lines", "Ctrl-D leaves")
        screen.type("\x04")
        assert screen.status() == 0
    finally:
        screen.close()
    shell = stage.script('[{"command": "true"}]', name="auto.jsonl")
    words = ("auto", "look around", "--workspace", str(stage.tmp_path / "w"), "--max-turns", "1")
    ended = await call(stage, *words, "--model", "ollama/a", "--fallback", shell, **where)
    assert ended.status == 3, ended.err
    assert f"[{shell} answers: ollama/a: no model server at 127.0.0.1:1" in ended.err


@pytest.mark.parametrize(("cost", "spent"), [(0.25, 0.5), (-1, 0.0), ("1", 0.0), (True, 0.0), (10**400, 0.0)])
async def test_what_openrouter_says_it_took_is_what_it_cost(stage: Stage, cost: object, spent: float) -> None:
    def charged(answer: str) -> Reply:
        *pieces, last = says(answer).pieces
        assert isinstance(last, dict)
        return Reply([*pieces, last | {"usage": last["usage"] | {"cost": cost}}])

    count = say("shell", thought="Count.", command="wc -l < data.csv")
    server = FakeOpenAI([charged(count), charged(DONE)], models=[{"id": "odd"}])
    async with server:
        where = {"OPENROUTER_BASE_URL": server.base_url, "OPENROUTER_API_KEY": "sk-x"}
        ended = await call(stage, *run(stage, "openrouter/odd", "--json", "--max-cost", "9"), **where)
        assert ended.status == 0, ended.err
        assert ended.result["usage"]["cost"] == spent


def test_a_helper_has_its_name_and_model_in_the_list(stage: Stage) -> None:
    tasks = [say("sub_task", task="count", name="counter", model="smart"), say("sub_task", task="look", model="fast")]
    boss = stage.script(*tasks, say("finish", answer="all done"), name="boss.jsonl")
    strong = stage.script(say("shell", command="wc -l < data.csv"), DONE, name="strong.jsonl")
    quick = stage.script(say("finish", answer="quick"), name="quick.jsonl")
    flags = ("--bot", "boss", "--smart-model", strong, "--fast-model", quick)
    ended = stage.call(*run(stage, boss, *flags))
    assert (ended.status, ended.out) == (0, "all done\n"), ended.err
    assert "sub_task counter (smart model): count" in ended.err
    listed = {one["bot"]: one["model"] for one in stage.call("runs", "list", "--json").events}
    assert listed == {"boss": boss, "counter": strong, "helper": quick}


MEET = "mkdir /tmp/{0}; cd /tmp/{0}; x={0}; until [ -e ../1 ] && [ -e ../2 ] && [ -e ../3 ]; do sleep 0.05; done"
"""Each waits inside for all: they overlap, or none ends."""


def leading(asked: Asked) -> Reply | None:
    """A boss that hands three parts on at once, and helpers that meet; by what each is asked."""
    if asked.method != "POST":
        return None
    messages = asked.body["messages"]
    task, turn = messages[1]["content"], sum(one["role"] == "assistant" for one in messages)
    if task.endswith("part"):
        number = task[0]
        steps = [
            say("shell", command=MEET.format(number)),
            say("write_file", path="where", content=number),
            say("shell", command="pwd; echo $x; cat where"),
            say("finish", answer=f"{number} was there"),
        ]
    else:
        parts = say("sub_task", task="1 part", name="meet", in_parallel=["2 part", "3 part"])
        steps = [parts, say("shell", command='pwd; echo "x=$x"'), say("finish", answer="all met")]
    return says(steps[turn])


async def test_helpers_work_side_by_side_in_shells_of_their_own(stage: Stage) -> None:
    async with FakeOpenAI(refuses=leading) as server:
        where = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-x"}
        ended = await call(stage, *run(stage, "openai/gpt-x", "--bot", "boss", "--max-turns", "40"), **where)
    assert (ended.status, ended.out) == (0, "all met\n"), ended.err
    assert "sub_task meet: 1 part | 2 part | 3 part" in ended.err
    assert "meet-1 says: 1 was there\n\nmeet-2 says: 2 was there\n\nmeet-3 says: 3 was there" in ended.err
    assert "/workspace\nx=\n" in ended.err
    listed = (await call(stage, "runs", "list", "--json")).events
    assert sorted(one["bot"] for one in listed) == ["boss", "meet-1", "meet-2", "meet-3"]
    assert {one["status"] for one in listed} == {"done"}
    (boss,) = [one["run_id"] for one in listed if one["bot"] == "boss"]
    told = list((await call(stage, "runs", "export", boss, "--format", "jsonl")).events)
    assert [one["type"] for one in told if one["type"].startswith("sub_run")] == [
        *["sub_run_started"] * 3, *["sub_run_finished"] * 3,
    ]  # fmt: skip
    (end,) = [one for one in told if one["type"] == "run_finished"]
    assert end["usage"]["completion_tokens"] == 2 * (3 + 3 * 4)
    for number in (1, 2, 3):
        own = (await call(stage, "runs", "show", f"{boss}.{number}", "--full")).out
        assert f"/tmp/{number}\n{number}\n{number}\n" in own


async def test_what_one_of_them_cannot_do_is_told_with_what_the_others_did(stage: Stage) -> None:
    answers = [say("sub_task", task="a", in_parallel=["b"], max_turns=30), say("finish", answer="done")]
    ended = await call(stage, *run(stage, stage.script(*answers), "--bot", "boss", "--max-turns", "20"))
    assert "30 turns were asked for and only 9 are left for each" in ended.err
