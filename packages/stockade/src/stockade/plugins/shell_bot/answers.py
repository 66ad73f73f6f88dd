"""The Shell bot's answers: a JSON list of `{"command"}`, `{"file", "content"}` and `{"file"}`, each with a `comment`.

The schema lets strings hold quotes and back-ticks: a command without them is not worth much.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stockade.core.actions import (
    Action,
    Answer,
    AskUser,
    EditFile,
    Finish,
    InvalidCall,
    ReadFile,
    Shell,
    Step,
    SubTask,
    WriteFile,
)
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import Message, ModelRequest
from stockade.core.tools import Offered, ToolSpec, name_of
from stockade.extend.answers import (
    EARLY_FINISH,
    PARAMETERS,
    TextAnswers,
    action_in,
    call_schema,
    described,
    done_or_refused,
    first_value,
    invalid,
    make_action,
    names,
    notes,
    plain_schema,
    sample,
    spelled,
)

MAX_ACTIONS = 16
"""That a server's grammar lets a model write; however many there are, each is answered."""
MAX_COMMENT_CHARS = 240
_FORMS: dict[str, tuple[str, ...]] = {
    "shell": ("command",),
    "read_file": ("file",),
    "write_file": ("file", "content"),
    "edit_file": ("file", "old", "new"),
    "ask_user": ("question",),
    "sub_task": ("task",),
    "finish": ("answer",),
}
"""What tells the actions apart; the one with the most keys that are all there is meant."""


@dataclass(frozen=True, slots=True)
class ListAnswers(TextAnswers):
    """Several actions an answer, done in order."""

    name: str = "list"

    def instructions(self, tools: Sequence[Offered]) -> str:
        return (
            f"Answer with a JSON list of 1 to {MAX_ACTIONS} actions and nothing else. Actions:\n{self.listing(tools)}"
        )

    def listing(self, tools: Sequence[Offered]) -> str:
        return "\n".join(f"- {_title(tool)}: " + json.dumps(_form(tool)) + notes(_parameters(tool)) for tool in tools)

    def constrain(self, request: ModelRequest, tools: Sequence[Offered]) -> ModelRequest:
        return request.model_copy(update={"schema_": schema(tools)})

    def parse(self, text: str, tools: Sequence[Offered]) -> Answer:
        if not text.strip():
            raise UnreadableAnswer("the answer is empty: answer with a JSON list of actions")
        found = first_value(text)
        items = found if isinstance(found, list) else found.get("actions", [found])
        if not isinstance(items, list) or not items:
            raise UnreadableAnswer('the list holds no action: write [{"command": "..."}]')
        return Answer(steps=_steps(items, tools))

    def write(self, answer: Answer) -> Message:
        return Message(role="assistant", content=json.dumps([_item(step) for step in answer.steps], ensure_ascii=False))


def schema(tools: Sequence[Offered]) -> dict[str, Any]:
    """The schema of one answer for the named tools: a list of 1 to 16 actions."""
    forms = []
    for tool in tools:
        if isinstance(tool, ToolSpec):
            forms.append(call_schema(tool))
            continue
        form = plain_schema(_parameters(tool))
        form["properties"]["comment"] = {"type": "string", "maxLength": MAX_COMMENT_CHARS}
        forms.append(form)
    return {"type": "array", "items": {"anyOf": forms}, "minItems": 1, "maxItems": MAX_ACTIONS}


def _title(tool: Offered) -> str:
    words = described(tool) if isinstance(tool, ToolSpec) else ""
    return f"{name_of(tool)} ({words})" if words else name_of(tool)


def _form(tool: Offered) -> dict[str, Any]:
    if isinstance(tool, ToolSpec):
        return {"tool": tool.name, "arguments": sample(tool), "comment": "..."}
    return dict.fromkeys((*_FORMS[tool], "comment"), "...")


def _parameters(tool: Offered) -> dict[str, Any]:
    """Those of a built-in action with its path as `file`."""
    if isinstance(tool, ToolSpec):
        return tool.parameters
    schema = PARAMETERS[tool]
    properties = {"file" if name == "path" else name: part for name, part in schema["properties"].items()}
    return schema | {"properties": properties, "required": list(_FORMS[tool])}


def _steps(items: Sequence[object], tools: Sequence[Offered]) -> tuple[Step, ...]:
    """One for every entry: an entry that is no action is answered with its problem, beside those that are done."""
    steps: list[Step] = []
    for number, item in enumerate(items, 1):
        try:
            step = _step(item, tools)
            problem = EARLY_FINISH if steps and isinstance(step.action, Finish) else ""
        except UnreadableAnswer as error:
            problem = error.message
        steps.append(Step(action=invalid(item, problem, number)) if problem else step)
    return done_or_refused(steps)


def _step(item: object, tools: Sequence[Offered]) -> Step:
    if not isinstance(item, dict):
        raise UnreadableAnswer('it is not an object: write {"command": "..."}')
    comment = item.get("comment")
    return Step(action=_action(item, tools), comment=comment.strip() or None if isinstance(comment, str) else None)


def _action(item: dict[str, Any], tools: Sequence[Offered]) -> Action:
    given = {"file" if key in ("path", "filename") else key: value for key, value in item.items() if value is not None}
    if given.keys() & {"tool", "name", "action", "function"}:
        return action_in(item, tools)
    command = given.get("command")
    if given.keys() <= {"command", "comment"} and isinstance(command, str) and not command.strip() and "shell" in tools:
        return Shell(command=command)
    fitting = [tool for tool, keys in _FORMS.items() if given.keys() >= set(keys)]
    if not fitting:
        raise UnreadableAnswer('it has neither "command" nor "file": ' + ", ".join(names(tools)) + " are possible")
    return make_action(max(fitting, key=lambda tool: len(_FORMS[tool])), given, tools)


def _written(entry: str) -> Any:
    """An entry that was none, as it was."""
    try:
        return json.loads(entry)
    except (ValueError, RecursionError):
        return entry


def _item(step: Step) -> Any:
    match step.action:
        case InvalidCall(written=written):
            return _written(written)
        case Shell() | Finish() | AskUser() | SubTask() as action:
            fields = action.model_dump(exclude_none=True, exclude={"tool"})
        case ReadFile() | WriteFile() | EditFile() as action:
            fields = {"file": action.path} | action.model_dump(exclude_none=True, exclude={"tool", "path"})
        case action:
            fields = spelled(action)
    return fields | ({"comment": step.comment} if step.comment else {})
