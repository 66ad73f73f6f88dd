"""The answer to a prompt of tokens: a text in which thinking and calls still have to be found.

What /v1/chat/completions would do for the families whose calls are JSON. A model with calls of another form is seen to
make none (probe.py), and is asked for JSON.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import anyio
import anyio.to_thread

from stockade.core.messages import ModelAnswer, Reasoning
from stockade.models.answer_builder import AnswerBuilder
from stockade.models.pricing import Price
from stockade.models.replies import as_dict, as_text
from stockade.models.transport import Transport
from stockade.paths import write_whole
from stockade_sandbox.processes import own_folder

PRESERVED = (
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|tool_call|>", "<|tool_calls|>",
    "<|python_tag|>", "<think>", "</think>", "[THINK]", "[/THINK]", "<function_calls>",
)  # fmt: skip
"""Special tokens that are to be heard: a server keeps control tokens to itself."""
_ENDS = {"<think>": "</think>", "<thinking>": "</thinking>", "[THINK]": "[/THINK]"}
_LEFT_OPEN = re.compile(r"(<think>|<thinking>|\[THINK\])\s*$")
_CALL = re.compile(
    r"<tool_call>|<\|tool_calls?\|>|\[TOOL_CALLS\]|<\|python_tag\|>|<function_calls>|functools(?=\[)", re.IGNORECASE
)
_NAMED = re.compile(r"\s*([\w.-]{1,64})\s*(?:\[CALL_ID\][^\[]*)?(?:\[ARGS\])?\s*(?=\{)")
_FUNCTION = re.compile(r"\s*<function=([\w.-]{1,64})>\n?(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^<>\n]{1,64})>\n?(.*?)\n?</parameter>", re.DOTALL)
_BETWEEN = re.compile(r"[\s\],;\[]*(?:</tool_call>|<\|/tool_call\|>|</function_calls>)?[\s\],;\[]*")
_BEFORE_CALL = re.compile(r"[^<\[{]*")
_FENCE = re.compile(r"```json(.*)```", re.DOTALL)
_DECODER = json.JSONDecoder()
_MOST_HELD = 1000
"""Characters: of blanks without an end no thinking follows, and one that says them over and over is to be ended."""


class CompletionBuilder(AnswerBuilder):
    """`last` are the template's last words, which may open a part of thinking. `tools` are those that were offered.

    `fenced`: JSON was asked for, which the grammar lets a model put into a fence.
    """

    def __init__(
        self, price: Price | None, last: str, *, tools: Sequence[Mapping[str, Any]] | None = None, fenced: bool = False
    ) -> None:
        super().__init__(price)
        opened = _LEFT_OPEN.search(last)
        self._end = _ENDS[opened[1]] if opened else ""
        self._begun, self._trim, self._held = bool(opened), False, ""
        self._tools, self._fenced, self._in_call = tools, fenced, False

    def add(self, piece: dict[str, Any]) -> str:
        """See AnswerBuilder. Nothing of a call is text to show."""
        choices = piece.get("choices")
        choice = as_dict(choices[0]) if isinstance(choices, list) and choices else {}
        thought, spoken = self._sorted(as_text(choice.get("text")), last=bool(choice.get("finish_reason")))
        delta = {"reasoning_content": thought, "content": spoken}
        text = super().add({**piece, "choices": [{**choice, "delta": delta}]} if choice else piece)
        if not self._tools:
            return text
        shown = "" if self._in_call else _BEFORE_CALL.match(text)[0]  # type: ignore[index] # it matches always
        self._in_call = self._in_call or shown != text
        return shown

    def _sorted(self, text: str, *, last: bool) -> tuple[str, str]:
        """Thinking and speech in the next piece; what may be the half of a tag is held back."""
        text, self._held = self._held + text, ""
        if not self._begun:
            start = text.lstrip()
            may_begin = not start or any(tag.startswith(start) for tag in _ENDS)
            if may_begin and not last and len(text) < _MOST_HELD:
                self._held = text
                return "", ""
            self._begun = True
            for tag, end in _ENDS.items():
                if start.startswith(tag):
                    self._end, text = end, start[len(tag) :]
        thought = ""
        if self._end:
            thought, ended, text = text.partition(self._end)
            if not ended:
                cut = len(thought) if last else max(0, len(thought) - len(self._end) + 1)
                self._held = thought[cut:]
                return thought[:cut], ""
            self._end, self._trim = "", True
        if self._trim:
            text = text.lstrip()
            self._trim = not text
        return thought, text

    def answer(self, duration_s: float) -> ModelAnswer:
        """See AnswerBuilder."""
        answer = super().answer(duration_s)
        if self._fenced and (fence := _FENCE.fullmatch(answer.content.strip())):
            return answer.model_copy(update={"content": fence[1].strip()})
        spoken, calls = calls_in(answer.content, self._tools) if self._tools else ("", [])
        if not calls:
            return answer
        numbered = tuple(
            {"id": f"call_{number}", "type": "function", "function": call} for number, call in enumerate(calls, 1)
        )
        thinking = "".join(self._thinking.get("reasoning_content", ()))
        reasoning = Reasoning(form="chat", items=({"reasoning_content": thinking},)) if thinking else None
        update = {"content": spoken, "tool_calls": numbered, "finish_reason": "tool_calls", "reasoning": reasoning}
        return answer.model_copy(update=update)


def calls_in(text: str, tools: Sequence[Mapping[str, Any]] = ()) -> tuple[str, list[dict[str, str]]]:
    """The words before the first call, and the calls, each a name and its arguments as JSON.

    Hermes and Qwen (`<tool_call>{...}`, also with `<function=NAME>`), Mistral (`[TOOL_CALLS][...]`, `NAME[ARGS]{...}`),
    Llama 3 (the object alone, `parameters`), Granite and Phi (`<|tool_call|>[...]`). `tools` say what is text.
    """
    mark = _CALL.search(text)
    start = mark.end() if mark else len(text) - len(text.lstrip())
    if mark is None and text[start : start + 1] != "{":
        return text, []
    calls: list[dict[str, str]] = []
    while (result := _call_at(text, start, tools)) is not None:
        call, start = result
        calls.append(call)
        again = _CALL.match(text, start)
        start = again.end() if again else start
    return text[: mark.start()].rstrip() if mark and calls else ("" if calls else text), calls


def _call_at(text: str, start: int, tools: Sequence[Mapping[str, Any]]) -> tuple[dict[str, str], int] | None:
    """The call that begins here, and where what comes after it begins."""
    start = _end_of(_BETWEEN.match(text, start), start)
    if match := _FUNCTION.match(text, start):
        texts = _texts_of(match[1], tools)
        whole = "".join(match[2].rpartition("</parameter>")[:2])  # so that each search for an end finds one
        args = {key: value if key in texts else _value(value) for key, value in _PARAMETER.findall(whole)}
        return {"name": match[1], "arguments": json.dumps(args, ensure_ascii=False)}, _past(text, match.end())
    named = _NAMED.match(text, start)
    try:
        value, end = _DECODER.raw_decode(text, named.end() if named else start)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    name = named[1] if named else value.get("name")
    arguments: Any = value if named else value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        return ({"name": str(name), "arguments": arguments}, _past(text, end)) if isinstance(name, str) else None
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}, _past(text, end)


def _past(text: str, start: int) -> int:
    return _end_of(_BETWEEN.match(text, start), start)


def _end_of(found: re.Match[str] | None, otherwise: int) -> int:
    return found.end() if found else otherwise


def _texts_of(name: str, tools: Sequence[Mapping[str, Any]]) -> set[str]:
    """The parameters of a tool that are texts: Qwen3-Coder writes those bare, and all else as JSON."""
    functions = (as_dict(tool.get("function")) for tool in tools)
    function = next((function for function in functions if function.get("name") == name), {})
    properties = as_dict(as_dict(function.get("parameters")).get("properties"))
    return {key for key, schema in properties.items() if as_dict(schema).get("type") == "string"}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_ROOT = re.compile(r'^root ::= ("(?:[^"\\]|\\.)*") ', re.MULTILINE)


class SchemaGrammars:
    """For one server and model. Asked once a schema and machine, which costs a prompt of some thirty tokens."""

    def __init__(self, transport: Transport, props: Mapping[str, Any], model: str, slot: int | None) -> None:
        self._transport = transport
        self._asked: dict[str, Any] = {"model": model} | ({} if slot is None else {"id_slot": slot})
        self._same = [props.get("build_info"), props.get("chat_template")]
        self._known: dict[str, str] = {}

    async def fields(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """What holds an answer to `schema`, in the body of a completion."""
        text = json.dumps(schema)
        if text not in self._known:
            self._known[text] = await self._grammar(schema, text)
        return {"grammar": grammar} if (grammar := self._known[text]) else {"json_schema": schema}

    async def _grammar(self, schema: Mapping[str, Any], text: str) -> str:
        digest = hashlib.sha256(json.dumps([*self._same, text]).encode()).hexdigest()
        file = own_folder("cache") / "grammars" / digest[:32]
        with suppress(OSError, ValueError):
            return await anyio.Path(file).read_text()
        form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
        asked = {**self._asked, "messages": [{"role": "user", "content": "."}], "max_tokens": 1, "temperature": 0,
                 "verbose": True, "response_format": form}  # fmt: skip
        reported = await self._transport.tell(
            f"{self._transport.url}/chat/completions", json.dumps(asked).encode(), patient=True
        )
        settings = as_dict(as_dict(reported.get("__verbose")).get("generation_settings"))
        grammar = _without_prompt(as_text(settings.get("grammar")), as_text(settings.get("generation_prompt")))
        if grammar:
            with suppress(OSError):  # a cache
                await anyio.to_thread.run_sync(write_whole, file, grammar)
        return grammar


def _without_prompt(grammar: str, prompt: str) -> str:
    """The server's grammars begin with the template's last words, which stand in our prompt; empty for another kind."""
    match = _ROOT.search(grammar)
    with suppress(ValueError):
        if prompt and match and json.loads(match[1]) == prompt:
            return f"{grammar[: match.start()]}root ::= {grammar[match.end() :]}"
    return "" if prompt or not grammar.partition("root ::=")[1] else grammar
