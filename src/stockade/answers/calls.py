"""Calls in every shape models are known to give them: native, in `<tool_call>`, in a fence, or as bare JSON."""

import json
from collections.abc import Sequence
from typing import Any

from stockade.answers.lenient import first_value, objects
from stockade.answers.spelling import make_action
from stockade.answers.tool_specs import spelled
from stockade.core.actions import Action, Finish, Step
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import ModelAnswer
from stockade.core.tools import Offered

MAX_CALLS = 16
_THOUGHTS = ("thought", "thoughts")
_MARK = "<tool_call>"


def tool_and_arguments(found: dict[str, Any]) -> tuple[object, dict[str, Any]]:
    """Where small models put them: in `action`, beside it, or as `name` and `arguments` of a function call."""
    inner = found.get("action", found.get("function", found))
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
    arguments = inner.get("arguments", inner.get("parameters", beside))
    if isinstance(arguments, str):
        arguments = first_value(arguments, "{") if arguments.strip() else {}
    if not isinstance(arguments, dict):
        raise UnreadableAnswer("the arguments of the action are not an object")
    return arguments


def action_in(found: dict[str, Any], tools: Sequence[Offered]) -> Action:
    """The action of a JSON object. UnreadableAnswer when it holds none."""
    return make_action(*tool_and_arguments(found), tools)


def native_steps(answer: ModelAnswer, tools: Sequence[Offered]) -> tuple[Step, ...]:
    """The steps of real tool calls, as far as they can be read; the first one must be.

    A call that is the very same as an earlier one counts once. A `finish` behind other calls is left out: the model
    has not seen yet what came of them.
    """
    steps: list[Step] = []
    for call in answer.tool_calls[:MAX_CALLS]:
        try:
            step = Step(action=_of_call(call, tools))
        except UnreadableAnswer:
            if not steps:
                raise
            break
        if steps and isinstance(step.action, Finish):
            break
        if step not in steps:
            steps.append(step)
        if isinstance(step.action, Finish):
            break
    return tuple(steps)


def _of_call(call: dict[str, Any], tools: Sequence[Offered]) -> Action:
    function = call.get("function")
    if not isinstance(function, dict):
        raise UnreadableAnswer("the tool call names no function")
    return action_in({"name": function.get("name"), "arguments": function.get("arguments") or {}}, tools)


def salvaged(text: str, tools: Sequence[Offered]) -> tuple[str, Action] | None:
    """A call written as text: the words around it, and its action. None when there is nothing like a call.

    UnreadableAnswer when what looks like a call is none that can be done.
    """
    start = text.find(_MARK)
    searched = text[start + len(_MARK) :] if start >= 0 else text
    problem: UnreadableAnswer | None = None
    for found in objects(searched):
        if not _looks_like_call(found):
            continue
        try:
            action = action_in(found, tools)
        except UnreadableAnswer as error:
            problem = problem or error
            continue
        return _before(text).strip() or _thought(found), action
    if problem is not None:
        raise problem
    return None


def _looks_like_call(found: dict[str, Any]) -> bool:
    return bool(found.keys() & {"action", "tool", "name", "function", "command"})


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
