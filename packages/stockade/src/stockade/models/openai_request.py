"""The body of a request, made so that turn 200 costs what turn 1 cost, for templates that lack roles too.

A conversation only grows, and messages are immutable: each is serialised once and recognised by identity afterwards.
Without a system role the system prompt is the head of the first user message. Without tools their definitions stand in
the system prompt, calls are written as text in the form that answers/native_tools.py reads back, and results are user
messages. Neighbours of one role are joined then, since such templates want roles to alternate.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

from stockade.core.data import Data
from stockade.core.messages import Message, ModelRequest, Sampling, joined
from stockade.core.settings import Effort

T = TypeVar("T")


class Derived(Generic[T]):
    """What was made of each message of a conversation that only grows, once for each: by identity, for messages are
    immutable.
    """

    def __init__(self, make: Callable[[Message], T]) -> None:
        self._make = make
        self._given: list[Message] = []
        self._made: list[T] = []

    def of(self, messages: tuple[Message, ...]) -> list[T]:
        """In the order of `messages`; the list is ours, and grows."""
        same = len(self._given)
        if self._given != list(messages[:same]):  # the same objects are compared at once
            pairs = zip(self._given, messages, strict=False)
            same = next((number for number, (old, new) in enumerate(pairs) if old is not new), min(same, len(messages)))
            del self._given[same:], self._made[same:]
        self._given.extend(messages[same:])
        self._made.extend(map(self._make, messages[same:]))
        return self._made


class RoleAdapter:
    """Adapts a conversation that only grows; messages that were adapted before are the same objects again."""

    def __init__(self) -> None:
        self._lacks: frozenset[str] = frozenset()
        self._tools: Sequence[dict[str, Any]] | None = None
        self._seen: list[Message] = []
        self._sent: list[Message] = []

    def messages(
        self, messages: tuple[Message, ...], refused: frozenset[str], tools: Sequence[dict[str, Any]] | None = None
    ) -> tuple[Message, ...]:
        """`messages` as the template can take them; the very same where it can take everything."""
        if not (lacks := refused & {"system", "tools"}):
            return messages
        offered = tools if "tools" in lacks else None
        same = len(self._seen) <= len(messages) and all(
            old is new for old, new in zip(self._seen, messages, strict=False)
        )
        if not same or (lacks, offered) != (self._lacks, self._tools):
            self._seen, self._sent = [], []
            self._lacks, self._tools = lacks, offered
        for message in messages[len(self._seen) :]:
            self._add(message)
        self._seen = list(messages)
        return tuple(self._sent)

    def _add(self, message: Message) -> None:
        role, content = message.role, message.content
        if not self._sent and self._tools:
            content = f"{content}\n\n{described(self._tools)}" if role == "system" else content
        if role in self._lacks or (role == "tool" and "tools" in self._lacks):
            role = "user"
        calls = message.tool_calls
        if calls and "tools" in self._lacks:
            content = "\n".join([content, *map(_spelled, calls)] if content.strip() else map(_spelled, calls))
            calls = None
        last = self._sent[-1] if self._sent else None
        if last is not None and last.role == role and role != "tool" and not last.tool_calls and not calls:
            self._sent[-1] = joined(last, message.model_copy(update={"content": content}))
        elif (role, content, calls) == (message.role, message.content, message.tool_calls):
            self._sent.append(message)
        else:
            known = message.tool_call_id if role == "tool" else None
            changed = {"role": role, "content": content, "tool_calls": calls, "tool_call_id": known}
            self._sent.append(message.model_copy(update=changed))


def described(tools: Sequence[dict[str, Any]]) -> str:
    """Tools in words, for a model whose template has no place for them."""
    lines = [json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools]
    return "\n".join([
        "These are the tools, each as JSON:", *lines,
        'Call one by writing exactly: <tool_call>{"name": "NAME", "arguments": {...}}</tool_call>',
    ])  # fmt: skip


def _spelled(call: dict[str, Any]) -> str:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return f'<tool_call>{{"name": {json.dumps(function.get("name"))}, "arguments": {text or "{}"}}}</tool_call>'


DRY_TOKENS = 12
"""What may come again without a penalty under DRY."""


CacheField = Literal["prompt_cache_key", "session_id", "cache_control"]


class Dialect(Data):
    """Where OpenAI-compatible servers differ, as data.

    `extended_sampling`: top_k, min_p and the like are understood. `llama_cpp`: cache_prompt, id_slot and all of its
    sampling are. `server` tells its window and counts tokens in its own way. `refused` are parameters that this model
    does not take, and `system` or `tools` where its template has no such role. `effort` is how a reasoning effort is
    said; `responses`: by /v1/responses, where the user says nothing else; `thinks_always`: each message of the model
    has to have its thinking, an empty one where it had none. `charges`: its `usage.cost` is what it took, in USD.
    `cache`: how it wants to be told that a conversation goes on, to read only what is new (see cache_fields).
    `repeat_penalty_key` is the name of the penalty, which is llama.cpp's where no other is known.
    """

    extended_sampling: bool = True
    llama_cpp: bool = False
    max_tokens_key: str = "max_tokens"
    server: Literal["", "ollama", "lm-studio", "vllm"] = ""
    effort: Literal["reasoning_effort", "reasoning", "template", "thinking"] = "reasoning_effort"
    responses: bool = False
    thinks_always: bool = False
    charges: bool = False
    cache: tuple[CacheField, ...] = ()
    repeat_penalty_key: str = "repeat_penalty"
    refused: frozenset[str] = frozenset()

    def without(self, feature: str) -> "Dialect | None":
        """What is left when the server would do without `feature`; None when it is left out already."""
        update: dict[str, Any] = {"refused": self.refused | {feature}}
        if feature == "max_tokens" and self.max_tokens_key == "max_tokens":
            update = {"max_tokens_key": "max_completion_tokens"}
        changed = self.model_copy(update=update)
        return None if changed == self else changed


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def message_json(message: Message, dialect: "Dialect | None" = None) -> str:
    """One message as OpenAI spells it. `content` is always there: some servers fail on null."""
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.images:
        shown = ({"type": "image_url", "image_url": {"url": image.url}} for image in message.images)
        fields["content"] = [{"type": "text", "text": message.content}, *shown]
    if message.tool_calls:
        fields["tool_calls"] = message.tool_calls
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    if message.role == "assistant":
        fields |= _thought(message, dialect or Dialect())
    return _dumps(fields)


def _thought(message: Message, dialect: "Dialect") -> dict[str, Any]:
    """The thinking of an answer, in the fields that it came in; and what its provider put beside each of its calls."""
    reasoning, calls = message.reasoning, message.tool_calls or ()
    fields = dict(reasoning.items[0]) if reasoning and reasoning.form == "chat" else {}
    beside = fields.pop("tool_calls", ())
    if dialect.thinks_always:
        fields.setdefault("reasoning_content", "")
    fields = {name: value for name, value in fields.items() if name not in dialect.refused}
    if beside and len(beside) == len(calls):
        fields["tool_calls"] = [{**call, **one} for call, one in zip(calls, beside, strict=True)]
    return fields


class PayloadCache:
    """The serialised messages of the last request. `prepare` is done to each message, once."""

    def __init__(self, prepare: Callable[[Message], Message] | None = None) -> None:
        self._prepare, self._dialect = prepare, Dialect()
        self._begin()
        self._adapted = RoleAdapter()

    def _begin(self) -> None:
        prepare, dialect = self._prepare, self._dialect
        self._json = Derived(lambda message: message_json(prepare(message) if prepare else message, dialect))

    def messages(self, messages: tuple[Message, ...]) -> str:
        """The JSON list of these messages; only those not seen in the last call are serialised."""
        return f"[{','.join(self._json.of(messages))}]"

    def adapted(self, request: ModelRequest, refused: frozenset[str]) -> str:
        """The same of a request, in the roles that the model's template has."""
        return self.messages(self._adapted.messages(request.messages, refused, request.tools))

    def body(
        self, request: ModelRequest, model: str, dialect: Dialect, slot: int | None = None, *, afresh: bool = False
    ) -> bytes:
        """The whole request, streaming asked for. `afresh`: what the server has in its cache must not count."""
        rest = _options(request, dialect, slot, afresh)
        if dialect != self._dialect:  # which fields a message has
            self._dialect = dialect
            self._begin()
        messages = self.adapted(request, dialect.refused)
        text = f'{{"model":{_dumps(model)},"messages":{messages},{_dumps(rest)[1:]}'
        # A lone surrogate cannot be sent as UTF-8; "?" instead of a crash deep in the HTTP client.
        return text.encode(errors="replace")


def completion_body(
    prompt: str, constraint: Mapping[str, Any], request: ModelRequest, model: str, dialect: Dialect,
    slot: int | None = None, *, afresh: bool = False,
) -> bytes:  # fmt: skip
    """The same for a prompt of tokens, the numbers of a JSON list. `constraint` stands for schema and tools."""
    plain = request.model_copy(update={"schema_": None, "tools": None})
    rest = {**_options(plain, dialect, slot, afresh), **constraint}
    return f'{{"model":{_dumps(model)},"prompt":[{prompt}],{_dumps(rest)[1:]}'.encode(errors="replace")


def _dry(sampling: Sampling) -> Mapping[str, float | None]:
    """DRY as llama.cpp spells it. What is no longer than a file's name may come again."""
    strength = sampling.dry_multiplier
    return {"dry_multiplier": strength} | ({"dry_allowed_length": DRY_TOKENS} if strength else {})


def effort_fields(effort: Effort | None, form: str) -> dict[str, Any]:
    """A reasoning effort as a server wants it said. `template`: for chat templates, of which some know a level and some
    only on and off; `reasoning`: OpenRouter; `thinking`: DeepSeek, which knows no level below high.
    """
    if effort is None:
        return {}
    on = effort != "none"
    level = {"reasoning_effort": effort} if on else {}
    if form == "reasoning":
        return {"reasoning": {"effort": effort}}
    if form == "template":
        return {**level, "chat_template_kwargs": {"enable_thinking": on, **level}}
    if form == "thinking":
        return {"thinking": {"type": "enabled" if on else "disabled"}, **level}
    return {"reasoning_effort": effort}


def cache_fields(messages: Sequence[Message], names: Sequence[CacheField]) -> dict[str, Any]:
    """What makes a provider go on from what it has read of a conversation. `prompt_cache_key`, and `session_id` of
    OpenRouter, which keeps to one provider by it: a key of the conversation, the same in each question
    (https://developers.openai.com/api/docs/guides/prompt-caching). `cache_control`: a mark at its end, which OpenRouter
    sets for Claude (https://openrouter.ai/docs/guides/best-practices/prompt-caching).
    """
    key = conversation_key(messages) if names else ""
    return {name: {"type": "ephemeral"} if name == "cache_control" else key for name in names}


def conversation_key(messages: Sequence[Message]) -> str:
    """32 hex digits of what a conversation begins with, up to the first words of the user: the same for all of it, also
    when it is gone on with later.
    """
    digest = hashlib.sha256()
    for message in messages:
        digest.update(f"{message.role}\0{message.content}\0".encode(errors="replace"))
        if message.role == "user":
            break
    return digest.hexdigest()[:32]


def _options(request: ModelRequest, dialect: Dialect, slot: int | None, afresh: bool) -> Mapping[str, Any]:
    sampling = request.sampling
    fields: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    plain = {"temperature": sampling.temperature, "top_p": sampling.top_p, "seed": sampling.seed,
             "presence_penalty": sampling.presence_penalty, "frequency_penalty": sampling.frequency_penalty,
             dialect.max_tokens_key: sampling.max_tokens}  # fmt: skip
    extended = {"top_k": sampling.top_k, "min_p": sampling.min_p, dialect.repeat_penalty_key: sampling.repeat_penalty}
    llama = {"typical_p": sampling.typical_p, "repeat_last_n": sampling.repeat_last_n,
             "mirostat": sampling.mirostat_mode, "mirostat_tau": sampling.mirostat_tau,
             "mirostat_eta": sampling.mirostat_eta, **_dry(sampling)}  # fmt: skip
    fields |= effort_fields(sampling.effort, dialect.effort) | cache_fields(request.messages, dialect.cache)
    known = plain | (extended if dialect.extended_sampling else {}) | (llama if dialect.llama_cpp else {})
    fields |= {name: value for name, value in known.items() if value is not None}
    if request.stop:
        fields["stop"] = request.stop
    if request.schema_ is not None:
        schema = {"name": "answer", "strict": True, "schema": request.schema_}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if request.tools:
        # tool_choice stays at its default: "required" makes llama.cpp write newlines until the limit.
        fields["tools"] = request.tools
        if request.schema_ is not None and "response_format" not in dialect.refused:
            fields["tool_choice"] = "none"  # the answer alone; in the prompt the tools stand as before
    if dialect.llama_cpp:
        if sampling.grammar:  # beside it a schema would be refused
            fields.pop("response_format", None)
            fields["grammar"] = sampling.grammar
        fields["cache_prompt"] = not afresh
        fields["timings_per_token"] = True  # so that an answer that is not heard to its end is counted
        if slot is not None:
            fields["id_slot"] = slot
    return {name: value for name, value in fields.items() if name not in dialect.refused}
