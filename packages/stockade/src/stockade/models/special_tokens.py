"""No text in a conversation becomes one of a model's special tokens: else whoever writes a file writes a turn of the
system. Hosted providers see to it themselves; for the others there are two ways.

A server that renders a chat template and tokenises the whole cannot tell `<|im_end|>` in a file from its own. There one
mark is put behind the first character of each such string, and taken out of all that the model says. The two undo each
other for every text, one that holds the mark included.

To llama.cpp a prompt is tokens. The server renders the model's own template around sentinels that stand for whatever
was said. What lies between them is the template's and tokenised with its special tokens; what they stand for is
tokenised apart, without any (`parse_special` false). One text always gives the same tokens, so the server's cache holds
as the conversation grows.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_
from typing import Any

from stockade.core.messages import Message, ModelAnswer, ModelRequest, Reasoning
from stockade.models.answer_builder import THINKING
from stockade.models.openai_request import Derived, PayloadCache, effort_fields
from stockade.models.replies import as_text, parsed
from stockade.models.transport import Transport

MARK = "\u2060"
"""WORD JOINER: nobody sees it, no tokeniser drops it, and hardly any text has it."""
SPECIAL = re.compile(
    rf"(?:(?<=[<\[\]])(?={MARK})|(?<=<)(?="
    r"\|[^<>\n]{1,64}>"  # ChatML, Llama 3, Phi, Harmony, Granite, GLM, Command R: <|im_start|>; Gemma 4: <|turn>
    r"|[^<>|\s]{1,64}\|>"  # Gemma 4: <turn|>
    r"|\uff5c[^<>\n]{1,64}>"  # DeepSeek: <｜User｜>
    r"|/?(?:s|bos|eos|pad|unk|mask|sop|eop|escape|start_of_turn|end_of_turn|(?:start_of|end_of|image_soft)_\w{1,20}"
    r"|(?:start|end)_function_\w{1,20}|fim_\w{1,20}|file_sep|repo_?name|gh_stars|filename|jupyter_\w{1,20}"
    r"|issue_\w{1,20}|commit_\w{1,20}|empty_output|think|thinking|tools?|tool_\w{1,20}|seed:[\w/]{1,32}"
    r"|(?:reserved|unused|dummy|SPECIAL|extra_id)_?\d{1,4})>"  # Llama 2: <s>; Gemma: <end_of_turn>; Qwen: <tool_call>
    r"|</?SYS>>"  # Llama 2: <<SYS>>
    r")|(?<=\[)(?="
    r"/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|MODEL_SETTINGS|TOOL_\w{1,20}|ARGS|CALL_ID|THINK|PREFIX|MIDDLE|SUFFIX"
    r"|IMG\w{0,20}|AUDIO|BEGIN_AUDIO|[gs]?MASK)\]"  # Mistral: [INST]; GLM: [gMASK]
    r"|\|[^\[\]\n]{1,64}\|\]"  # EXAONE: [|system|]
    r"|e~\[)"  # MiniMax: [e~[
    r"|(?<=\])(?=~!?b[\[\]]))"  # MiniMax: ]~b]
)
"""The place behind the first character of a special token, and of whatever looks marked already."""
_MARKED = re.compile(rf"(?<=[<\[\]]){MARK}")
_Change = Callable[[str], str]
_Tools = tuple[dict[str, Any], ...] | None


def marked(text: str) -> str:
    """`text` without any string that is a special token in a family of models that we know."""
    return SPECIAL.sub(MARK, text)


def unmarked(text: str) -> str:
    """What `marked` was given; in other text, one mark less behind each character that opens a special token."""
    return _MARKED.sub("", text)


def mapped(value: Any, change: _Change) -> Any:
    """A JSON value with `change` made to its texts, keys among them."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): mapped(inner, change) for key, inner in value.items()}
    return [mapped(inner, change) for inner in value] if isinstance(value, (list, tuple)) else value


def _in_json(text: str, change: _Change) -> str:
    """JSON with `change` made to what its texts mean, however they are escaped; to the text itself where it is none."""
    if (value := parsed(text)) is None:
        return change(text)
    changed = mapped(value, change)
    return text if changed == value else json.dumps(changed, ensure_ascii=False)


def _calls(calls: Sequence[dict[str, Any]], change: _Change) -> tuple[dict[str, Any], ...]:
    """With `change` made to their arguments, which are JSON in a text."""

    def one(call: dict[str, Any]) -> dict[str, Any]:
        function = call.get("function")
        if not isinstance(function, dict) or not isinstance(arguments := function.get("arguments"), str):
            return call
        return {**call, "function": {**function, "arguments": _in_json(arguments, change)}}

    return tuple(map(one, calls))


class SpecialTokenGuard:
    """Marks requests and unmarks answers. A message keeps its marked twin: a conversation that grows is read once."""

    def __init__(self) -> None:
        self._marked = Derived(_marked_message)
        self._tools: _Tools = None
        self._tools_sent: _Tools = None

    def request(self, request: ModelRequest) -> ModelRequest:
        """The very same where there is nothing to mark."""
        sent = self._marked.of(request.messages)
        if self._tools is not request.tools:
            changed = tuple(mapped(request.tools or (), marked))
            self._tools, self._tools_sent = request.tools, request.tools if changed == request.tools else changed
        if self._tools_sent is request.tools and all(map(is_, sent, request.messages)):
            return request
        return request.model_copy(update={"messages": tuple(sent), "tools": self._tools_sent})

    def answer(self, answer: ModelAnswer) -> ModelAnswer:
        """What the model meant. A call's name needs nothing: no tool is called like a special token."""
        content, calls = answer.content, answer.tool_calls
        if MARK in content or "\\u2060" in content:
            content = _in_json(content, unmarked) if content.lstrip().startswith("{") else unmarked(content)
        return answer.model_copy(update={"content": content, "tool_calls": _calls(calls, unmarked)})


def _marked_message(message: Message) -> Message:
    content = marked(message.content)
    calls = None if message.tool_calls is None else _calls(message.tool_calls, marked)
    reasoning = _thoughts(message.reasoning, marked)
    if content == message.content and calls == message.tool_calls and reasoning == message.reasoning:
        return message
    return message.model_copy(update={"content": content, "tool_calls": calls, "reasoning": reasoning})


def _thoughts(reasoning: Reasoning | None, change: _Change) -> Reasoning | None:
    """With `change` made to thinking that a template writes into the prompt; what is signed stays as it is."""
    if reasoning is None or reasoning.form != "chat":
        return reasoning
    fields = reasoning.items[0]
    plain = {name: change(text) for name in THINKING if isinstance(text := fields.get(name), str)}
    return reasoning.model_copy(update={"items": ({**fields, **plain},)})


_MAX_KEPT_CHARS = 8 << 20
_PLAIN = re.compile(r"[A-Za-z0-9_.,:;()/ -]{0,120}")
"""What a name, a type or a short sentence looks like: no special token does."""
_MARKUP = re.compile(r"<[^<>\s]{1,48}>|\[/?[A-Z][A-Z_]{1,24}\]")
_BREAK = -1
"""Between the texts of one question to /tokenize, which passes numbers through. No token has it."""
_FIRST, _TEMPLATE, _SAID = "first", "template", "said"
_Part = tuple[str, str]


class TokenPrompt:
    """For one server and model. None from `ready` or `prompt`: this server, or template, cannot be served like this.

    The model is named where the server has several.
    """

    def __init__(self, transport: Transport, model: str) -> None:
        self._transport, self._root = transport, transport.url.removesuffix("/v1")
        self._model = json.dumps(model)
        self._guard, self._guard_tokens = "", ""
        self._markup: re.Pattern[str] | None = None
        self._forget()

    def _forget(self) -> None:
        """Sentinels are not to be guessed: a file that held one could not be told from what it stands for."""
        self._nonce = f"q{secrets.token_hex(12)}x"
        self._sentinel = re.compile(rf'{self._nonce}(\d+)z(\\*)"')
        self._said: list[str] = []
        self._pieces: dict[tuple[int, int], list[_Part]] = {}
        self._numbers: dict[str, int] = {}
        self._payload = PayloadCache(self._hidden)
        self._tools: tuple[object, Any] = (None, None)
        self._tokens: dict[_Part, str] = {}
        self._kept = 0

    async def ready(self, props: Mapping[str, Any]) -> bool:
        """Whether `props`, of /props, are of a server that can do this. Asks it how its tokeniser begins a text."""
        template = as_text(props.get("chat_template"))
        if not template:
            return False
        result = await self._tokenised(["\n", "\nx", "x"], special=False)
        if result is None:
            return False
        line, after_line, alone = result
        if after_line != f"{line},{alone}":
            # SentencePiece puts a blank before a text: behind a line break it does not, and that is taken off again.
            self._guard, self._guard_tokens = "\n", f"{line},"
        tokens_of_markup = {
            *_MARKUP.findall(template),
            as_text(props.get("bos_token")),
            as_text(props.get("eos_token")),
        } - {""}
        # Some special tokens are no control tokens in the file, as Qwen's <tool_call>: `parse_special` is not asked
        # about these. So a text is cut behind the first character of each.
        self._markup = (
            re.compile(rf"(?<=(?=(?:{'|'.join(map(re.escape, sorted(tokens_of_markup)))})).)")
            if tokens_of_markup
            else None
        )
        return True

    async def prompt(self, request: ModelRequest, refused: frozenset[str]) -> tuple[str, str] | None:
        """The prompt as the numbers of a JSON list, and the template's last words, after which the model speaks."""
        if self._kept > _MAX_KEPT_CHARS:
            self._forget()
        messages = self._payload.adapted(request, refused)
        more = effort_fields(request.sampling.effort, "template")
        rest = f",{json.dumps(more)[1:-1]}" if more else ""
        body = f'{{"model":{self._model},"messages":{messages}{self._tools_of(request, refused)}{rest}}}'
        rendered = (await self._transport.tell(f"{self._root}/apply-template", _bytes(body), patient=True)).get(
            "prompt"
        )
        parts = self._parts(rendered) if isinstance(rendered, str) else None
        if not parts or not await self._learn(parts):
            return None
        last = parts[-1][1] if parts[-1][0] == _TEMPLATE else ""
        return ",".join(filter(None, (self._tokens[part] for part in parts))), last

    def _tools_of(self, request: ModelRequest, refused: frozenset[str]) -> str:
        if not request.tools or "tools" in refused:
            return ""
        if self._tools[0] is not request.tools:
            self._tools = request.tools, json.dumps(self._hide_in(list(request.tools)), ensure_ascii=False)
        return f',"tools":{self._tools[1]}'

    def _hide(self, text: str) -> str:
        """A sentinel in place of `text`, between the same blanks: templates trim. The quote tells how it is escaped."""
        reply = text.strip()
        if not reply:
            return text
        if (number := self._numbers.get(reply)) is None:
            number = self._numbers[reply] = len(self._said)
            self._said.append(reply)
            self._kept += len(reply)
        before, _, after = text.partition(reply)
        return f'{before}{self._nonce}{number}z"{after}'

    def _hide_in(self, value: Any) -> Any:
        """A JSON value with sentinels for its texts and keys, but for those that are plain words."""
        return mapped(value, lambda text: text if _PLAIN.fullmatch(text) else self._hide(text))

    def _hidden(self, message: Message) -> Message:
        calls = message.tool_calls and tuple(map(self._hidden_call, message.tool_calls))
        thoughts = _thoughts(message.reasoning, self._hide)
        return message.model_copy(
            update={"content": self._hide(message.content), "tool_calls": calls, "reasoning": thoughts}
        )

    def _hidden_call(self, call: dict[str, Any]) -> dict[str, Any]:
        """Templates read the arguments as JSON, which they have to stay."""
        hidden: dict[str, Any] = self._hide_in(
            {**call, "function": {key: value for key, value in call["function"].items() if key != "arguments"}}
        )
        arguments = self._hide_in(parsed(call["function"]["arguments"]) or {})
        hidden["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False)
        return hidden

    def _parts(self, rendered: str) -> list[_Part] | None:
        """What was rendered, in order; None when the template has done something to a sentinel."""
        result = self._sentinel.split(rendered)
        if any(self._nonce in text for text in result[::3]):
            return None
        parts = [(_FIRST, result[0])]
        for number, slashes, text in zip(result[1::3], result[2::3], result[3::3], strict=True):
            parts += self._said_parts(int(number), len(slashes).bit_length())
            parts += [(_TEMPLATE, text)] if text else []
        return parts

    def _said_parts(self, number: int, depth: int) -> list[_Part]:
        """`depth` 1: within JSON, 2: within JSON within JSON."""
        if (parts := self._pieces.get((number, depth))) is None:
            reply = self._said[number]
            for _ in range(depth):
                reply = json.dumps(reply, ensure_ascii=False)[1:-1]
            pieces = SPECIAL.split(reply)
            if self._markup is not None:
                pieces = [inner for piece in pieces for inner in self._markup.split(piece)]
            parts = self._pieces[number, depth] = [(_SAID, piece) for piece in pieces]
        return parts

    async def _learn(self, parts: Iterable[_Part]) -> bool:
        """The tokens of parts that were not seen before."""
        missing = [part for part in dict.fromkeys(parts) if part not in self._tokens]
        for special in (True, False):
            asked = [part for part in missing if (part[0] != _SAID) == special]
            if asked:
                texts = [text if kind == _FIRST else f"{self._guard}{text}" for kind, text in asked]
                result = await self._tokenised(texts, special=special, begins=asked[0][0] == _FIRST)
                if result is None:
                    return False
                for part, tokens in zip(asked, result, strict=True):
                    self._tokens[part] = tokens if part[0] == _FIRST else tokens.removeprefix(self._guard_tokens)
                    self._kept += len(tokens) + len(part[1])
        return True

    async def _tokenised(self, texts: list[str], *, special: bool, begins: bool = False) -> list[str] | None:
        """The tokens of each text, tokenised by itself. `begins`: the first one is the beginning of a prompt."""
        content = [item for text in texts for item in (text, _BREAK)]
        asked = {"content": content if begins else [_BREAK, *content], "add_special": begins, "parse_special": special}
        body = f'{{"model":{self._model},{json.dumps(asked, ensure_ascii=False)[1:]}'
        reported = (await self._transport.tell(f"{self._root}/tokenize", _bytes(body), patient=True)).get("tokens")
        if not isinstance(reported, list) or reported.count(_BREAK) != len(texts) + (not begins):
            return None
        result = ",".join(map(str, reported)).split(str(_BREAK))
        return [tokens.strip(",") for tokens in (result if begins else result[1:])[: len(texts)]]


def _bytes(body: str) -> bytes:
    """A lone surrogate cannot be sent."""
    return body.encode(errors="replace")
