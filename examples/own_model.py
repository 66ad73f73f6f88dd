"""A model of your own: anything that turns a conversation into an answer.

    python examples/own_model.py

Here it is a Python function that counts lines without thinking; a client of another API has the same shape. The run
around it is the real one: the real loop, a real sandbox, a real record.
"""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import anyio

from stockade import __version__
from stockade.answers.json_schema import JsonAnswers
from stockade.bots.opening import opening
from stockade.bots.spec import WRITING
from stockade.core.budget import Budget
from stockade.core.events import RunFinished, RunStarted
from stockade.core.messages import Message, ModelAnswer, ModelInfo, ModelRequest, Usage
from stockade.core.ports import OnText
from stockade.loop.run import Dependencies, run
from stockade.runtime.records import SystemClock, new_run_id
from stockade.runtime.sandboxes import open_sandbox
from stockade.store.sqlite import SQLiteStore
from stockade_sandbox.policy import FolderRule, Policy


class FunctionModel:
    """Implements core.ports.Model with a function from messages to a text."""

    def __init__(self, answer: Callable[[tuple[Message, ...]], str]) -> None:
        self._answer = answer
        self.info = ModelInfo(name="function", provider="example", enforces_schema=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        started = time.monotonic()
        text = await anyio.to_thread.run_sync(self._answer, request.messages)
        if on_text is not None and text:
            on_text(text)
        words = sum(len(message.content.split()) for message in request.messages)
        usage = Usage(prompt_tokens=words, completion_tokens=len(text.split()))
        return ModelAnswer(content=text, usage=usage, duration_s=time.monotonic() - started)


def count_lines(messages: tuple[Message, ...]) -> str:
    """Two turns: a command, then what it said."""
    if not any(message.role == "assistant" for message in messages):
        return json.dumps({"thought": "count", "action": {"tool": "shell", "command": "wc -l < data.csv"}})
    digits = next(word for word in messages[-1].content.split() if word.isdigit())
    return json.dumps({"thought": "done", "action": {"tool": "finish", "answer": f"data.csv has {digits} lines"}})


async def main(folder: Path, base: Path) -> RunFinished:
    protocol = JsonAnswers()
    policy = Policy(folders=(FolderRule(host=str(folder), mode="ro"),))
    started = RunStarted(
        at=time.time(), version=__version__, run_id=new_run_id(), task="How many lines has data.csv?", bot="example",
        model="example/function", answers=protocol.name, sandbox="bubblewrap", policy=policy, budget=Budget(),
        system_prompt=opening(WRITING, protocol, policy),
    )  # fmt: skip
    async with SQLiteStore(base / "runs.db") as store:
        parts = Dependencies(
            model=FunctionModel(count_lines), protocol=protocol, sandbox=open_sandbox(policy, "auto", base / "run"),
            store=store, clock=SystemClock(), tools=WRITING.all_tools,
        )  # fmt: skip
        return await run(started, parts)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "data"
        data.mkdir()
        (data / "data.csv").write_text("name,age\nAda,36\nAlan,41\n")
        print(anyio.run(main, data, Path(place)).answer)
