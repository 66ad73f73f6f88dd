"""What a model really does, tried once and remembered: the word of its template is not enough.

Qwen2.5-Coder's template has tools, and no call ever comes back from it (in none of 20 tasks of a shell). So a model
is asked for one call, and for one answer under a schema that nobody would give by chance. Both are short; nothing of
the user's is sent. `tool_choice` is not: "required" makes llama.cpp write newlines to the limit. A model that thinks
first is asked again with room for that; where that is not enough, nothing is known of it, and nothing remembered.
"""

import hashlib
import json
import os
import time
from contextlib import suppress
from os.path import isfile
from pathlib import Path

import anyio
from pydantic import Field

from stockade.core.data import Data
from stockade.core.errors import StockadeError
from stockade.core.messages import Message, ModelInfo, ModelRequest, Sampling
from stockade.core.ports import Model
from stockade.core.text import spoken_part
from stockade.models.answer_builder import StillThinking
from stockade.models.local.catalogue import OUR_TABLE
from stockade.models.providers import PROVIDERS, parse_name
from stockade.models.replies import Refused, as_dict, parsed
from stockade.models.settings import OnProgress, silent
from stockade.paths import open_regular, write_whole
from stockade_sandbox.processes import own_folder

TRIAL_TOKENS = 64
_VERSION = 3
_HEAD_BYTES, _TAIL_BYTES = 16 << 20, 1 << 20
_WORD = "plover-17"
_TOOL: dict[str, object] = {
    "type": "function",
    "function": {
        "name": "list_files",
        "description": "List the files of a folder.",
        "parameters": {
            "type": "object",
            "properties": {"folder": {"type": "string", "maxLength": 40}},
            "required": ["folder"],
        },
    },
}
_SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string", "enum": [_WORD]}},
    "required": ["word"],
    "additionalProperties": False,
}


class Verdict(Data):
    """What was seen, and when, in UNIX seconds. `parameters` as the server told them then."""

    native_tools: bool
    enforces_schema: bool
    parameters: int | None = None
    at: float = Field(default_factory=time.time)
    version: int = _VERSION


TRIED: dict[str, Verdict] = {
    "embedded/qwen2.5-coder-1.5b": Verdict(native_tools=False, enforces_schema=True),
    "embedded/smollm2": Verdict(native_tools=False, enforces_schema=True),
}
"""Models whose very file we know (catalogue.py): their trial was held by us."""


async def probe_capabilities(
    model: Model, name: str, on_progress: OnProgress | None = None, *, trial: bool = True, again: bool = False
) -> ModelInfo:
    """What is known of `model`, which is not entered, with what it was seen to do. `name` is its full name.

    A local server is asked each time what it knows of the model, which costs no tokens. The trial is held where it was
    not yet; without `trial` not at all; `again` in any case, and what was remembered is forgotten. A model that cannot
    be asked is judged by what it says: the run will tell what is wrong. With `again` that raises ModelFailed.
    """
    progress = on_progress or silent
    if model.info.provider == "scripted":
        return model.info
    file = own_folder("cache") / "capabilities" / f"{await anyio.to_thread.run_sync(_fingerprint, name)}.json"
    if again:
        file.unlink(missing_ok=True)
    verdict = _remembered(file)
    if verdict is None and not again:
        if name in TRIED:
            return _with(model.info, TRIED[name], OUR_TABLE)
        if model.info.native_tools:
            return model.info
    held = trial and verdict is None
    if held:
        progress(f"trying once what {name} can do", 0, 0)
    if held or _tells(model):
        try:
            async with model:
                if held:
                    verdict = await tried(model)
        except StillThinking as error:
            if again:
                raise
            progress(f"what {name} can do is not known: {error.message}", 0, 0)
        except StockadeError:
            if again:
                raise
    if verdict is None:
        return model.info
    if held:
        verdict = verdict.model_copy(update={"parameters": model.info.parameters})
        with suppress(OSError):  # where it cannot be written, the trial is held again
            write_whole(file, verdict.model_dump_json())
    source = "tried now" if held else f"tried on {time.strftime('%Y-%m-%d', time.localtime(verdict.at))}"
    return _with(model.info, verdict, source)


def _tells(model: Model) -> bool:
    """Whether it is on a server that runs, may know its size and window, and is not a stranger's."""
    row = PROVIDERS.get(model.info.provider)
    return row is not None and getattr(model, "tells", False) and (model.info.local or row.key == "never")


async def tried(model: Model) -> Verdict:
    """Two short trials of an entered model. ModelFailed when it cannot be asked, StillThinking among them."""
    return Verdict(native_tools=await _calls(model), enforces_schema=await _keeps_schema(model))


async def _calls(model: Model) -> bool:
    try:
        answer = await model.ask(_trial("Call the tool list_files for the folder /srv.", tools=(_TOOL,)))
    except Refused:
        return False
    functions = [as_dict(call.get("function")) for call in answer.tool_calls]
    called = [parsed(str(one.get("arguments"))) for one in functions if one.get("name") == "list_files"]
    return any(isinstance(as_dict(arguments).get("folder"), str) for arguments in called)


async def _keeps_schema(model: Model) -> bool:
    try:
        answer = await model.ask(_trial("Say hello, as JSON.", schema=_SCHEMA))
    except Refused:
        return False
    return bool(parsed(spoken_part(answer.content) or "") == {"word": _WORD})


def _trial(text: str, tools: tuple[dict[str, object], ...] | None = None, schema: object = None) -> ModelRequest:
    messages = (Message(role="system", content="You are brief."), Message(role="user", content=text))
    sampling = Sampling(temperature=0.0, max_tokens=TRIAL_TOKENS)
    return ModelRequest.model_validate(
        {"messages": messages, "sampling": sampling, "tools": tools, "schema_": schema}
    )  # fmt: skip


def _with(info: ModelInfo, verdict: Verdict, source: str) -> ModelInfo:
    """What the model says of itself, with what was seen."""
    tried_values = verdict.model_dump(include={"native_tools", "enforces_schema"})
    sources = info.sources | dict.fromkeys(tried_values, source)
    if info.parameters is None and verdict.parameters is not None:
        tried_values["parameters"] = verdict.parameters
        sources["parameters"] = f"its server, {source}"
    return info.model_copy(update={**tried_values, "sources": sources})


def _fingerprint(name: str) -> str:
    """A file's content, wherever it lies: its header, which has the template, its end and its length. Else the name
    and where its server is."""
    parsed = parse_name(name)
    path = parsed.path
    digest = hashlib.sha256(parsed.provider.encode())
    if (parsed.provider == "gguf" or parsed.is_path) and isfile(path):
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            digest.update(f"{size}".encode())
            digest.update(file.read(_HEAD_BYTES))
            file.seek(max(0, size - _TAIL_BYTES))
            digest.update(file.read(_TAIL_BYTES))
    else:
        variables = PROVIDERS[parsed.provider].url_variables if parsed.provider in PROVIDERS else ()
        where = [os.environ.get(variable, "") for variable in variables]
        digest.update(json.dumps([parsed.name, *where]).encode())
    return digest.hexdigest()[:32]


def _remembered(file: Path) -> Verdict | None:
    try:
        verdict = Verdict.model_validate_json(file.read_bytes())
    except (OSError, ValueError):
        return None
    return verdict if verdict.version == _VERSION else None
