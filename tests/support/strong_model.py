"""A server on loopback that plays a strong model: it answers from a script, whatever it is told.

    with strong_model([[shell("ls"), shell("cat a.py")], "There is nothing to do."]) as model:
        ...                       # OPENAI_BASE_URL=model.base_url, model openai/strong

A turn is a list of calls, which go out natively and all at once, or a text: plain words, or an answer in the JSON
protocol. The trial that Stockade holds of a model that it does not know is passed; it is no turn.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from anyio.from_thread import start_blocking_portal

from tests.support.fake_openai import Asked, FakeOpenAI, Reply, fails, piece, says

BYTES_PER_TOKEN = 4
TRIAL_TOOL, TRIAL_WORD = "list_files", "plover-17"


@dataclass(frozen=True)
class Call:
    """One call of a tool."""

    tool: str
    arguments: dict[str, Any]


Turn = Sequence[Call] | str


def shell(command: str, **more: Any) -> Call:
    return Call("shell", {"command": command, **more})


def read(path: str, **more: Any) -> Call:
    return Call("read_file", {"path": path, **more})


def write(path: str, content: str) -> Call:
    return Call("write_file", {"path": path, "content": content})


def edit(path: str, old: str, new: str) -> Call:
    return Call("edit_file", {"path": path, "old": old, "new": new})


def finish(answer: str) -> Call:
    return Call("finish", {"answer": answer})


def calls(turn: Sequence[Call], number: int, prompt_tokens: int = 100) -> Reply:
    """A streamed answer of one or several native calls, the arguments in pieces as servers send them."""
    pieces = [piece(role="assistant")]
    for index, call in enumerate(turn):
        text = json.dumps(call.arguments)
        head = {"id": f"call_{number}_{index}", "type": "function", "function": {"name": call.tool, "arguments": ""}}
        pieces.append(piece(tool_calls=[{"index": index, **head}]))
        for at in range(0, len(text), 400):
            pieces.append(piece(tool_calls=[{"index": index, "function": {"arguments": text[at : at + 400]}}]))
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": 20}
    return Reply([*pieces, piece(finish="tool_calls"), {"choices": [], "usage": usage}])


class StrongModel(FakeOpenAI):
    """`questions` without the trial are `turns`. When the script is at its end it insists on its last answer; without
    one it takes no key.

    `window`: tokens that the server says it has.
    """

    def __init__(self, script: Sequence[Turn], window: int | None = None) -> None:
        entry: dict[str, Any] = {"id": "strong"} | ({"max_model_len": window} if window else {})
        super().__init__(otherwise=self._next, models=[entry])
        self.script = list(script)
        self.turns: list[Asked] = []

    def _next(self) -> Reply:
        asked = self.questions[-1]
        if not self.script:
            return fails(401, "no such key")
        if _is_trial(asked.body):
            native = bool(asked.body.get("tools"))
            return calls([Call(TRIAL_TOOL, {"folder": "/srv"})], 0) if native else says(f'{{"word": "{TRIAL_WORD}"}}')
        self.turns.append(asked)
        number = len(self.turns)
        turn = self.script[min(number, len(self.script)) - 1]
        tokens = len(asked.raw) // BYTES_PER_TOKEN
        return says(turn, usage=(tokens, 0, 20)) if isinstance(turn, str) else calls(turn, number, tokens)


def _is_trial(body: dict[str, Any]) -> bool:
    return bool(body["messages"][0]["content"] == "You are brief.")


@contextmanager
def strong_model(script: Sequence[Turn], window: int | None = None) -> Iterator[StrongModel]:
    """The server in a thread of its own, for as long as the block is entered."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(StrongModel(script, window)) as model:
        yield model
