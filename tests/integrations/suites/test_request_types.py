"""What the adapters send, by the types that the official SDKs give to it: no field that they do not know, none missing,
none of another kind.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from typing_extensions import get_type_hints, is_typeddict

from stockade.core.messages import Image, Message, ModelRequest, Reasoning, Sampling
from stockade.models.anthropic import Abilities
from stockade.models.anthropic import body as anthropics
from stockade.models.openai_request import Dialect, PayloadCache
from stockade.models.responses import body as responses

TOOL = {
    "type": "function",
    "function": {"name": "shell", "description": "Runs.", "parameters": {"type": "object", "properties": {}}},
}
CALL = {"id": "c", "type": "function", "function": {"name": "shell", "arguments": '{"command":"ls"}'}}
BLOCKS = (
    {"type": "thinking", "thinking": "", "signature": "Et8B"},
    {"type": "redacted_thinking", "data": "Eu"},
    {"type": "text", "text": "I look."},
    {"type": "tool_use", "id": "t", "name": "shell", "input": {}},
)
ITEMS = (
    {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gA"},
    {"type": "function_call", "id": "fc", "call_id": "x", "name": "shell", "arguments": "{}"},
)
PICTURE = Image(name="x", media_type="image/png", base64="aGk=")
SHAPES = {
    "plain": Sampling(), "sampled": Sampling(temperature=0.5, top_p=0.9, top_k=3, seed=1, max_tokens=99),
    "thinking": Sampling(effort="high"), "not thinking": Sampling(effort="none"),
}  # fmt: skip


def asked(sampling: Sampling, *, schema: bool, reasoning: Reasoning | None = None) -> ModelRequest:
    called = Message(role="assistant", content="I look.", tool_calls=(CALL,), reasoning=reasoning)
    return ModelRequest(
        messages=(
            Message(role="system", content="Be brief."), Message(role="user", content="Go.", images=(PICTURE,)),
            called, Message(role="tool", content="a", tool_call_id="c"), Message(role="user", content="And now?"),
            called, Message(role="tool", content="b", tool_call_id="c"), Message(role="system", content="Late."),
        ),
        sampling=sampling, tools=(TOOL,), schema_={"type": "object"} if schema else None, stop=("END",),
    )  # fmt: skip


def wrong(value: object, kind: Any, where: str = "") -> list[str]:
    """What of `value` is not of this type, with where it stands."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Required, NotRequired, Annotated):
        return wrong(value, inner[0], where)
    if origin is Union:
        # The nearest: one that is of another kind as a whole says nothing of what is within.
        found = (wrong(value, one, where) for one in inner)
        return min(found, key=lambda problems: (any(one.startswith(f"{where}:") for one in problems), len(problems)))
    if origin is Literal:
        return [] if value in inner else [f"{where}: {value!r} is none of {inner}"]
    if is_typeddict(kind):
        return list(_wrong_fields(value, kind, where))
    if kind is Any or kind is object:
        return []
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return [] if isinstance(value, dict) else [f"{where}: {value!r} is no object"]
    if isinstance(origin, type) and (issubclass(origin, Iterable) or hasattr(origin, "__iter__")):
        if not isinstance(value, list):
            return [f"{where}: {value!r} is no list"]
        return [one for number, item in enumerate(value) for one in wrong(item, inner[0], f"{where}[{number}]")]
    if kind is float:
        return [] if isinstance(value, int | float) else [f"{where}: {value!r} is no number"]
    return [] if isinstance(kind, type) and type(value) is kind else [f"{where}: {value!r} is no {kind}"]


def _wrong_fields(value: object, kind: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: {value!r} is no object"
        return
    hints: dict[str, Any] = get_type_hints(kind, include_extras=True)
    required: object = Required
    missing = {name for name, hint in hints.items() if get_origin(hint) is required} - value.keys()
    yield from (f"{where}.{name} is missing" for name in sorted(missing))
    for name, field in value.items():
        if name not in hints:
            yield f"{where}.{name} is not known"
            continue
        yield from wrong(field, hints[name], f"{where}.{name}")


def test_what_is_wrong_is_found() -> None:
    body = json.loads(anthropics(asked(Sampling(), schema=False), "m"))
    assert wrong(body, MessageCreateParamsStreaming) == []
    body["messages"][0]["content"][1]["text"] = 7
    body["odd"] = body.pop("max_tokens")
    assert wrong(body, MessageCreateParamsStreaming) == [
        ".max_tokens is missing", ".messages[0].content[1].text: 7 is no <class 'str'>", ".odd is not known",
    ]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("schema", [False, True])
@pytest.mark.parametrize(
    "can",
    [Abilities(), Abilities(adaptive=True, off=False, max_tokens=64_000), Abilities(adaptive=False, budget=True)],
    ids=["untold", "always", "budget"],
)
def test_anthropics(shape: str, schema: bool, can: Abilities) -> None:
    """Newer models are drawn as they were made for, and their SDK has no fields for it: older ones take them still."""
    reasoning = Reasoning(form="anthropic", items=BLOCKS)
    drawn = [".temperature is not known", ".top_k is not known"] if shape == "sampled" and can.off is not False else []
    for one in (asked(SHAPES[shape], schema=schema), asked(SHAPES[shape], schema=schema, reasoning=reasoning)):
        for refused in (frozenset[str](), frozenset({"tool_choice"})):
            assert wrong(json.loads(anthropics(one, "m", refused, can=can)), MessageCreateParamsStreaming) == drawn


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("schema", [False, True])
def test_openais(shape: str, schema: bool) -> None:
    dialect = Dialect(
        extended_sampling=False, max_tokens_key="max_completion_tokens", cache=("prompt_cache_key",), responses=True
    )
    reasoning = Reasoning(form="responses", items=ITEMS)
    plain, thought = asked(SHAPES[shape], schema=schema), asked(SHAPES[shape], schema=schema, reasoning=reasoning)
    for one in (plain, thought):
        assert wrong(json.loads(responses(one, "m", dialect)), ResponseCreateParamsStreaming) == []
    assert wrong(json.loads(PayloadCache().body(plain, "m", dialect)), CompletionCreateParamsStreaming) == []
