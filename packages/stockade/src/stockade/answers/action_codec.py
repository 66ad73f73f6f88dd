"""What all answer protocols share: the built-in tools, their schemas, and the way from a name to an action; and which
protocol suits a model.
"""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError

from stockade.answers.tool_specs import (
    NAMES,
    call_schema,
    described,
    got,
    make_call,
    names,
    notes,
    plain_schema,
    refused,
    spec_named,
    usage,
)
from stockade.core.actions import Action, AskUser, EditFile, Finish, ReadFile, Shell, SubTask, WriteFile
from stockade.core.errors import UnreadableAnswer, did_you_mean
from stockade.core.messages import ModelInfo
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
    "read_file": "Read a text file, or its lines start to end; at most 2,000 lines a call.",
    "write_file": "Write a whole file.",
    "edit_file": "Replace `old`, which must stand in the file exactly once, by `new`.",
    "ask_user": "Ask the person a question.",
    "sub_task": "Give a task to a helper in the same sandbox.",
    "finish": "End the task with the answer for the person, when it is done.",
}
MAX_THOUGHT = 2000


def _schema(required: str, **optional: dict[str, Any]) -> dict[str, Any]:
    needed = required.split()
    properties = {name: {"type": "string"} for name in needed} | optional
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


PARAMETERS: dict[str, dict[str, Any]] = {
    "shell": _schema("command", timeout={"type": "number", "minimum": 0, "description": "seconds"}),
    "read_file": _schema(
        "path",
        start={"type": "integer", "minimum": 1, "description": "first line"},
        end={"type": "integer", "minimum": 1, "description": "last line"},
    ),
    "write_file": _schema("path content"),
    "edit_file": _schema(
        "path old new", replace_all={"type": "boolean", "description": "at every place where old stands"}
    ),
    "ask_user": _schema("question"),
    "sub_task": _schema(
        "task",
        max_turns={"type": "integer", "minimum": 1},
        name={"type": "string"},
        model={"type": "string", "enum": ["smart", "fast"]},
        in_parallel={"type": "array", "items": {"type": "string"}},
    ),
    "finish": _schema("answer", gave_up={"type": "boolean", "description": "true when the task cannot be done"}),
}
"""The built-in actions as a model sees them."""
_BESIDE = ("thought", "thoughts", "comment", "reason", "reasoning", "explanation", "description")
"""What models write beside the parameters of an action: about it, not of it."""
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
    "shell": {"cmd": "command", "code": "command", "timeout_s": "timeout"},
    "read_file": {"file": "path", "filename": "path"},
    "write_file": {"file": "path", "filename": "path", "text": "content"},
    "edit_file": {"file": "path", "filename": "path", "old_str": "old", "new_str": "new"},
    "finish": {"result": "answer", "message": "answer", "text": "answer", "final": "answer"},
}


def action_schema(tool: Offered) -> dict[str, Any]:
    """A small JSON schema of one tool's action, `tool` included; small enough for a grammar."""
    return call_schema(tool) if isinstance(tool, ToolSpec) else _built_in_schema(tool)


@cache
def _built_in_schema(tool: str) -> dict[str, Any]:
    plain = plain_schema(PARAMETERS[tool])
    plain["properties"] = {"tool": {"const": tool}} | plain["properties"]
    return plain | {"required": ["tool", *plain["required"]]}


def parameters(tool: Offered) -> dict[str, Any]:
    """The JSON schema of one tool's arguments, the optional ones included."""
    return tool.parameters if isinstance(tool, ToolSpec) else PARAMETERS[tool]


def parameter_names(tool: str, tools: Sequence[Offered]) -> tuple[str, ...]:
    """What a tool takes, as it is spelled and as small models spell it."""
    if (spec := spec_named(tool, tools)) is not None:
        return tuple(spec.properties)
    return (*PARAMETERS[tool]["properties"], *_ARGUMENT_ALIASES.get(tool, {}))


def usage_of(tool: Offered) -> str:
    """One line of a prompt: what the tool is for, how its action is written as JSON, and its other parameters."""
    return usage(tool) if isinstance(tool, ToolSpec) else USAGE[tool] + notes(PARAMETERS[tool])


def further(tools: Sequence[Offered], where: str) -> str:
    """The parameters of built-in actions for which a spelling has no place, and `where` they can be said."""
    optional = [(tool, notes(PARAMETERS[tool], "").removeprefix("; : ")) for tool in tools if isinstance(tool, str)]
    listed = "; ".join(f"{tool}: {told}" for tool, told in optional if told)
    return f'\nOptional parameters, {where} {{"tool": "...", all of its parameters}}: {listed}' if listed else ""


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
    hint = did_you_mean(name.lower(), offered, "the tools are " + ", ".join(offered))
    raise UnreadableAnswer(f"there is no tool {name[:60]!r}: {hint}")


def make_action(tool: object, arguments: dict[str, Any], tools: Sequence[Offered]) -> Action:
    """The action of a tool's name and its arguments. UnreadableAnswer, naming the field, when they do not fit."""
    if not isinstance(tool, str) or not tool.strip():
        raise UnreadableAnswer("the action has no tool: name one of " + ", ".join(names(tools)))
    name = tool_named(tool.strip(), tools)
    if (spec := spec_named(name, tools)) is not None:
        return make_call(spec, arguments)
    renamed = _ARGUMENT_ALIASES.get(name, {})
    if name == "finish" and isinstance(arguments.get("reason"), str) and not ({"answer", *renamed} & arguments.keys()):
        renamed = {"reason": "answer"}  # AutoGPT's
    given = {renamed.get(key, key): value for key, value in arguments.items() if value is not None and key != "tool"}
    return _built_in(name, {key: value for key, value in given.items() if key not in _BESIDE})


def _built_in(name: str, given: dict[str, Any]) -> Action:
    """Its fields are checked by its model, which says the same as PARAMETERS and costs no import."""
    known = PARAMETERS[name]["properties"]
    if strange := [key for key in given if key not in known]:
        takes = ", ".join(known)
        raise refused(f"{name}: there is no parameter {got(strange[0])}; the parameters are {takes}")
    if name == "shell" and not given.get("timeout", True):
        del given["timeout"]  # 0: no limit but the usual one
    if name == "finish" and not isinstance(given.get("answer", ""), str):
        given["answer"] = json.dumps(given["answer"], ensure_ascii=False)
    fields = {name: field for field, name in NAMES.items()}
    try:
        action = BUILT_IN[name].model_validate({"tool": name, **{fields.get(key, key): given[key] for key in given}})
    except ValidationError as error:
        raise refused(f"{name}: {_in_words(error)}") from None
    if isinstance(action, Shell) and not action.command.strip():
        raise UnreadableAnswer("shell: the command is empty")
    return action  # type: ignore[return-value]


def _in_words(error: ValidationError) -> str:
    """The first two problems, each with its parameter, what is wanted and what was got."""
    problems = []
    for one in error.errors()[:2]:
        name = ".".join(NAMES.get(str(part), str(part)) for part in one["loc"])
        missing = one["type"] == "missing"
        problems.append(f"{name}: missing" if missing else f"{name}: {one['msg'].lower()}, got {got(one['input'])}")
    return "; ".join(problems)


AUTO = "auto"


def select_protocol(info: ModelInfo) -> str:
    """The name of the protocol for a model: the strictest one that it keeps.

    `native_tools` must mean that a call was seen to come back: the word of a template is not enough.
    """
    if info.native_tools:
        return "native"
    return "json" if info.enforces_schema else "fenced"
