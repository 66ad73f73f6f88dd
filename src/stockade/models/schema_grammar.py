"""The grammar that llama.cpp's chat API would hold an answer to, for prompts of tokens, which go past that API.

A plain `json_schema` is no substitute: it knows no fence and no thinking, and in builds with llguidance it lets a small
model write blank lines to the limit. The server tells its grammar when it is asked for a word under the schema.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio
from platformdirs import user_cache_path

from stockade.models.transport import Transport
from stockade.models.values import as_dict, as_text

_ROOT = re.compile(r'^root ::= ("(?:[^"\\]|\\.)*") ', re.MULTILINE)


class SchemaGrammars:
    """For one server and model. Asked once a schema and machine, which costs a prompt of some thirty tokens."""

    def __init__(self, transport: Transport, props: Mapping[str, Any], model: str, slot: int | None) -> None:
        self._transport = transport
        self._asked: dict[str, Any] = {"model": model} | ({} if slot is None else {"id_slot": slot})
        self._same = [props.get("build_info"), props.get("chat_template")]
        self._known: dict[str, str] = {}

    async def fields(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """What holds an answer to `schema`, in the body of a completion."""
        text = json.dumps(schema)
        if text not in self._known:
            self._known[text] = await self._grammar(schema, text)
        return {"grammar": grammar} if (grammar := self._known[text]) else {"json_schema": schema}

    async def _grammar(self, schema: Mapping[str, Any], text: str) -> str:
        digest = hashlib.sha256(json.dumps([*self._same, text]).encode()).hexdigest()
        file = anyio.Path(user_cache_path("stockade") / "grammars" / digest[:32])
        with suppress(OSError, ValueError):
            return await file.read_text()
        form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
        asked = {**self._asked, "messages": [{"role": "user", "content": "."}], "max_tokens": 1, "temperature": 0,
                 "verbose": True, "response_format": form}  # fmt: skip
        told = await self._transport.tell(
            f"{self._transport.url}/chat/completions", json.dumps(asked).encode(), patient=True
        )
        settings = as_dict(as_dict(told.get("__verbose")).get("generation_settings"))
        grammar = _without_prompt(as_text(settings.get("grammar")), as_text(settings.get("generation_prompt")))
        if grammar:
            with suppress(OSError):  # a cache
                await file.parent.mkdir(parents=True, exist_ok=True)
                fresh = file.with_suffix(f".{os.getpid()}")
                await fresh.write_text(grammar)
                await fresh.replace(file)
        return grammar


def _without_prompt(grammar: str, prompt: str) -> str:
    """The server's grammars begin with the template's last words, which stand in our prompt; empty for another kind."""
    found = _ROOT.search(grammar)
    with suppress(ValueError):
        if prompt and found and json.loads(found[1]) == prompt:
            return f"{grammar[: found.start()]}root ::= {grammar[found.end() :]}"
    return "" if prompt or not grammar.partition("root ::=")[1] else grammar
