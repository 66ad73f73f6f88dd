"""What a model, a bot or a command says, as long as it may be: read, or refused, in a time that grows with its length.

Each of these once took the square of it, or the cube: hours.
"""

from collections.abc import Callable
from contextlib import suppress

import pytest

from stockade.answers import fenced, json_schema, native_tools
from stockade.approval.line import NotPlainError
from stockade.approval.line import read as read_line
from stockade.cli.ui.safe import fit_for_terminal
from stockade.core.errors import UnreadableAnswer
from stockade.core.messages import ModelAnswer
from stockade.core.text import spoken_part
from stockade.models.answer_builder import AnswerBuilder
from stockade.models.completion import CompletionBuilder, calls_in
from stockade.plugins.coder import answers as coder

TOOLS = ("shell", "write_file", "finish")
LONG = 200_000


def completed(text: str) -> ModelAnswer:
    builder = CompletionBuilder(None, "", fenced=True)
    builder.add({"choices": [{"text": text, "finish_reason": "stop"}]})
    return builder.answer(1.0)


READERS: dict[str, Callable[[str], object]] = {
    "fenced": lambda text: fenced.FencedAnswers().parse(text, TOOLS),
    "json": lambda text: json_schema.JsonAnswers().read(ModelAnswer(content=text), TOOLS),
    "native": lambda text: native_tools.NativeAnswers().read(ModelAnswer(content=text), TOOLS),
    "coder": lambda text: coder.read(ModelAnswer(content=text)),
    "sections": lambda text: coder.SectionAnswers().parse(text, TOOLS),
    "libraries": coder.libraries,
    "thinking": lambda text: spoken_part(f"{text}</think>"),
    "completion": completed,
    "calls": lambda text: calls_in(text, []),
    "command line": read_line,
    "terminal": fit_for_terminal,
}
TEXTS = {
    "blanks in a fence's line": f"```{' ' * LONG}`",
    "blanks behind a language": f"```bash {' ' * LONG}!",
    "blanks in a block": f"```bash\n{' ' * LONG}!\n```",
    "blanks behind JSON": f"```json{' ' * LONG}!",
    "blanks": " " * LONG + "!",
    "tabs and blanks": "\t " * LONG + "!",
    "parameters without an end": "<tool_call><function=shell>" + "<parameter=a>" * (LONG // 10),
    "returns": "\r" * LONG + "!",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("reader", READERS)
def test_no_text_holds_it_up(reader: str, text: str) -> None:
    with suppress(UnreadableAnswer, NotPlainError):
        READERS[reader](TEXTS[text])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("place", [{"index": 0}, {}], ids=["numbered", "in order"])
def test_a_long_call_that_comes_token_by_token_is_read_as_it_comes(place: dict[str, int]) -> None:
    """A file that a strong model writes: with each piece all of those before it were counted, or parsed, again."""
    builder = AnswerBuilder()
    pieces = ['{"command": "', *["a"] * LONG, '"}']
    for number, piece in enumerate(pieces):
        function = {"arguments": piece, **({} if number else {"name": "shell"})}
        builder.add({"choices": [{"delta": {"tool_calls": [{**place, "function": function}]}}]})
    (call,) = builder.answer(1.0).tool_calls
    assert call["function"]["arguments"] == "".join(pieces)
