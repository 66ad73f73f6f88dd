"""What all answer protocols share: the built-in tools, their schemas, and the way from a name to an action."""

import difflib
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from stockade.answers.lenient import with_escapes, without_margin
from stockade.answers.tool_specs import call_schema, described, make_call, names, spec_named, usage
from stockade.core.actions import Action, AskUser, EditFile, Finish, ReadFile, Shell, SubTask, WriteFile
from stockade.core.errors import UnreadableAnswer
from stockade.core.tools import Offered, ToolSpec

BUILT_IN: dict[str, type[BaseModel]] = {
    "shell": Shell,
    "read_file": ReadFile,
    "write_file": WriteFile,
    "edit_file": EditFile,
    "ask_user": AskUser,
    "sub_task": SubTask,
    "finish": Finish,
}
USAGE: dict[str, str] = {
    "shell": 'shell: run a bash command: {"tool": "shell", "command": "..."}',
    "read_file": 'read_file: {"tool": "read_file", "path": "..."}',
    "write_file": 'write_file: {"tool": "write_file", "path": "...", "content": "..."}',
    "edit_file": 'edit_file: {"tool": "edit_file", "path": "...", "old": "text that stands once", "new": "..."}',
    "ask_user": 'ask_user: {"tool": "ask_user", "question": "..."}',
    "sub_task": 'sub_task: {"tool": "sub_task", "task": "..."}',
    "finish": 'finish: when the task is done: {"tool": "finish", "answer": "..."}',
}
DESCRIPTIONS: dict[str, str] = {
    "shell": "Run a bash command.",
    "read_file": "Read a text file, or its lines start to end (from 1).",
    "write_file": "Write a whole file.",
    "edit_file": "Replace `old`, which must stand in the file exactly once, by `new`.",
    "ask_user": "Ask the person a question.",
    "sub_task": "Give a task to a helper in the same sandbox.",
    "finish": "End the task with the answer for the person, when it is done.",
}
MAX_THOUGHT = 2000
_SHOWN = {
    "shell": ("command",),
    "read_file": ("path",),
    "write_file": ("path", "content"),
    "edit_file": ("path", "old", "new"),
    "ask_user": ("question",),
    "sub_task": ("task",),
    "finish": ("answer",),
}
_OPTIONAL: dict[str, dict[str, str]] = {
    "shell": {"timeout_s": "number"},
    "read_file": {"start": "integer", "end": "integer"},
    "sub_task": {"max_turns": "integer"},
    "finish": {"gave_up": "boolean"},
}
_ALIASES = {
    "bash": "shell",
    "sh": "shell",
    "run": "shell",
    "terminal": "shell",
    "execute": "shell",
    "done": "finish",
    "final": "finish",
    "final_answer": "finish",
    "answer": "finish",
    "cat": "read_file",
    "create_file": "write_file",
}
_ARGUMENT_ALIASES = {
    "shell": {"cmd": "command", "code": "command", "timeout": "timeout_s"},
    "read_file": {"file": "path", "filename": "path"},
    "write_file": {"file": "path", "filename": "path", "text": "content"},
    "edit_file": {"file": "path", "filename": "path", "old_str": "old", "new_str": "new"},
    "finish": {"result": "answer", "message": "answer", "text": "answer", "final": "answer"},
}


def action_schema(tool: Offered) -> dict[str, Any]:
    """A small JSON schema of one tool's action, `tool` included; small enough for a grammar."""
    if isinstance(tool, ToolSpec):
        return call_schema(tool)
    names = _SHOWN[tool]
    properties: dict[str, Any] = {"tool": {"const": tool}}
    properties |= {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": properties, "required": ["tool", *names], "additionalProperties": False}


def parameters(tool: Offered) -> dict[str, Any]:
    """The JSON schema of one tool's arguments, the optional ones included."""
    if isinstance(tool, ToolSpec):
        return tool.parameters
    names = _SHOWN[tool]
    properties = {name: {"type": "string"} for name in names}
    properties |= {name: {"type": kind} for name, kind in _OPTIONAL.get(tool, {}).items()}
    return {"type": "object", "properties": properties, "required": list(names), "additionalProperties": False}


def parameter_names(tool: str, tools: Sequence[Offered]) -> tuple[str, ...]:
    """What a tool takes, as it is spelled and as small models spell it."""
    if (spec := spec_named(tool, tools)) is not None:
        return tuple(spec.properties)
    return (*_SHOWN.get(tool, ()), *_OPTIONAL.get(tool, {}), *_ARGUMENT_ALIASES.get(tool, {}))


def usage_of(tool: Offered) -> str:
    """One line of a prompt: what the tool is for, and how its action is written as JSON."""
    return usage(tool) if isinstance(tool, ToolSpec) else USAGE[tool]


def description_of(tool: Offered) -> str:
    return described(tool) if isinstance(tool, ToolSpec) else DESCRIPTIONS[tool]


def short_thought(text: str) -> str | None:
    """Words around an action as they go on record; None when there are none."""
    return text.strip()[:MAX_THOUGHT].rstrip() or None


def tool_named(name: str, tools: Sequence[Offered]) -> str:
    """The offered tool of that name or of a usual alias. UnreadableAnswer with the nearest one when there is none."""
    offered = names(tools)
    if name in offered:
        return name
    name = _ALIASES.get(name.lower(), name)
    if name in offered:
        return name
    if same := [other for other in offered if other.lower() == name.lower()]:
        return same[0]
    near = difflib.get_close_matches(name.lower(), offered, n=1)
    hint = f"did you mean {near[0]}?" if near else "the tools are " + ", ".join(offered)
    raise UnreadableAnswer(f"there is no tool {name[:60]!r}: {hint}")


def make_action(tool: object, arguments: dict[str, Any], tools: Sequence[Offered]) -> Action:
    """The action of a tool's name and its arguments. UnreadableAnswer, naming the field, when they do not fit."""
    if not isinstance(tool, str) or not tool.strip():
        raise UnreadableAnswer("the action has no tool: name one of " + ", ".join(names(tools)))
    name = tool_named(tool.strip(), tools)
    if (spec := spec_named(name, tools)) is not None:
        return make_call(spec, arguments)
    kind = BUILT_IN[name]
    renamed = _ARGUMENT_ALIASES.get(name, {})
    fields = {renamed.get(key, key): value for key, value in arguments.items() if value is not None and key != "tool"}
    fields = {key: value for key, value in fields.items() if key in kind.model_fields and not _unset(name, key, value)}
    if name == "finish" and not isinstance(fields.get("answer", ""), str):
        fields["answer"] = str(fields["answer"])
    try:
        action = kind.model_validate({"tool": name, **fields})
    except ValidationError as error:
        raise UnreadableAnswer(f"{name}: {_in_words(error)}") from None
    if isinstance(action, Shell) and not action.command.strip():
        raise UnreadableAnswer("shell: the command is empty")
    if isinstance(action, Shell):
        action = action.model_copy(update={"command": with_escapes(action.command)})
    if isinstance(action, WriteFile):
        action = action.model_copy(update={"content": without_margin(action.content)})
    return action  # type: ignore[return-value]


def _unset(tool: str, key: str, value: object) -> bool:
    """A bound, or a line of a file, that is 0 or less: models write that for none."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and value <= 0
    return key in _OPTIONAL.get(tool, {}) and number


def _in_words(error: ValidationError) -> str:
    """The first two problems, as `field: what is wrong`."""
    problems = [f"{'.'.join(map(str, item['loc']))}: {item['msg'].lower()}" for item in error.errors()[:2]]
    return "; ".join(problems)
