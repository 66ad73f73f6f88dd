"""What a model really does is tried once, remembered, and decides how it is spoken to."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from platformdirs import user_cache_path

from stockade.answers.action_codec import select_protocol
from stockade.core.errors import ModelUnavailable
from stockade.core.messages import ModelInfo
from stockade.models.openai import OpenAIModel
from stockade.models.openai_request import Dialect
from stockade.models.probe import probe_capabilities
from stockade.runtime.models import known_of
from tests.support.fake_openai import FakeOpenAI, Reply, fails, piece, says

pytestmark = pytest.mark.anyio


def called(name: str, arguments: str) -> Reply:
    call = {"index": 0, "id": "1", "function": {"name": name, "arguments": arguments}}
    return Reply([piece(tool_calls=[call]), piece(finish="tool_calls")])


CALLS = called("list_files", '{"folder": "/srv"}')
KEEPS = says('{"word": "plover-17"}')


async def no_sleep(_seconds: float) -> None:
    """Not here."""


async def judge(*replies: Reply, name: str = "llama-server/m") -> ModelInfo:
    async with FakeOpenAI(replies) as server:
        model = OpenAIModel(server.base_url, "fake", provider="llama-server", dialect=Dialect(), sleep=no_sleep)
        return await probe_capabilities(model, name)


@pytest.mark.parametrize(
    ("replies", "native", "schema", "protocol"),
    [
        ((CALLS, KEEPS), True, True, "native"),
        ((CALLS, says("Hello!")), True, False, "native"),
        ((says('{"name": "list_files", "arguments": {"folder": "/srv"}}'), KEEPS), False, True, "json"),
        ((says("I would call list_files."), says('{"word": "hello"}')), False, False, "fenced"),
        ((called("list_files", "{half"), says("{}")), False, False, "fenced"),
        ((called("other", "{}"), says("[1]")), False, False, "fenced"),
        ((called("list_files", '{"folder": 7}'), KEEPS), False, True, "json"),
        ((fails(400, "tools are not supported here"), KEEPS), False, True, "json"),
        ((CALLS, fails(400, "response_format is odd")), True, False, "native"),
    ],
)
async def test_trials(replies: tuple[Reply, ...], native: bool, schema: bool, protocol: str) -> None:
    info = await judge(*replies)
    assert (info.native_tools, info.enforces_schema) == (native, schema)
    assert select_protocol(info) == protocol


async def test_a_trial_is_short_and_never_demands_a_call() -> None:
    async with FakeOpenAI([CALLS, KEEPS]) as server:
        await probe_capabilities(
            OpenAIModel(server.base_url, "fake", dialect=Dialect(llama_cpp=True)), "llama-server/m"
        )
        bodies: list[dict[str, Any]] = [asked.body for asked in server.questions]
    assert len(bodies) == 2
    assert all(body["max_tokens"] <= 64 for body in bodies)
    assert all("tool_choice" not in body for body in bodies)
    assert "tools" in bodies[0]
    assert bodies[1]["response_format"]["json_schema"]["schema"]["required"] == ["word"]


async def test_the_verdict_is_remembered() -> None:
    await judge(CALLS, KEEPS)
    assert (await judge()).native_tools
    assert not (await judge(name="llama-server/other")).native_tools
    (kept, _) = sorted((user_cache_path("stockade") / "capabilities").iterdir(), key=lambda path: path.stat().st_mtime)
    kept.write_text("{broken")
    assert not (await judge()).native_tools


async def test_a_file_is_known_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF one")
    await judge(CALLS, KEEPS, name=f"gguf/{tmp_path}/a.gguf")
    (tmp_path / "a.gguf").rename(tmp_path / "b.gguf")
    assert (await judge(name=f"gguf/{tmp_path}/b.gguf")).native_tools
    (tmp_path / "b.gguf").write_bytes(b"GGUF two")
    assert not (await judge(name=f"gguf/{tmp_path}/b.gguf")).native_tools


async def test_another_server_is_another_model(monkeypatch: pytest.MonkeyPatch) -> None:
    await judge(CALLS, KEEPS)
    monkeypatch.setenv("LLAMA_SERVER_URL", "http://127.0.0.1:9999")
    assert not (await judge()).native_tools


async def judge_thinker(key: str, needed: int, said: list[str] | None = None) -> tuple[ModelInfo, list[int]]:
    """A model that does all that is asked of it after `needed` tokens of thinking, which `key` brings, or hides."""

    def answer() -> Reply:
        body = server.questions[-1].body
        thought = [piece(**{key: "Okay, the user"})] if key else []
        if body["max_tokens"] < needed:
            return Reply([*thought, piece(finish="length")])
        return Reply([*thought, *(CALLS if body.get("tools") else KEEPS).pieces])

    async with FakeOpenAI(otherwise=answer) as server:
        told: list[str] = []
        info = await probe_capabilities(
            OpenAIModel(server.base_url, "fake"), "llama-server/m", lambda words, *_: told.append(words)
        )
    if said is not None:
        said.extend(told)
    return info, [asked.body["max_tokens"] for asked in server.questions]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", ""])
async def test_a_model_that_thinks_first_is_given_room_for_it(key: str) -> None:
    info, bounds = await judge_thinker(key, 200)
    assert info.native_tools
    assert bounds[:2] == [64, 1024]
    assert json.loads(next((user_cache_path("stockade") / "capabilities").iterdir()).read_text())["native_tools"]


@pytest.mark.parametrize("key", ["reasoning_content", ""])
async def test_one_that_thinks_on_is_not_known_and_nothing_is_kept(key: str) -> None:
    said: list[str] = []
    info, bounds = await judge_thinker(key, 5000, said)
    assert (info.native_tools, info.enforces_schema, bounds) == (False, False, [64, 1024])
    assert "is not known: the model was still thinking after" in said[-1]
    assert not (user_cache_path("stockade") / "capabilities").exists()


async def test_a_verdict_of_before_that_was_known_is_dropped() -> None:
    await judge(says("no"), says("no"))
    (kept,) = (user_cache_path("stockade") / "capabilities").iterdir()
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"version": 1}))
    assert (await judge(CALLS, KEEPS)).native_tools


@pytest.mark.parametrize("reply", [fails(401), fails(500)])
async def test_a_model_that_cannot_be_asked_is_not_judged(reply: Reply) -> None:
    info = await judge(*[reply] * 9)
    assert info == ModelInfo(name="fake", provider="llama-server", sources=info.sources)
    assert "native_tools" not in info.sources
    assert not (user_cache_path("stockade") / "capabilities").exists()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: OpenAIModel("https://api.openai.com/v1", "gpt", "k", native_tools=True), "openai/gpt"),
        (lambda: OpenAIModel("http://127.0.0.1:1/v1", "smollm2", provider="embedded"), "embedded/smollm2"),
    ],
)
async def test_what_is_known_is_not_tried(make: Callable[[], OpenAIModel], name: str) -> None:
    info = await probe_capabilities(make(), name)
    assert select_protocol(info) == ("native" if info.native_tools else "json")


async def test_the_run_is_spoken_to_accordingly() -> None:
    async with FakeOpenAI([CALLS, KEEPS]) as server:
        model = OpenAIModel(server.base_url, "fake")
        assert not (await known_of(model, "llama-server/m", "fenced")).native_tools
        assert (await known_of(model, "llama-server/m", "auto")).native_tools
        assert len(server.questions) == 2
    assert json.loads(next((user_cache_path("stockade") / "capabilities").iterdir()).read_text())["native_tools"]


async def test_what_was_seen_is_told_with_its_source() -> None:
    assert (await judge(CALLS, KEEPS)).sources["native_tools"] == "tried now"
    assert (await judge()).sources["native_tools"].startswith("tried on 2")
    known = await probe_capabilities(OpenAIModel("http://127.0.0.1:1/v1", "x", provider="embedded"), "embedded/smollm2")
    assert known.sources["enforces_schema"] == "our table of models"


async def test_the_trial_is_held_again_where_that_is_asked_for() -> None:
    await judge(CALLS, KEEPS)
    async with FakeOpenAI([says("no"), says("no")]) as server:
        model = OpenAIModel(server.base_url, "fake", provider="llama-server", sleep=no_sleep)
        assert not (await probe_capabilities(model, "llama-server/m", again=True)).native_tools
    assert not (await judge()).native_tools
    gone = OpenAIModel("http://127.0.0.1:1/v1", "fake", provider="llama-server", sleep=no_sleep)
    with pytest.raises(ModelUnavailable):
        await probe_capabilities(gone, "llama-server/m", again=True)


async def test_without_a_trial_a_server_tells_what_it_knows_and_no_token_is_used() -> None:
    async with FakeOpenAI(models=[{"id": "fake", "meta": {"n_params": 10**9}}]) as server:
        model = OpenAIModel(server.base_url, "fake", provider="llama-server")
        info = await probe_capabilities(model, "llama-server/m", trial=False)
        assert (info.parameters, info.small, server.questions) == (10**9, True, [])


async def test_a_new_trial_replaces_what_was_remembered_and_known() -> None:
    model = OpenAIModel("http://127.0.0.1:1/v1", "smollm2", provider="embedded")
    assert not (await probe_capabilities(model, "embedded/smollm2")).native_tools
    async with FakeOpenAI([CALLS, KEEPS]) as server:
        model = OpenAIModel(server.base_url, "smollm2", provider="embedded")
        again = await probe_capabilities(model, "embedded/smollm2", again=True)
    assert (again.native_tools, again.sources["native_tools"]) == (True, "tried now")
    assert (await probe_capabilities(model, "embedded/smollm2")).native_tools


async def test_a_new_trial_that_fails_leaves_nothing_behind() -> None:
    await judge(CALLS, KEEPS)
    with pytest.raises(ModelUnavailable):
        await probe_capabilities(OpenAIModel("http://127.0.0.1:1/v1", "fake"), "llama-server/m", again=True)
    assert not list((user_cache_path("stockade") / "capabilities").iterdir())
