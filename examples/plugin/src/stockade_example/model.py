"""A model that needs no server: `--model "parrot/wc -l data.csv"` does that command and answers with its output."""

import json
import time
from typing import Self

import anyio

from stockade.extend import ModelAnswer, ModelContext, ModelInfo, ModelRequest, OnText, Usage


class Parrot:
    """Where it may call tools it calls `shell` with its name, then `finish` with the result; else it says its name."""

    def __init__(self, name: str, context: ModelContext, delay_s: float = 0.0) -> None:
        self.info = ModelInfo(name=name, provider=context.provider, native_tools=True)
        self._delay_s = delay_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        begun, last = time.monotonic(), request.messages[-1]
        usage = Usage(prompt_tokens=sum(len(one.content.split()) for one in request.messages), completion_tokens=1)
        if not request.tools:
            if on_text is not None:
                on_text(self.info.name)
            await anyio.sleep(self._delay_s)
            return ModelAnswer(content=self.info.name, usage=usage, duration_s=time.monotonic() - begun)
        done = last.role == "tool"
        arguments = {"answer": last.content} if done else {"command": self.info.name}
        function = {"name": "finish" if done else "shell", "arguments": json.dumps(arguments)}
        call = {"id": "1", "type": "function", "function": function}
        return ModelAnswer(content="", tool_calls=(call,), usage=usage, duration_s=time.monotonic() - begun)
