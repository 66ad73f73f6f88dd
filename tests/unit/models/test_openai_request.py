import json
from itertools import pairwise

import pytest

from stockade.core.messages import Message, ModelRequest, Sampling
from stockade.models import openai_request as payload
from stockade.models.openai_request import DRY_TOKENS, Dialect, PayloadCache
from stockade.models.providers import PROVIDERS


def request(*texts: str, **rest: object) -> ModelRequest:
    return ModelRequest(messages=tuple(Message(role="user", content=text) for text in texts), **rest)


def test_every_field() -> None:
    sampling = Sampling(temperature=0.5, top_p=0.9, top_k=4, min_p=0.1, repeat_penalty=1.1, seed=7, max_tokens=9)
    asked = request("hi", sampling=sampling, schema_={"type": "object"}, tools=({"type": "function"},), stop=("x",))
    found = json.loads(PayloadCache().body(asked, "m", Dialect(llama_cpp=True), slot=2))
    assert found == {
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True,
        "stream_options": {"include_usage": True}, "temperature": 0.5, "top_p": 0.9, "seed": 7, "max_tokens": 9,
        "top_k": 4, "min_p": 0.1, "repeat_penalty": 1.1, "stop": ["x"], "tools": [{"type": "function"}],
        "tool_choice": "none", "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": {"type": "object"}},
        },
        "cache_prompt": True, "timings_per_token": True, "id_slot": 2,
    }  # fmt: skip


def test_a_conversation_has_one_key_for_the_cache_of_its_provider() -> None:
    """Also when its last words, its tools or its sampling are others; one that begins otherwise has another."""
    system, dialect = Message(role="system", content="Be brief.\ud800"), Dialect(cache=("prompt_cache_key",))

    def key(*texts: str, **rest: object) -> str:
        asked = request(*texts, **rest)
        asked = asked.model_copy(update={"messages": (system, *asked.messages)})
        return str(json.loads(PayloadCache().body(asked, "m", dialect))["prompt_cache_key"])

    first = key("Mend it.")
    assert (len(first), first.isalnum()) == (32, True)
    assert key("Mend it.", "go on", sampling=Sampling(temperature=1), tools=({"type": "function"},)) == first
    assert key("Mend that.", "go on") != first


@pytest.mark.parametrize("provider", ["vllm", "openrouter", "llama-server", "lm-studio"])
def test_a_penalty_has_the_name_that_the_server_knows(provider: str) -> None:
    asked = request("hi", sampling=Sampling(repeat_penalty=1.1))
    body = json.loads(PayloadCache().body(asked, "m", PROVIDERS[provider].dialect))
    name = "repetition_penalty" if provider in ("vllm", "openrouter") else "repeat_penalty"
    assert [field for field in body if "penalty" in field] == [name]


def test_a_cache_mark_stands_beside_the_messages() -> None:
    body = json.loads(PayloadCache().body(request("hi"), "m", Dialect(cache=("cache_control",))))
    assert body["cache_control"] == {"type": "ephemeral"}
    assert body["messages"] == [{"role": "user", "content": "hi"}]


def test_what_is_not_asked_is_not_sent() -> None:
    found = json.loads(PayloadCache().body(request("hi"), "m", Dialect()))
    assert found.keys() == {"model", "messages", "stream", "stream_options"}


def test_dry_is_for_llama_cpp_alone() -> None:
    asked = request("hi", sampling=Sampling(dry_multiplier=0.8))
    found = json.loads(PayloadCache().body(asked, "m", Dialect(llama_cpp=True)))
    assert (found["dry_multiplier"], found["dry_allowed_length"]) == (0.8, DRY_TOKENS)
    off = request("hi", sampling=Sampling(dry_multiplier=0))
    assert "dry_allowed_length" not in json.loads(PayloadCache().body(off, "m", Dialect(llama_cpp=True)))
    assert not json.loads(PayloadCache().body(asked, "m", Dialect())).keys() & {"dry_multiplier", "dry_allowed_length"}


def test_a_grammar_of_the_user_goes_before_a_schema_and_to_llama_cpp_alone() -> None:
    asked = request("hi", sampling=Sampling(grammar='root ::= "x"'), schema_={"type": "object"})
    found = json.loads(PayloadCache().body(asked, "m", Dialect(llama_cpp=True)))
    assert (found["grammar"], "response_format" in found) == ('root ::= "x"', False)
    elsewhere = json.loads(PayloadCache().body(asked, "m", Dialect()))
    assert ("grammar" in elsewhere, "response_format" in elsewhere) == (False, True)


def test_openai_itself() -> None:
    dialect = Dialect(extended_sampling=False, max_tokens_key="max_completion_tokens")
    found = json.loads(PayloadCache().body(request("hi", sampling=Sampling(top_k=3, max_tokens=5)), "m", dialect))
    assert "top_k" not in found
    assert found["max_completion_tokens"] == 5


def test_tool_messages_keep_content() -> None:
    calls = ({"id": "a", "type": "function", "function": {"name": "sh", "arguments": "{}"}},)
    messages = (
        Message(role="assistant", content="", tool_calls=calls),
        Message(role="tool", content="out", tool_call_id="a"),
    )
    assert json.loads(PayloadCache().messages(messages)) == [
        {"role": "assistant", "content": "", "tool_calls": list(calls)},
        {"role": "tool", "content": "out", "tool_call_id": "a"},
    ]


def test_only_new_messages_are_serialised(monkeypatch: pytest.MonkeyPatch) -> None:
    serialised: list[Message] = []
    real = payload.message_json

    def counting(message: Message, dialect: Dialect) -> str:
        serialised.append(message)
        return real(message, dialect)

    monkeypatch.setattr(payload, "message_json", counting)
    cache = PayloadCache()
    messages = tuple(Message(role="user", content=str(n)) for n in range(200))
    bodies = [cache.messages(messages[:n]) for n in range(1, 201)]
    assert len(serialised) == 200
    assert json.loads(bodies[-1]) == [{"role": "user", "content": str(n)} for n in range(200)]
    assert all(later.startswith(earlier[:-1]) for earlier, later in pairwise(bodies))


def test_a_changed_prefix_is_seen() -> None:
    cache = PayloadCache()
    a, b, c = (Message(role="user", content=text) for text in "abc")
    cache.messages((a, b, c))
    assert [m["content"] for m in json.loads(cache.messages((a, c)))] == ["a", "c"]
    assert json.loads(cache.messages(())) == []


def test_a_lone_surrogate_does_not_break_it() -> None:
    body = PayloadCache().body(request("\ud800", "日本"), "m", Dialect())
    assert [m["content"] for m in json.loads(body)["messages"]] == ["?", "日本"]
