"""From a task to a Planner's run: the profile, and two servers of llamafile with and without a key (AG-1 to AG-15)."""

import json
from pathlib import Path

import pytest

from stockade.approval.approver import Authoriser
from stockade.core.errors import ModelFailed, UsageError
from stockade.exports.atif import trajectory
from stockade.loop.state import fold
from stockade.paths import state_dir
from stockade.plugins.planner.bot import DEFAULT_PROFILE, PLANNER, Overrides, Planner, Profile, prompt_of, with_fixed
from stockade.runtime import factory
from stockade.runtime.models import FAST, environment_of
from stockade.runtime.spec import Objects, RunSpec
from stockade.testing import MemoryStore
from tests.support.fake_openai import FakeOpenAI, fails, says

pytestmark = pytest.mark.anyio

PROFILE = {"name": "Counter", "role": "an expert for lines", "constraints": ["Do not delete."], "best_practices": []}
DONE = json.dumps({"thoughts": {"text": "Done."}, "action": {"tool": "finish", "answer": "3 lines"}})


def options(tmp_path: Path, **given: object) -> RunSpec:
    (tmp_path / "demo").mkdir(exist_ok=True)
    folder = (str(tmp_path / "demo"),)
    return RunSpec.model_validate(
        {"task": "count", "bot": "planner", "folder": folder, "model": "llamafile/fake", **given}
    )


@pytest.mark.parametrize(("smart_key", "fast_key"), [(None, None), ("smart-1", None), (None, "fast-1"), ("s", "f")])
async def test_two_servers_each_with_its_key_or_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smart_key: str | None, fast_key: str | None
) -> None:
    smart_server, fast_server = FakeOpenAI([says(DONE), says(DONE)]), FakeOpenAI([says(json.dumps(PROFILE))])
    async with smart_server as smart, fast_server as fast:
        monkeypatch.setenv("LLAMAFILE_URL", smart.url)
        monkeypatch.setenv("FAST_LLAMAFILE_URL", fast.base_url)
        for name, key in (("LLAMA_API_KEY", smart_key), ("FAST_LLAMA_API_KEY", fast_key)):
            if key is not None:
                monkeypatch.setenv(name, key)
        store = MemoryStore()
        given = options(tmp_path, fast_model="llamafile/fake")
        prepared = await factory.prepare(given.model_copy(update={"granted": None}), store)
        finished = await factory.start(prepared)
    assert (finished.status, finished.answer) == ("done", "3 lines")
    assert prepared.started.options["profile"]["name"] == "Counter"
    assert prepared.started.answers == "plan"
    assert len(fast.questions) == 1
    assert len(smart.questions) >= 1
    for server, key in ((smart, smart_key), (fast, fast_key)):
        sent = {asked.headers.get("authorization") for asked in server.questions}
        assert sent == {f"Bearer {key}" if key else None}


async def test_one_server_does_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeOpenAI([says(json.dumps(PROFILE)), says(DONE), says(DONE)]) as server:
        monkeypatch.setenv("LLAMAFILE_URL", server.url)
        prepared = await factory.prepare(options(tmp_path), MemoryStore())
        assert (await factory.start(prepared)).status == "done"
    assert "You are Counter, an expert for lines." in server.questions[1].body["messages"][0]["content"]


async def test_what_the_profile_costs_is_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = [says(json.dumps(PROFILE), usage=(100, 0, 30)), *[says(DONE, usage=(200, 150, 5))] * 2]
    store = MemoryStore()
    async with FakeOpenAI(replies) as server, FakeOpenAI([replies[0]]) as again:
        monkeypatch.setenv("LLAMAFILE_URL", server.url)
        prepared = await factory.prepare(options(tmp_path), store)
        await factory.start(prepared)
        events = await store.events(prepared.started.run_id)
        asked = [event.answer.usage for event in events if event.type == "model_answered"]
        finished = fold(events).finished
        assert finished is not None
        assert finished.usage.prompt_tokens == 100 + sum(one.prompt_tokens for one in asked)
        assert finished.usage.completion_tokens == 30 + sum(one.completion_tokens for one in asked)
        assert trajectory(events)["final_metrics"]["total_prompt_tokens"] == finished.usage.prompt_tokens
        monkeypatch.setenv("LLAMAFILE_URL", again.url)
        spent = await factory.prepare(options(tmp_path, max_tokens=130), MemoryStore())
        ended = await factory.start(spent)
    assert (ended.status, ended.reason, ended.turns) == ("stopped", "tokens", 0)
    assert len(again.questions) == 1


async def test_a_wrong_key_is_an_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeOpenAI([fails(401, "wrong key")]) as server:
        monkeypatch.setenv("LLAMAFILE_URL", server.url)
        with pytest.raises(ModelFailed):
            await factory.prepare(options(tmp_path), MemoryStore())
    assert not list((state_dir() / "runs").glob("*"))


async def test_an_unknown_model_is_named_and_never_another_one(tmp_path: Path) -> None:
    """AutoGPT fell back to gpt-3.5-turbo in silence."""
    with pytest.raises(UsageError) as caught:
        await factory.prepare(options(tmp_path, fast_model="gpt-3.5-turbo"), MemoryStore())
    assert "gpt-3.5-turbo" in caught.value.message


async def test_a_grant_is_the_authorisers_and_on_record(tmp_path: Path) -> None:
    script = tmp_path / "s.jsonl"
    script.write_text(json.dumps({"content": DONE}))
    for granted, recorded in ((0, None), (3, 3), (None, "unlimited")):
        named = PLANNER.model_copy(update={"bot": Planner(Overrides(name="A", role="b"))})
        given = options(tmp_path, model=f"scripted/{script}", granted=granted, objects=Objects(bot=named))
        prepared = await factory.prepare(given, MemoryStore())
        assert isinstance(prepared.parts.approver, Authoriser)
        assert prepared.parts.approver.granted == granted
        assert prepared.started.options.get("continuous") == recorded


async def test_a_secret_in_the_task_is_not_told_to_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "hunter2-hunter2-hunter2")
    async with FakeOpenAI([says(json.dumps(PROFILE)), says(DONE), says(DONE)]) as server:
        monkeypatch.setenv("LLAMAFILE_URL", server.url)
        given = options(tmp_path, task="use hunter2-hunter2-hunter2 to log in")
        await factory.prepare(given, MemoryStore())
    assert server.asked
    assert all(b"hunter2" not in asked.raw for asked in server.asked)


def test_a_key_is_not_sent_to_another_server() -> None:
    environ = {"LLAMA_API_KEY": "s", "LLAMAFILE_URL": "http://a", "PATH": "/bin"}
    assert environment_of(FAST, environ) == environ
    elsewhere = environment_of(FAST, {**environ, "FAST_LLAMAFILE_URL": "http://b"})
    assert elsewhere["LLAMAFILE_URL"] == "http://b"
    assert "LLAMA_API_KEY" not in elsewhere
    assert (
        environment_of(FAST, {**environ, "FAST_LLAMAFILE_URL": "b", "FAST_LLAMA_API_KEY": "f"})["LLAMA_API_KEY"] == "f"
    )


def test_directives_are_added_or_replaced() -> None:
    own = Profile(name="A", role="b", constraints=("c1",), resources=("r1",), best_practices=("p1",))
    more = Overrides(constraints=("c2", "c1"), best_practices=("p2",))
    assert more.on(own).constraints == ("c1", "c2")
    instead = more.model_copy(update={"replace": True}).on(own)
    assert (instead.constraints, instead.resources, instead.best_practices) == (("c2", "c1"), ("r1",), ("p2",))
    assert not Overrides().any


def test_the_prompt_is_short_and_speaks_of_the_network_that_is_there() -> None:
    closed, open_ = (with_fixed(DEFAULT_PROFILE, "/workspace", network=network) for network in (False, True))
    assert "There is no network." in prompt_of(closed, "/workspace")
    assert "network" not in prompt_of(open_, "/workspace")
    assert len(prompt_of(closed, "/workspace")) < 800
