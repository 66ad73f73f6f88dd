"""Answers as one line, `USE_TOOL: shell, command="ls -la"`, with text around it allowed.

Values in quotes may hold anything: commas, new lines, quotes escaped by a backslash. A value without quotes goes on to
the next parameter *of that tool* or to the end of the line, so `command=echo a, b` is one value.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stockade.core.actions import Action, Answer, Step, ToolCall
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import Message
from stockade.core.tools import Offered, ToolSpec
from stockade.extend.answers import (
    PARAMETERS,
    TextAnswers,
    described,
    make_action,
    names,
    notes,
    parameter_names,
    refused,
    sample,
    short_thought,
    spelled,
    tool_named,
)

_USE = re.compile(r"^[ \t]*(?:[-*>] +)?[*]*(`*)[*]*USE_TOOL([`*]*)[ \t]*:[`*]*[ \t]*(.*)", re.MULTILINE | re.IGNORECASE)
_NAME = re.compile(r"[\"'`*]*([\w.-]+)[\"'`*]*[ \t]*(?:,|$|(?=\n)|(?=[ \t(]))[ \t]*\(?", re.MULTILINE)
_PARAMETER = re.compile(r"[\s,]*[\"']?([A-Za-z_]\w*)[\"']?[ \t]*[=:][ \t]*")
_TORN = re.compile(r"[^\s,.)`*]|[^\n]*?(?:[\"|<>&;$]|(?<!\w)'|'(?!\w))")
"""What follows a value that was ended too early by a quote in it, as prose does not."""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\"}
USAGE = {
    "shell": 'USE_TOOL: shell, command="..."',
    "read_file": 'USE_TOOL: read_file, path="..."',
    "write_file": 'USE_TOOL: write_file, path="...", content="..."',
    "edit_file": 'USE_TOOL: edit_file, path="...", old="text that stands once", new="..."',
    "ask_user": 'USE_TOOL: ask_user, question="..."',
    "sub_task": 'USE_TOOL: sub_task, task="..."',
    "finish": 'USE_TOOL: finish, answer="..."   (when the task is done)',
}


@dataclass(frozen=True, slots=True)
class UseToolAnswers(TextAnswers):
    """One action an answer."""

    name: str = "use-tool"

    def instructions(self, tools: Sequence[Offered]) -> str:
        return (
            'Answer with one short sentence and then one line of these. Inside quotes write \\" for a quote, \\n for a'
            f" new line, \\\\ for a backslash:\n{self.listing(tools)}"
        )

    def listing(self, tools: Sequence[Offered]) -> str:
        return "\n".join(usage_line(tool) for tool in tools)

    def parse(self, text: str, tools: Sequence[Offered]) -> Answer:
        line = _USE.search(text)
        if line is None:
            raise UnreadableAnswer('the answer holds no line such as USE_TOOL: shell, command="ls"')
        name = _NAME.match(text, line.start(3))
        if name is None:
            raise UnreadableAnswer("USE_TOOL: names no tool: write one of " + ", ".join(names(tools)))
        tool = tool_named(name[1], tools)
        around = "" if "`" in line[2] else line[1]
        action = make_action(tool, _values(text, name.end(), tool, tools, around), tools)
        return Answer(thought=short_thought(text[: line.start()]), steps=(Step(action=action),))

    def write(self, answer: Answer) -> Message:
        line = "\n".join(_line(step.action) for step in answer.steps)
        thought = re.sub("use_tool", "USE TOOL", answer.thought or "", flags=re.IGNORECASE)
        return Message(role="assistant", content=f"{thought}\n{line}" if thought else line)


def _line(action: Action) -> str:
    fields = spelled(action)
    tool = fields.pop("tool")
    fields = fields["arguments"] if isinstance(action, ToolCall) else fields
    return ", ".join([f"USE_TOOL: {tool}", *(f"{name}={_written(value)}" for name, value in fields.items())])


def usage_line(tool: Offered) -> str:
    """How a call of the tool is written."""
    if not isinstance(tool, ToolSpec):
        return USAGE[tool] + _aside(notes(PARAMETERS[tool]))
    line = ", ".join([f"USE_TOOL: {tool.name}", *(f"{name}={_written(value)}" for name, value in sample(tool).items())])
    return line + _aside(described(tool) + notes(tool.parameters))


def _aside(text: str) -> str:
    return f"   ({text.removeprefix('; ')})" if text else ""


def _written(value: object) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    for raw, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        value = value.replace(raw, escaped)
    return f'"{value}"'


def _values(text: str, at: int, tool: str, tools: Sequence[Offered], around: str) -> dict[str, Any]:
    """The parameters from `at` on. UnreadableAnswer for a quote without end and for words that are no parameter.

    `around`: the back-ticks before the line, which end it too.
    """
    values: dict[str, Any] = {}
    known = parameter_names(tool, tools)
    while (found := _PARAMETER.match(text, at)) and ("\n" not in text[at : found.start(1)] or values):
        name, start = found[1], found.end()
        if name not in known:
            if values and not ("," in text[at : found.start(1)] and found[0].rstrip().endswith("=")):
                break  # Prose goes on behind the line.
            takes = ", ".join(known) or "none"
            raise refused(f"{tool}: there is no parameter {name[:40]!r}; the parameters are {takes}")
        if name in values:
            raise UnreadableAnswer(f"{tool}: the parameter {name!r} is given twice")
        if text[start : start + 1] in ('"', "'"):
            values[name], at = _quoted(text, start, name)
            if not _PARAMETER.match(text, at) and _TORN.match(text, at):
                raise UnreadableAnswer(f'the value of {name} goes on behind its last quote: inside quotes write \\"')
        else:
            value, at = _unquoted(text, start, known, around)
            values[name] = int(value) if value.isascii() and value.isdigit() and name in ("start", "end") else value
    return values


def _quoted(text: str, start: int, name: str) -> tuple[str, int]:
    """The value in quotes at `start`, and where it ends. In single quotes only quote and backslash are escaped."""
    quote, at = text[start], start + 1
    parts: list[str] = []
    special = re.compile(rf"[\\{quote}]")
    while found := special.search(text, at):
        parts.append(text[at : found.start()])
        if found[0] == quote:
            return "".join(parts), found.end()
        escaped = text[found.end() : found.end() + 1]
        meant = _ESCAPES.get(escaped) if quote == '"' or escaped in "'\\" else None
        parts.append("\\" + escaped if meant is None else meant)
        at = found.end() + 1
    raise UnreadableAnswer(f"the value of {name} has no closing quote")


def _unquoted(text: str, start: int, known: Sequence[str], around: str) -> tuple[str, int]:
    end = text.find("\n", start)
    end = len(text) if end < 0 else end
    following = re.compile(rf",[ \t]*(?:{'|'.join(map(re.escape, known))})[ \t]*=")
    if found := following.search(text, start, end):
        end = found.start()
    return text[start:end].strip().removesuffix(around).rstrip(), end
