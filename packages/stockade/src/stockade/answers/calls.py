"""Calls in every shape models are known to give them: native, in `<tool_call>`, in a fence, or as bare JSON."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from stockade.answers.action_codec import make_action, short_thought, tool_named
from stockade.answers.lenient import HALF, SURROGATES, first_value, objects, only_object, row, whole
from stockade.answers.tool_specs import spelled
from stockade.core.actions import Action, Answer, Finish, InvalidCall, Step
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import Message, ModelAnswer, ModelRequest
from stockade.core.tools import Offered

EARLY_FINISH = "this finish was not done: look at what came of the actions before it first, then finish by itself"
_THOUGHTS = ("thought", "thoughts")
_MARK = "<tool_call>"
_NAMED = re.compile(r'"(?:name|tool|function|action)"\s*:\s*"([^"\n]{1,64})"')


def tool_and_arguments(found: dict[str, Any]) -> tuple[object, dict[str, Any]]:
    """Where small models put them: in `action`, beside it, as `name` and `arguments` of a function call, or as AutoGPT
    has it, in `command` or `use_tool`.
    """
    inner = found.get("action", found.get("function", found))
    if inner is found:
        inner = next((found[key] for key in ("use_tool", "command") if isinstance(found.get(key), dict)), found)
    if isinstance(inner, str):
        return inner, _arguments(found, "action" if "action" in found else "function")
    if not isinstance(inner, dict):
        raise UnreadableAnswer('the action is not an object: write {"action": {"tool": "shell", "command": "..."}}')
    naming = "tool" if "tool" in inner else "name"
    tool = inner.get(naming)
    if tool is None and isinstance(inner.get("command"), str):
        tool = "shell"
    return tool, _arguments(inner, naming)


def _arguments(inner: dict[str, Any], naming: str) -> dict[str, Any]:
    """What stands under `arguments`, or else beside the key that names the tool."""
    beside = {key: value for key, value in inner.items() if key not in (naming, *_THOUGHTS)}
    arguments = inner.get("arguments", inner.get("parameters", inner.get("args", beside)))
    if isinstance(arguments, str):
        arguments = only_object(arguments) if arguments.strip() else {}
    if not isinstance(arguments, dict):
        raise UnreadableAnswer("the arguments of the action are not an object")
    return arguments


def action_in(found: dict[str, Any], tools: Sequence[Offered]) -> Action:
    """The action of a JSON object. UnreadableAnswer when it holds none."""
    return make_action(*tool_and_arguments(found), tools)


def native_steps(answer: ModelAnswer, tools: Sequence[Offered]) -> tuple[Step, ...]:
    """A step for every real tool call; one that cannot be done is answered with its problem, beside those that can.

    UnreadableAnswer where none can. A `finish` behind other calls is not done: the model has not seen yet what came of
    them.
    """
    read = [_call(call, tools) for call in answer.tool_calls]
    steps: list[Step] = []
    for number, (action, problem) in enumerate(read, 1):
        written = answer.tool_calls[number - 1].get("function")
        if isinstance(action, Finish) and steps:
            problem = EARLY_FINISH
        if action is None or problem:
            steps.append(Step(action=invalid(written, problem, number)))
        else:
            steps.append(Step(action=action, again=sum(step.action == action for step in steps)))
    return done_or_refused(steps)


def invalid(written: object, problem: str, number: int) -> InvalidCall:
    """A call of an answer with several that is not done."""
    name, arguments = (written.get("name"), written.get("arguments")) if isinstance(written, dict) else (None, None)
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or written, ensure_ascii=False)
    name = name if isinstance(name, str) else ""
    return InvalidCall(name=name, written=SURROGATES.sub("\ufffd", text), problem=problem, number=number)


def done_or_refused(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps, if any of them can be done; else UnreadableAnswer with the first problem."""
    first = next((step.action for step in steps if isinstance(step.action, InvalidCall)), None)
    if first is not None and all(isinstance(step.action, InvalidCall) for step in steps):
        raise UnreadableAnswer(first.problem if len(steps) == 1 else f"action {first.number}: {first.problem}")
    return tuple(steps)


def _call(call: dict[str, Any], tools: Sequence[Offered]) -> tuple[Action | None, str]:
    """Its action, or what is wrong with it."""
    function = call.get("function")
    if not isinstance(function, dict):
        return None, "the tool call names no function"
    if SURROGATES.search(json.dumps(function, ensure_ascii=False)):
        return None, HALF
    try:
        return action_in({"name": function.get("name"), "arguments": function.get("arguments") or {}}, tools), ""
    except UnreadableAnswer as error:
        return None, error.message


def native_answer(answer: ModelAnswer, text: str, tools: Sequence[Offered]) -> Answer | None:
    """The answer of a model that made real calls, whatever the protocol; None where there are none."""
    if not answer.tool_calls:
        return None
    thought = short_thought(text)
    summary = short_thought(answer.reasoning.told) if answer.reasoning and not thought else None
    return Answer(thought=thought, summary=summary, steps=native_steps(answer, tools))


def salvaged(text: str, tools: Sequence[Offered]) -> tuple[str, Action] | None:
    """A call written as text: the words around it, and its action. None when there is nothing like a call.

    UnreadableAnswer when a text that is a call and nothing else is none that can be done. In the midst of prose only
    the call of a tool that there is counts: an answer may be about JSON.
    """
    alone = _MARK in text.partition("{")[0] or text.lstrip("` \t\r\njson").startswith(("{", "["))
    problem: UnreadableAnswer | None = None
    for found in objects(text):
        if not _is_call(found, tools, alone=alone):
            continue
        try:
            action = action_in(found, tools)
        except UnreadableAnswer as error:
            problem = problem or (error if alone else None)
            continue
        return _before(text).strip() or _thought(found), action
    if problem is None and alone and any(_offered(name, tools) for name in _NAMED.findall(text)):
        first_value(text, "{")
        raise UnreadableAnswer("the call cannot be read: write its arguments as JSON")
    if problem is not None:
        raise problem
    return None


def salvaged_row(answer: ModelAnswer, text: str, tools: Sequence[Offered]) -> tuple[Step, ...]:
    """Several calls written as text, one directly behind the other, as steps; () where there are no two."""
    calls = list(takewhile(lambda found: _is_call(found, tools, alone=False), row(text)))
    if len(calls) < 2:
        return ()
    made = [dict(zip(("name", "arguments"), tool_and_arguments(found), strict=True)) for found in calls]
    return native_steps(answer.model_copy(update={"tool_calls": tuple({"function": one} for one in made)}), tools)


def _is_call(found: dict[str, Any], tools: Sequence[Offered], *, alone: bool) -> bool:
    inner = found.get("action", found.get("function", found))
    if inner is None:
        return alone
    if not isinstance(inner, dict):
        return _offered(inner, tools)
    name = inner.get("tool", inner.get("name"))
    formed = inner is not found or bool(inner.keys() & {"arguments", "parameters"})
    return _offered(name, tools) or (alone and (formed or (name is None and "command" in inner)))


def _offered(name: object, tools: Sequence[Offered]) -> bool:
    try:
        return isinstance(name, str) and bool(tool_named(name, tools))
    except UnreadableAnswer:
        return False


def _thought(found: dict[str, Any]) -> str:
    thought = found.get("thought")
    return thought if isinstance(thought, str) else ""


def _before(text: str) -> str:
    """The prose before the first sign of a call."""
    places = [place for mark in (_MARK, "```", "{") if (place := text.find(mark)) >= 0]
    return text[: min(places, default=0)]


def as_json(action: Action) -> str:
    """An action as the object that `action_in` reads."""
    return json.dumps(spelled(action), ensure_ascii=False)


class TextAnswers(ABC):
    """An answer protocol of calls in a text of its own form: implements core.ports.AnswerProtocol but for `name`,
    `instructions`, `listing`, `write` and `parse`. Real tool calls are read whatever the protocol.
    """

    @abstractmethod
    def parse(self, text: str, tools: Sequence[Offered]) -> Answer:
        """The answer that stands in a text; UnreadableAnswer with what is wrong with it, for the model."""

    def constrain(self, request: ModelRequest, tools: Sequence[Offered]) -> ModelRequest:
        return request

    def read(self, answer: ModelAnswer, tools: Sequence[Offered]) -> Answer:
        text = whole(answer)
        native = native_answer(answer, text, tools)
        return self.parse(text, tools) if native is None else native

    def observed(self, step: Step, text: str) -> Message:
        return Message(role="user", content=text)
