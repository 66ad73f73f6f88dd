import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.core.messages import ModelAnswer, Usage
from stockade.models.answer_builder import AnswerBuilder
from stockade.models.pricing import Price
from tests.support.fake_openai import piece


def build(*pieces: dict[str, Any]) -> ModelAnswer:
    builder = AnswerBuilder()
    for one in pieces:
        builder.add(one)
    return builder.answer(0.5)


def calls_of(*deltas: dict[str, Any]) -> list[tuple[str, str, str]]:
    answer = build(*(piece(tool_calls=[delta]) for delta in deltas))
    return [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in answer.tool_calls]


def call(name: str | None = None, arguments: Any = None, **rest: Any) -> dict[str, Any]:
    return {**rest, "function": {"name": name, "arguments": arguments}}


def test_text_and_null_content() -> None:
    answer = build(piece(None), piece("a"), piece("b"), piece(None, finish="stop"))
    assert (answer.content, answer.finish_reason, answer.duration_s) == ("ab", "stop", 0.5)


def test_content_parts() -> None:
    assert build(piece([{"type": "text", "text": "x"}, {"type": "image"}, 3])).content == "x"  # type: ignore[arg-type]


def test_whole_message() -> None:
    message = {"choices": [{"message": {"content": "hi"}, "finish_reason": "length"}], "model": "m"}
    answer = build(message)
    assert (answer.content, answer.finish_reason, answer.model) == ("hi", "length", "m")


def test_arguments_that_are_nested_too_deeply_are_text_as_others() -> None:
    deep = "[" * 100_000
    assert calls_of(call("sh", deep, id="a"), call("sh", deep)) == [("a", "sh", deep + deep)]


def test_parallel_calls_by_index() -> None:
    assert calls_of(
        call("sh", "", index=0, id="a"), call("ls", "", index=1, id="b"),
        call(None, '{"x":', index=0), call(None, "{}", index=1), call(None, "1}", index=0),
    ) == [("a", "sh", '{"x":1}'), ("b", "ls", "{}")]  # fmt: skip


def test_no_index_new_id_is_a_new_call() -> None:
    assert calls_of(call("sh", '{"x":', id="a"), call(None, "1}"), call("sh", "{}", id="b")) == [
        ("a", "sh", '{"x":1}'),
        ("b", "sh", "{}"),
    ]


def test_id_and_name_repeated_are_not_appended() -> None:
    assert calls_of(call("sh", '{"x":', index=0, id="a"), call("sh", "1}", index=0, id="a")) == [("a", "sh", '{"x":1}')]
    assert calls_of(call("sh", '{"x":', id="a"), call("sh", "1}", id="a")) == [("a", "sh", '{"x":1}')]


def test_neither_index_nor_id() -> None:
    assert calls_of(call("sh", '{"x":'), call("sh", "1}"), call("sh", "{}"), call("ls", "{}")) == [
        ("call_1", "sh", '{"x":1}'),
        ("call_2", "sh", "{}"),
        ("call_3", "ls", "{}"),
    ]


def test_every_call_has_index_zero() -> None:
    assert [c[0] for c in calls_of(call("sh", "{}", index=0, id="a"), call("sh", "{}", index=0, id="b"))] == ["a", "b"]


def test_arguments_as_an_object() -> None:
    (found,) = calls_of(call("sh", {"command": "ls"}, index=0, id=None))
    assert json.loads(found[2]) == {"command": "ls"}
    assert found[0] == "call_1"


def test_an_object_that_every_piece_has_whole_is_taken_once() -> None:
    half, whole = {"command": "ls"}, {"command": "ls", "why": "x"}
    for known in ({"index": 0}, {"id": "a"}):
        (found,) = calls_of(call("sh", half, **known), call("sh", whole, **known), call("sh", whole, **known))
        assert json.loads(found[2]) == whole
    assert len(calls_of(call("sh", half), call("sh", half))) == 1
    assert len(calls_of(call("sh", half), call("sh", whole))) == 2
    assert calls_of(call("sh", {}, index=0), call(None, '{"x"', index=0), call(None, ":1}", index=0)) == [
        ("call_1", "sh", '{"x":1}')
    ]


def test_half_a_surrogate_pair_becomes_text() -> None:
    answer = build(piece("a\ud800\U0001f40d", tool_calls=[call("sh", '"\udc00"', index=0)]))
    assert answer.content == "a�🐍"
    assert answer.model_dump_json()


def test_usage_and_timings() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 7}}
    assert build({"choices": [], "usage": usage}).usage == Usage(prompt_tokens=10, cached_tokens=7, completion_tokens=3)
    timings = {"cache_n": 7, "prompt_n": 3, "predicted_n": 2}
    assert build({"timings": timings}).usage == Usage(prompt_tokens=10, cached_tokens=7, completion_tokens=2)
    assert build({"usage": {"prompt_tokens": None, "prompt_tokens_details": None}}).usage == Usage()


AGAIN = "the same again, "


def over_and_over(price: Price | None = None, **delta: Any) -> AnswerBuilder:
    """A builder that has heard 2,000 pieces, or as many as it wanted."""
    builder = AnswerBuilder(price)
    for number in range(2000):
        timings = {"cache_n": 7, "prompt_n": 3, "predicted_n": number + 1}
        builder.add({**piece(**delta), "timings": timings})
        if builder.enough:
            break
    return builder


@pytest.mark.parametrize("where", ["content", "tool_calls", "reasoning_content"])
def test_what_says_one_thing_over_and_over_is_enough(where: str) -> None:
    said: dict[str, Any] = {where: AGAIN}
    builder = over_and_over(**said if where != "tool_calls" else {"tool_calls": [call("shell", AGAIN, index=0)]})
    assert builder.enough
    answer = builder.answer(0.5)
    assert (answer.finish_reason, answer.cut) == ("repeats", True)
    spent = answer.usage.completion_tokens
    thought = spent if where == "reasoning_content" else 0
    assert answer.usage == Usage(prompt_tokens=10, cached_tokens=7, completion_tokens=spent, thinking_tokens=thought)
    assert 1200 / len(AGAIN) <= spent < 1500 / len(AGAIN)
    assert (answer.content != "") == (where == "content")


def test_without_a_word_of_the_server_the_pieces_are_counted() -> None:
    builder = AnswerBuilder()
    while not builder.enough:
        builder.add(piece(AGAIN))
    assert builder.answer(0.5).usage.completion_tokens == builder.size // len(AGAIN)


def test_what_costs_something_is_heard_to_its_end() -> None:
    assert not over_and_over(Price(input=1.0, output=2.0), content=AGAIN).enough
    assert over_and_over(Price(input=0, output=0), content=AGAIN).enough


def test_an_answer_that_came_whole_is_as_it_is() -> None:
    assert build(piece(AGAIN * 1000, finish="stop")).finish_reason == "stop"


def test_arguments_that_every_piece_has_whole_are_no_repetition() -> None:
    builder = AnswerBuilder()
    for _ in range(400):
        builder.add(piece(tool_calls=[call("shell", {"command": "make all and test it"}, index=0)]))
    assert not builder.enough


@pytest.mark.parametrize("count", [10**400, 2**53 + 1, -1, True, 1.5, "7"])
def test_what_is_no_count_is_none(count: object) -> None:
    price = Price(input=1.0, output=2.0)
    builder = AnswerBuilder(price)
    builder.add({"usage": {"prompt_tokens": count, "completion_tokens": 3}})
    assert builder.answer(0.5).usage == Usage(completion_tokens=3, cost=6e-6)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "tool_calls", "function", "name", "arguments", "content", "usage", "id"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.lists(st.dictionaries(st.sampled_from(["choices", "usage", "timings", "model"]), JSON), max_size=4))
def test_any_json_gives_an_answer(pieces: list[dict[str, Any]]) -> None:
    assert isinstance(build(*pieces), ModelAnswer)
