"""A model whose answers are read from a file: for tests and demos.

One OpenAI assistant message a line: `{"content": "..."}` or `{"tool_calls": [{"function": {"name", "arguments"}}]}`,
with `"delay_s": 0.1` where the answer shall take its time. Empty lines are skipped. A script whose last line is a
finish says it again when it is asked again: a look at the changes, or a check that failed, needs no line of its own.
`"context_window": 4096` in the first line gives the model a window, so that long conversations are folded.
"""

import json
import math
import re
import time
from collections.abc import Callable
from os.path import expanduser
from pathlib import Path
from typing import Any, Self

import anyio

from stockade.core.errors import ModelUnavailable, UsageError
from stockade.core.messages import ModelAnswer, ModelInfo, ModelRequest, Usage
from stockade.core.ports import OnText
from stockade.models.answer_builder import AnswerBuilder
from stockade.models.settings import ModelContext
from stockade.paths import read_regular

MAX_FILE_BYTES = 64 << 20
_PIECE = re.compile(r"\s*\S+|\s+")
_CHARS_PER_TOKEN = 4
_FINISH = re.compile(r'"tool"\s*:\s*"finish"|```finish\b')
_FORM = 'write {"content": "..."} or {"tool_calls": [...]}'


def open_script(name: str, _context: ModelContext) -> "ScriptedModel":
    """A file of answers; `~` is the user's home."""
    return ScriptedModel(Path(expanduser(name)))


class ScriptedModel:
    """Implements core.ports.Model. Entering reads and checks the whole file; each question takes its next line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[tuple[dict[str, Any], float]] = []
        self._next = 0
        self._skipped = 0
        self._sent = 0

    def skip(self, answers: int) -> None:
        """Begin after this many lines: a run that goes on has had them."""
        self._skipped = answers

    @property
    def info(self) -> ModelInfo:
        window = self._lines[0][0].get("context_window") if self._lines else None
        return ModelInfo(name=str(self._path), provider="scripted", native_tools=True, context_window=window)

    async def __aenter__(self) -> Self:
        try:
            data = read_regular(self._path, MAX_FILE_BYTES)
        except OSError as error:
            raise UsageError(f"cannot read the script {self._path}: {error.strerror}") from error
        if len(data) > MAX_FILE_BYTES:
            raise UsageError(f"the script {self._path} is larger than {MAX_FILE_BYTES} bytes")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"the script {self._path} is not UTF-8 text") from error
        # Not splitlines: JSON strings may hold U+2028 as it is.
        self._lines = [self._parse(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        self._next = max(self._next, self._skipped)  # entered again, it goes on: a bot may ask before its run begins
        return self

    async def __aexit__(self, *error: object) -> None:
        self._lines = []

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """The next line, streamed in words over its `delay_s`."""
        if self._next >= len(self._lines) > 0 and _is_finish(self._lines[-1][0]):
            self._next = len(self._lines) - 1
        if self._next >= len(self._lines):
            raise ModelUnavailable(
                f"the script {self._path} has no answer left after {len(self._lines)}", "add a line, or end with finish"
            )
        message, delay_s = self._lines[self._next]
        self._next += 1
        started = time.monotonic()
        answer = _answer_of(message)
        pieces = _PIECE.findall(answer.content) or [""]
        for piece in pieces:
            await anyio.sleep(delay_s / len(pieces))
            if piece and on_text:
                on_text(piece)
        told = {"usage": self._usage(request, answer), "model": f"scripted/{self._path.name}"}
        return answer.model_copy(update={**told, "duration_s": time.monotonic() - started})

    def _usage(self, request: ModelRequest, answer: ModelAnswer) -> Usage:
        """A guess at four characters a token; what was sent before counts as cached."""
        prompt = sum(len(message.content) for message in request.messages) // _CHARS_PER_TOKEN
        cached, self._sent = min(self._sent, prompt), prompt
        return Usage(
            prompt_tokens=prompt, cached_tokens=cached, completion_tokens=-(-len(answer.content) // _CHARS_PER_TOKEN)
        )

    def _parse(self, number: int, line: str) -> tuple[dict[str, Any], float]:
        where = f"line {number} of {self._path}"
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{where} is not JSON: {error}") from error
        if not isinstance(message, dict) or not message.keys() & {"content", "tool_calls"}:
            raise UsageError(f"{where} is not an assistant message", _FORM)
        for name, value in message.items():
            if name not in _FIELDS:
                raise UsageError(f"{where} has an unknown field '{name}'", f"known: {', '.join(sorted(_FIELDS))}")
            fits, problem = _FIELDS[name]
            if not fits(value):
                raise UsageError(f"{where}{problem.format(value)}")
        return message, float(message.get("delay_s", 0))


def _are_calls(value: object) -> bool:
    """Whether each has a `function` with a name."""
    calls = value if isinstance(value, list) else [value]
    functions = [call.get("function") if isinstance(call, dict) else None for call in calls]
    return value is None or all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in functions)


_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "role": (lambda value: value == "assistant", " is not an assistant message: its role is {!r}"),
    "content": (lambda value: isinstance(value, str | None), ": content is not a text"),
    "tool_calls": (_are_calls, ": tool_calls is not a list of objects with function.name"),
    "context_window": (lambda value: type(value) is int and value > 0, ": context_window is not a number of tokens"),
    "delay_s": (
        lambda value: type(value) in (int, float) and 0 <= value < math.inf, ": delay_s is not a number of seconds",
    ),
}  # fmt: skip
"""What a line may hold: whether a value fits, and what is said of one that does not."""


def _answer_of(message: dict[str, Any]) -> ModelAnswer:
    builder = AnswerBuilder()
    calls = [{"id": f"call_{n}", **call, "index": n} for n, call in enumerate(message.get("tool_calls") or [])]
    delta = {"content": message.get("content"), "tool_calls": calls}
    builder.add({"choices": [{"delta": delta, "finish_reason": "tool_calls" if calls else "stop"}]})
    return builder.answer(0.0)


def _is_finish(message: dict[str, Any]) -> bool:
    """Whether a message ends the run, in the spellings that scripts are written in."""
    answer = _answer_of(message)
    called = any(call.get("function", {}).get("name") == "finish" for call in answer.tool_calls)
    return called or _FINISH.search(answer.content) is not None
