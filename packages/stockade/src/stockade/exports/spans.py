"""A run as spans, by OpenTelemetry's GenAI conventions: invoke_agent, and in it chat and execute_tool.

Ids follow from the run's id and the event's place, so that what is sent twice is the same span, and a run that goes on
in another process belongs to the same trace. What models and commands said is left out unless `content` is asked for.
The names are those of semantic-conventions-genai as of September 2026; all of them are still in development.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    AnswerUnderstood,
    ModelAnswered,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
)
from stockade.exports import used
from stockade.exports.atif import text_of

OPERATION, PROVIDER, CONVERSATION = "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.conversation.id"
AGENT, AGENT_VERSION = "gen_ai.agent.name", "gen_ai.agent.version"
REQUEST_MODEL, RESPONSE_MODEL, FINISH = (
    "gen_ai.request.model",
    "gen_ai.response.model",
    "gen_ai.response.finish_reasons",
)
INPUT_TOKENS, OUTPUT_TOKENS = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
TOOL, CALL_ID, TOOL_TYPE = "gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.tool.type"
ARGUMENTS, RESULT = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result"
INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
ERROR = "error.type"

Value = str | int | float | bool | tuple[str, ...]


@dataclass(slots=True)
class Span:
    """Times are UNIX seconds; ids are OpenTelemetry's, as numbers. `error` names what went wrong, None is nothing.

    `follows` is the root of the part of the run before this one.
    """

    name: str
    trace: int
    span: int
    parent: int | None
    start: float
    end: float
    client: bool = False
    attributes: dict[str, Value] = field(default_factory=dict)
    error: str | None = None
    follows: int | None = None


def spans(events: Sequence[RunEvent], first: int = 0, *, content: bool = False) -> list[Span]:
    """Those of the parts of a run that end after its event number `first`, parents before children."""
    started = events[0]
    assert isinstance(started, RunStarted)
    made: list[Span] = []
    edges = [0, *(place for place, event in enumerate(events) if isinstance(event, RunResumed)), len(events)]
    before: int | None = None
    for begin, end in pairwise(edges):
        if begin == end:
            continue
        root = _root(started, events, begin, end, content=content)
        root.follows, before = before, root.span
        if end > first:
            made += [root, *_inside(started, events, begin, end, root, content=content)]
    return made


def trace_id(run_id: str) -> int:
    return int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:16]) or 1


def _span_id(run_id: str, place: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{run_id}:{place}".encode()).digest()[:8]) or 1


def _root(started: RunStarted, events: Sequence[RunEvent], begin: int, end: int, *, content: bool) -> Span:
    first, ending = events[begin], next((e for e in events[begin:end] if isinstance(e, RunFinished)), None)
    model = first.model if isinstance(first, RunStarted | RunResumed) else started.model
    usage = used(events[begin:end])
    attributes: dict[str, Value] = {
        OPERATION: "invoke_agent",
        PROVIDER: model.partition("/")[0],
        CONVERSATION: started.run_id,
        AGENT: started.bot,
        AGENT_VERSION: started.version,
        REQUEST_MODEL: model.partition("/")[2],
        INPUT_TOKENS: usage.prompt_tokens,
        OUTPUT_TOKENS: usage.completion_tokens,
        "stockade.sandbox": started.sandbox,
    }
    if ending is not None:
        attributes |= {"stockade.status": ending.status, "stockade.reason": ending.reason}
    if content:
        task = first.task if isinstance(first, RunResumed) and first.task else started.task
        attributes[INPUT] = _message("user", task)
        if isinstance(first, RunStarted | RunResumed) and first.images:
            attributes["stockade.images"] = tuple(one.name for one in first.images)
    last = ending or events[end - 1]
    return Span(
        name=f"invoke_agent {started.bot}",
        trace=trace_id(started.run_id),
        span=_span_id(started.run_id, begin),
        parent=None,
        start=first.at,
        end=max(first.at, last.at),
        attributes=attributes,
        error=ending.reason if ending is not None and ending.status == "failed" else None,
    )


def _inside(
    started: RunStarted, events: Sequence[RunEvent], begin: int, end: int, root: Span, *, content: bool
) -> list[Span]:
    made: list[Span] = []
    begun: tuple[int, ActionStarted] | None = None
    for place in range(begin, end):
        event = events[place]
        made_id = _span_id(started.run_id, place)
        match event:
            case ModelAnswered():
                made.append(_chat(event, root, made_id, content=content))
            case AnswerUnderstood():
                begun = None
            case ActionStarted():
                begun = place, event
            case ActionFinished() if begun is not None:
                made.append(_tool(begun[1], event, root, _span_id(started.run_id, begun[0]), content=content))
            case _:
                pass
    return made


def _chat(event: ModelAnswered, root: Span, span: int, *, content: bool) -> Span:
    answer = event.answer
    attributes: dict[str, Value] = {
        OPERATION: "chat",
        PROVIDER: root.attributes[PROVIDER],
        CONVERSATION: root.attributes[CONVERSATION],
        REQUEST_MODEL: root.attributes[REQUEST_MODEL],
        RESPONSE_MODEL: answer.model or root.attributes[REQUEST_MODEL],
        FINISH: (answer.finish_reason,),
        INPUT_TOKENS: answer.usage.prompt_tokens,
        OUTPUT_TOKENS: answer.usage.completion_tokens,
        CACHED_TOKENS: answer.usage.cached_tokens,
    }
    if content:
        attributes[OUTPUT] = _message("assistant", answer.content)
    name = f"chat {root.attributes[REQUEST_MODEL]}"
    begun = max(root.start, event.at - answer.duration_s)
    return Span(name, root.trace, span, root.span, begun, max(begun, event.at), client=True, attributes=attributes)


def _tool(begun: ActionStarted, event: ActionFinished, root: Span, span: int, *, content: bool) -> Span:
    action, observation = begun.action.action, event.observation
    attributes: dict[str, Value] = {
        OPERATION: "execute_tool",
        CONVERSATION: root.attributes[CONVERSATION],
        TOOL: action.tool,
        CALL_ID: f"{begun.turn}-{begun.step}",
        TOOL_TYPE: "function",
    }
    if content:
        attributes[ARGUMENTS] = json.dumps(action.model_dump(exclude={"tool"}, exclude_none=True, mode="json"))
        attributes[RESULT] = text_of(observation)
    error = observation.kind if observation.kind in ("failed", "refused", "unknown") else None
    name = f"execute_tool {action.tool}"
    return Span(name, root.trace, span, root.span, begun.at, event.at, attributes=attributes, error=error)


def _message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])
