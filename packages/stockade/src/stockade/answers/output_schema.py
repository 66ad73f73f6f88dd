"""`--output-schema`: the answer is JSON that fits a schema of the user's.

The schema stands in the prompt. Where a server holds the form of calls, `finish` takes an answer of that form. What the
bot ends with is validated whatever was held; one that does not fit goes back with what is wrong with it, and is asked
for alone, as JSON that the server shall hold to the schema, where the model has native tools. After three it is over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from os.path import expanduser
from pathlib import Path
from typing import Any

import anyio.to_thread

from stockade.answers.schema_problems import loaded, problems, validator
from stockade.answers.tool_specs import MAX_SCHEMA_DEPTH, plain_schema
from stockade.core.actions import Answer, Finish, Step
from stockade.core.errors import UsageError
from stockade.core.messages import Message, ModelAnswer, ModelRequest
from stockade.core.ports import AnswerProtocol
from stockade.core.text import one_line, under
from stockade.core.tools import Offered
from stockade.loop.hooks import EndRun, Hook, HookContext, SendBack
from stockade.paths import read_regular

MAX_SCHEMA_BYTES = 100_000
MAX_MISFITS = 3


def read_schema(path: str) -> dict[str, Any]:
    """The schema of a file, or that is written here. UsageError, in one line, when it is none, or refers to what is not
    in it.
    """
    try:
        written = path.lstrip().startswith("{")
        data = path.encode() if written else read_regular(Path(expanduser(path)), MAX_SCHEMA_BYTES)
    except OSError as error:
        raise UsageError(f"the output schema {path} cannot be read: {error.strerror}") from None
    path = one_line(path, 60) if written else path
    if len(data) > MAX_SCHEMA_BYTES:
        raise UsageError(f"the output schema {path} is larger than {MAX_SCHEMA_BYTES} bytes")
    try:
        schema = loaded(data.decode())
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else one_line(str(error), 200)
        raise UsageError(f"the output schema {path} is no JSON: {why}") from None
    if not isinstance(schema, dict):
        raise UsageError(f"the output schema {path} is no JSON object", 'as {"type": "object", "properties": {...}}')
    from jsonschema.exceptions import SchemaError

    try:
        validator(schema).check_schema(schema)
        _refuse_others(schema, schema)
    except (SchemaError, RecursionError) as error:
        why = one_line(error.message, 200) if isinstance(error, SchemaError) else "it is nested too deeply"
        raise UsageError(f"the output schema {path} is no JSON schema: {why}", "https://json-schema.org") from None
    except LookupError as error:
        what = f"the output schema {path} refers to {one_line(str(error.args[0]), 100)!r}, which is not in it"
        raise UsageError(what, "nothing is fetched: put it under $defs") from None
    return schema


def _refuse_others(part: Any, root: dict[str, Any]) -> None:
    """LookupError for a reference that leads nowhere within `root`."""
    if isinstance(part, list):
        for one in part:
            _refuse_others(one, root)
    if not isinstance(part, dict):
        return
    place = part.get("$ref")
    if isinstance(place, str) and not (place.startswith("#") and (place[1:2] != "/" or _leads(place, root))):
        raise LookupError(place)
    for key, one in part.items():
        if key not in ("const", "enum", "default", "examples"):
            _refuse_others(one, root)


def _leads(place: str, root: Any) -> bool:
    for key in place.removeprefix("#/").split("/"):
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(root, list) and key.isdecimal() and int(key) < len(root):
            root = root[int(key)]
        elif isinstance(root, dict) and key in root:
            root = root[key]
        else:
            return False
    return True


class OutputSchema(Hook):
    """Judges the answer by the schema on record, and makes an answer protocol ask for it."""

    name = "output_schema"
    timeout_s = None

    def __init__(self) -> None:
        self.alone = False
        """Whether nothing but the answer is asked for now."""

    async def before_finish(self, ctx: HookContext, finish: Finish) -> SendBack | EndRun | None:
        schema = ctx.started.output_schema
        if schema is None or finish.gave_up:
            return None
        found = await anyio.to_thread.run_sync(problems, schema, finish.answer)
        self.alone = bool(found)
        if not found:
            return None
        if ctx.count("message") >= MAX_MISFITS - 1:
            self.alone = False
            return EndRun(
                "stopped", "schema", f"{MAX_MISFITS} answers did not fit the output schema: {'; '.join(found)}"
            )
        return SendBack(
            "The answer does not fit the JSON schema: " + "; ".join(found)
            + ". Finish again with JSON that does, and nothing else: no words around it and no code fence."
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SchemaAnswers:
    """Implements core.ports.AnswerProtocol: another one whose last answer is JSON under a schema."""

    inner: AnswerProtocol
    schema: dict[str, Any]
    judge: OutputSchema

    @property
    def name(self) -> str:
        return self.inner.name

    def instructions(self, tools: Sequence[Offered]) -> str:
        return f"{self.inner.instructions(tools)}\n{under(self.schema)}"

    def listing(self, tools: Sequence[Offered]) -> str:
        return self.inner.listing(tools)

    def constrain(self, request: ModelRequest, tools: Sequence[Offered]) -> ModelRequest:
        request = self.inner.constrain(request, tools)
        if request.schema_ is not None:
            return request.model_copy(
                update={"schema_": _with_answer(request.schema_, plain_schema(self.schema, MAX_SCHEMA_DEPTH - 1))}
            )
        if request.tools is None:
            return request
        asked: dict[str, Any] = {"tools": tuple(_of_finish(tool, self.schema) for tool in request.tools)}
        if self.judge.alone:
            asked["schema_"] = self.schema
        return request.model_copy(update=asked)

    def read(self, answer: ModelAnswer, tools: Sequence[Offered]) -> Answer:
        if self.judge.alone and not answer.tool_calls and not problems(self.schema, answer.content):
            return Answer(steps=(Step(action=Finish(answer=answer.content.strip())),))
        return self.inner.read(answer, tools)

    def write(self, answer: Answer) -> Message:
        return self.inner.write(answer)

    def observed(self, step: Step, text: str) -> Message:
        return self.inner.observed(step, text)


def _with_answer(schema: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """The schema of an action, with what `finish` answers."""

    def mended(part: Any) -> Any:
        if isinstance(part, list):
            return [mended(one) for one in part]
        if not isinstance(part, dict):
            return part
        properties = part.get("properties")
        if isinstance(properties, dict) and properties.get("tool") == {"const": "finish"}:
            return {**part, "properties": {**properties, "answer": wanted}}
        return {key: mended(one) for key, one in part.items()}

    found: dict[str, Any] = mended(schema)
    return found


def _of_finish(tool: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """A tool as it is declared; `finish` with the answer that is wanted."""
    function = tool.get("function", {})
    if function.get("name") != "finish":
        return tool
    parameters = function["parameters"]
    properties = {**parameters["properties"], "answer": schema}
    return {**tool, "function": {**function, "parameters": {**parameters, "properties": properties}}}


def under_schema(protocol: AnswerProtocol, schema: dict[str, Any] | None, hooks: Sequence[Hook] = ()) -> AnswerProtocol:
    """`protocol`, with answers under `schema` where there is one, as the judge among `hooks` says."""
    if schema is None:
        return protocol
    judge = next((hook for hook in hooks if isinstance(hook, OutputSchema)), None)
    return SchemaAnswers(protocol, schema, judge or OutputSchema())
