"""Pieces of a streaming answer put together, whatever the server's habits; repetition and endless thinking noticed.

Seen in the wild: tool calls without `index`, `id` and `name` repeated in every piece, arguments as an object, `null`
content, content as a list of parts, finish_reason "stop" beside tool calls, a usage piece without choices, thinking as
`reasoning_content` (llama.cpp, vLLM, DeepSeek) and as `reasoning` (Ollama, OpenRouter), arguments as an object that
every piece has whole, a `refusal` in place of content, an end amid a sentence because of what a filter saw in it.

Small models say one thing over and over at temperature 0, and nobody should wait for the rest of a thousand tokens of
it. Models that think before they answer may meet the bound of an answer amid that; then they are given more room.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from stockade.core.errors import AnswerHeldBack, ModelFailed, ModelUnavailable
from stockade.core.messages import REPEATS, ModelAnswer, ModelRequest, Reasoning, Usage
from stockade.core.text import one_line, spoken_part
from stockade.models.pricing import FREE, Price
from stockade.models.replies import Refused, as_amount, as_count, as_dict, as_items, as_text, parsed

LEAST_CHARS = 1200
"""As much is said of nothing but repetition before it counts: a line of dashes or a row of zeros is none."""
LEAST_TIMES = 12
MAX_PERIOD = 250
_LOOK_EVERY = 200


class Repeats:
    """Of one stream of text, thinking or arguments of a call."""

    def __init__(self) -> None:
        self._tail, self._unseen = "", 0

    def hear(self, text: str) -> bool:
        """Takes what is new. Whether all that was said lately is one thing, again and again."""
        self._tail = (self._tail + text)[-max(LEAST_CHARS, LEAST_TIMES * MAX_PERIOD) :]
        self._unseen += len(text)
        if self._unseen < _LOOK_EVERY or len(self._tail) < LEAST_CHARS:
            return False
        self._unseen = 0
        return any(_has_period(self._tail, length) for length in range(1, MAX_PERIOD + 1))


def _has_period(text: str, length: int) -> bool:
    """Whether its end repeats every `length` characters, for long enough."""
    needed = max(LEAST_CHARS, LEAST_TIMES * length)
    if len(text) < needed or text[-1] != text[-1 - length]:
        return False
    end = text[-needed:]
    return end[length:] == end[:-length]


TIMES = 4
LEAST_TOKENS = 1024
"""What a model that thinks is given at least: a short question may take it a page of thoughts."""
_CHARS_A_TOKEN = 3
_MARGIN_TOKENS = 16


class StillThinking(ModelUnavailable):
    """The answer was cut by its bound before a word of it was said. `cut` is what came, its usage included; `thoughts`
    counts the pieces of thinking beside its content.
    """

    def __init__(self, cut: ModelAnswer, thoughts: int) -> None:
        tokens = cut.usage.completion_tokens or thoughts + len(cut.content) // _CHARS_A_TOKEN
        super().__init__(
            f"the model was still thinking after {tokens} tokens",
            "give it more with --answer-tokens N, in a window that holds them",
        )
        self.cut, self.cost = cut, cut.usage.cost


class Patience:
    """Asks once more, with a larger bound, where a model was cut amid its thinking; from then on with that at once.

    Within the window, and only where there is a bound of ours.
    """

    def __init__(self) -> None:
        self._thinks = False

    async def ask(
        self, request: ModelRequest, window: int | None, once: Callable[[ModelRequest], Awaitable[ModelAnswer]]
    ) -> ModelAnswer:
        """`once` asks a request. Raises StillThinking when more is not enough or not to be had."""
        if self._thinks:
            return await once(_wider(request, window) or request)
        try:
            return await once(request)
        except StillThinking as error:
            first = error
        wider = _wider(request, window, first.cut.usage.prompt_tokens)
        if wider is None:
            raise first
        self._thinks = True
        try:
            return _added(first.cut, await once(wider))
        except Refused as error:
            raise first from error
        except ModelFailed as error:
            error.cost += first.cost
            raise


def _wider(request: ModelRequest, window: int | None, prompt_tokens: int = 0) -> ModelRequest | None:
    bound = request.sampling.max_tokens
    if bound is None:
        return None
    larger = max(TIMES * bound, LEAST_TOKENS)
    if window is not None:
        prompt = prompt_tokens or sum(len(message.content) for message in request.messages) // _CHARS_A_TOKEN
        larger = min(larger, window - prompt - _MARGIN_TOKENS)
    if larger <= bound:
        return None
    return request.model_copy(update={"sampling": request.sampling.model_copy(update={"max_tokens": larger})})


def _added(first: ModelAnswer, answer: ModelAnswer) -> ModelAnswer:
    """With what the first one took. The prompt is the same and counts once: it tells how full the window is."""
    usage = answer.usage.model_copy(
        update={
            name: getattr(first.usage, name) + getattr(answer.usage, name)
            for name in ("completion_tokens", "thinking_tokens", "cost", "thinking_cost")
        }
    )
    return answer.model_copy(update={"usage": usage, "duration_s": first.duration_s + answer.duration_s})


THINKING = ("reasoning_content", "reasoning")
_GROWING = {"reasoning.text": "text", "reasoning.summary": "summary"}
"""What of OpenRouter's `reasoning_details` comes in pieces: https://openrouter.ai/docs/use-cases/reasoning-tokens."""
_HELD_BACK = {"content_filter", "content_filtered", "guardrail_intervened", "refusal", "sensitive",
              "safety", "recitation", "blocklist", "prohibited_content", "spii"}  # fmt: skip
"""How OpenAI, Bedrock, Anthropic, Zhipu and Google (the last five) say that nothing more comes, or nothing at all."""


class _Call:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.by_object = False
        self.extra: dict[str, Any] = {}

    @property
    def whole(self) -> bool:
        """True when the arguments so far are a JSON object: a further piece cannot belong to them."""
        return isinstance(parsed("".join(self.arguments)), dict)

    def argue(self, text: str, *, by_object: bool) -> int:
        """More of the arguments, or all of them anew where they come as an object; by how much they grew."""
        before = 0
        if by_object or self.by_object:
            before = sum(map(len, self.arguments))
            self.arguments.clear()
        self.arguments.append(text)
        self.by_object = by_object
        return len(text) - before if by_object else len(text)


class AnswerBuilder:
    """`add` takes each decoded piece (or a whole answer); `size` counts the characters of it. `thoughts` counts the
    pieces of thinking, which is kept for its provider alone: with calls, it wants to have it back.

    An answer that costs something is heard to its end, whatever it says: what it costs is told behind it. `charges`: in
    USD by the server itself, whose word goes before the table's. `why_not`: what it says in place of an answer.
    """

    def __init__(self, price: Price | None = None, *, charges: bool = False) -> None:
        self._price, self._charges = price, charges
        self._repeats = Repeats() if not charges and (price is None or price == FREE) else None
        self._pieces, self._heard, self.why_not = 0, "", ""
        self.enough = False
        self.size = 0
        self.thoughts = 0
        self.finish_reason: str | None = None
        self._text: list[str] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._thinking: dict[str, list[str]] = {}
        self._details: list[dict[str, Any]] = []
        self._usage: dict[str, Any] = {}
        self._timings: dict[str, Any] = {}
        self._model = ""

    @property
    def ended(self) -> bool:
        """The server has said why it stopped."""
        return self.finish_reason is not None

    @property
    def empty(self) -> bool:
        return not self._text and not self._calls

    def error_in(self, piece: dict[str, Any]) -> object:
        """What the server says has gone wrong, where this piece says that."""
        return piece.get("error")

    def add(self, piece: dict[str, Any]) -> str:
        """Take one piece; gives the text that is new in it."""
        self._usage = as_dict(piece.get("usage")) or self._usage
        self._timings = as_dict(piece.get("timings")) or self._timings
        self._model = as_text(piece.get("model")) or self._model
        choices = piece.get("choices")
        choice = as_dict(choices[0]) if isinstance(choices, list) and choices else {}
        if reason := as_text(choice.get("finish_reason")):
            self.finish_reason = reason
        delta = as_dict(choice.get("delta")) or as_dict(choice.get("message"))
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            self._add_call(as_dict(call))
        self._think(delta)
        text, declined = _flatten(delta.get("content")), as_text(delta.get("refusal"))
        if declined:
            self.why_not += declined
            self.size += len(declined)
        if text:
            self._text.append(text)
            self.size += len(text)
            self._heard += text
        self._listen()
        return text

    def _think(self, delta: dict[str, Any]) -> None:
        """Some servers tell one thought under two names."""
        told = {name: text for name in THINKING if (text := as_text(delta.get(name)))}
        for name, text in told.items():
            self._thinking.setdefault(name, []).append(text)
        if thought := next(iter(told.values()), ""):
            self.thoughts += 1
            self.size += len(thought)
            self._heard += thought
        details = delta.get("reasoning_details")
        for detail in details if isinstance(details, list) else ():
            self.size += len(str(detail))
            _add_detail(self._details, as_dict(detail))

    def _listen(self) -> None:
        heard, self._heard = self._heard, ""
        self._pieces += bool(heard)
        if self._repeats is not None and not self.ended and self._repeats.hear(heard):
            self.finish_reason, self.enough = REPEATS, True

    def _add_call(self, piece: dict[str, Any]) -> None:
        function = as_dict(piece.get("function"))
        call_id, name = as_text(piece.get("id")), as_text(function.get("name"))
        args = function.get("arguments")
        by_object = args is not None and not isinstance(args, str)
        arguments = as_text(json.dumps(args, ensure_ascii=False) if by_object else args)
        call = self._call_of(piece.get("index"), call_id, name, arguments if by_object else None)
        call.id = call.id or call_id
        call.name = call.name or name
        if extra := as_dict(piece.get("extra_content")):
            self.size += len(str(extra))
            call.extra = extra
        if arguments:
            self.size += call.argue(arguments, by_object=by_object)
            self._heard += "" if by_object else arguments

    def _call_of(self, index: object, call_id: str, name: str, whole: str | None) -> _Call:
        """`whole` are its arguments where they came as an object: then the same again is the same call."""
        if isinstance(index, int):
            call = self._by_index.get(index)
            # Old Ollama gives every call index 0; a second id together with a name is a second call.
            if call is None or (call_id and name and call.id and call_id != call.id):
                call = self._by_index[index] = self._new()
            return call
        last = self._calls[-1] if self._calls else None
        if last is None or (call_id and call_id != last.id):
            return self._new()
        named = not call_id and name and last.name
        if named and (name != last.name or (last.whole and "".join(last.arguments) != whole)):
            return self._new()
        return last

    def _new(self) -> _Call:
        call = _Call()
        self._calls.append(call)
        self.size += 64
        return call

    def answer(self, duration_s: float) -> ModelAnswer:
        """All of it as one answer. Raises as `checked` does."""
        calls = tuple(
            {
                "id": call.id or f"call_{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": "".join(call.arguments) or "{}"},
            }
            for number, call in enumerate(self._calls, 1)
        )
        answer = ModelAnswer(
            content="".join(self._text), tool_calls=calls, finish_reason=self.finish_reason or "stop",
            usage=self._counted(), duration_s=duration_s, model=self._model, reasoning=self._reasoning(),
        )  # fmt: skip
        return checked(answer, self.thoughts, self.why_not)

    def _reasoning(self) -> Reasoning | None:
        """The fields of the message that go back with it; nothing without a call, as no provider wants it then."""
        if not self._calls:
            return None
        fields: dict[str, Any] = {name: "".join(texts) for name, texts in self._thinking.items()}
        if self._details:  # which hold the text too
            fields = {"reasoning_details": self._details}
        if any(call.extra for call in self._calls):
            fields["tool_calls"] = [{"extra_content": call.extra} if call.extra else {} for call in self._calls]
        items = as_items([fields]) if fields else ()
        return Reasoning(form="chat", items=items) if items else None

    def _counted(self) -> Usage:
        usage_of_server, timings = self._usage, self._timings
        details = as_dict(usage_of_server.get("prompt_tokens_details"))
        cached = (
            as_count(details.get("cached_tokens"))
            or as_count(usage_of_server.get("prompt_cache_hit_tokens"))  # DeepSeek
            or as_count(timings.get("cache_n"))
        )
        prompt = as_count(usage_of_server.get("prompt_tokens")) or as_count(timings.get("prompt_n")) + cached
        completion = (
            as_count(usage_of_server.get("completion_tokens"))
            or as_count(timings.get("predicted_n"))
            or (self._pieces if self.enough else 0)
        )
        parts = as_dict(usage_of_server.get("completion_tokens_details"))
        # Where nobody counts them, a piece is about a token; of a model that costs something nothing is guessed.
        thinking = as_count(parts.get("reasoning_tokens")) or (self.thoughts if self._repeats is not None else 0)
        usage = Usage(
            prompt_tokens=prompt,
            cached_tokens=min(cached, prompt),
            completion_tokens=completion,
            thinking_tokens=min(thinking, completion),
        )
        written = min(as_count(details.get("cache_write_tokens")), prompt - usage.cached_tokens)
        priced = self._price.priced(usage, written) if self._price else usage
        cost = as_amount(usage_of_server.get("cost")) if self._charges else None
        return priced if cost is None else priced.model_copy(update={"cost": cost})


def _add_detail(details: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    """A text in pieces of one `index` grows; a signature may come behind it, alone. All else stands for itself."""
    last, growing = details[-1] if details else {}, _GROWING.get(as_text(piece.get("type")), "")
    same = last.get("type") == piece.get("type") and last.get("index") == piece.get("index") is not None
    if not (growing and same):
        details.append(dict(piece))
        return
    text = as_text(last.get(growing)) + as_text(piece.get(growing))
    last |= {name: value for name, value in piece.items() if value is not None}
    last[growing] = text


def checked(answer: ModelAnswer, thoughts: int, why_not: str = "") -> ModelAnswer:
    """The answer; StillThinking where it was cut before it began, AnswerHeldBack where it is none: what came of one is
    not acted on.

    `thoughts` are the pieces of thinking beside it, `why_not` what was said in place of an answer.
    """
    if (by_filter := answer.finish_reason.lower() in _HELD_BACK) or why_not:
        reason = f" ({answer.finish_reason[:40]})" if by_filter else ""
        said = f": {one_line(why_not, 300)}" if why_not else ""
        error = AnswerHeldBack(f"the answer was held back by the model's provider{reason}{said}")
        error.cost = answer.usage.cost
        raise error
    if answer.finish_reason == "length" and not answer.tool_calls:
        text, blank = spoken_part(answer.content), answer.content and answer.content.isspace()
        # Without a word of it what it thinks is kept back by its server; line breaks to the limit are no thinking.
        if text is None or (not text.strip() and (thoughts or not blank)):
            raise StillThinking(answer, thoughts)
    return answer


def _flatten(content: object) -> str:
    """Text of a string, or of a list of parts."""
    if isinstance(content, list):
        return "".join(as_text(as_dict(part).get("text")) for part in content)
    return as_text(content)
