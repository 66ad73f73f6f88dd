"""What every core.ports.Model does. Subclass ModelConformance in a test module and give it a model.

The checks are synchronous and start their own event loop, so that they need no plugin.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import anyio

from stockade.core.errors import ContextExceeded
from stockade.core.messages import Message, ModelRequest, Sampling
from stockade.core.ports import Model

SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string", "maxLength": 12}, "yes": {"type": "boolean"}},
    "required": ["word", "yes"],
    "additionalProperties": False,
}
TIMEOUT_S = 120.0


def question(text: str = "Say hello.", max_tokens: int = 48, schema: dict[str, Any] | None = None) -> ModelRequest:
    """A short question, answered the same way each time."""
    return ModelRequest(
        messages=(Message(role="system", content="You are brief."), Message(role="user", content=text)),
        sampling=Sampling(temperature=0, seed=1, max_tokens=max_tokens),
        schema_=schema,
    )


class Heard:
    """What a listener to a streaming answer holds in the end; `again` counts the new beginnings."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.again = 0

    def __call__(self, piece: str | None) -> None:
        if piece is None:
            self.pieces.clear()
            self.again += 1
        else:
            self.pieces.append(piece)


Check = Callable[[Any, Model], Coroutine[Any, Any, None]]


def _of(opened: str) -> Callable[[Check], Callable[[Any], None]]:
    """A check of a model, entered, which the suite's method of that name gives."""

    def decorate(check: Check) -> Callable[[Any], None]:
        def test(suite: Any) -> None:
            async def run() -> None:
                with anyio.fail_after(TIMEOUT_S):
                    async with getattr(suite, opened)() as model:
                        await check(suite, model)

            anyio.run(run)

        return test

    return decorate


_asked, _slowly = _of("open_model"), _of("open_slow")


class ModelConformance(ABC):
    """`open_model` gives a model ready to be entered, with answers to at least eight questions of any kind.

    `open_slow` gives one whose answer to `slow_request` takes seconds, for cancelling. `enforces_schema`: None is what
    its info says.
    """

    enforces_schema: bool | None = None

    @abstractmethod
    def open_model(self) -> AbstractAsyncContextManager[Model]: ...

    @abstractmethod
    def open_slow(self) -> AbstractAsyncContextManager[Model]: ...

    def slow_request(self) -> ModelRequest:
        return question("Count from one to one thousand in words, all of them.", max_tokens=2000)

    @_asked
    async def test_is_a_model(self, model: Model) -> None:
        assert isinstance(model, Model)
        assert model.info.name
        assert model.info.provider
        assert model.info.context_window is None or model.info.context_window > 0

    @_asked
    async def test_answers(self, model: Model) -> None:
        answer = await model.ask(question())
        assert answer.content or answer.tool_calls
        assert answer.finish_reason
        assert answer.duration_s >= 0
        assert 0 <= answer.usage.cached_tokens <= answer.usage.prompt_tokens
        assert answer.usage.completion_tokens >= 0

    @_asked
    async def test_what_is_streamed_is_the_answer(self, model: Model) -> None:
        heard = Heard()
        answer = await model.ask(question(), heard)
        assert "".join(heard.pieces) == answer.content
        assert heard.pieces
        assert all(heard.pieces)

    @_asked
    async def test_several_turns(self, model: Model) -> None:
        request = question()
        for _ in range(3):
            answer = await model.ask(request)
            more = (Message(role="assistant", content=answer.content), Message(role="user", content="Again."))
            request = request.model_copy(update={"messages": request.messages + more})

    @_asked
    async def test_schema_is_enforced(self, model: Model) -> None:
        answer = await model.ask(question("Answer in JSON.", schema=SCHEMA))
        if model.info.enforces_schema if self.enforces_schema is None else self.enforces_schema:
            result = json.loads(answer.content)
            assert result.keys() == {"word", "yes"}
            assert isinstance(result["yes"], bool)

    @_asked
    async def test_odd_text_is_taken(self, model: Model) -> None:
        for text in ("", "\x00\x1b[31m\u2028", "\ud800", "{}[]\"'`\\", "日本語 🐍"):
            await model.ask(question(text, max_tokens=4))

    @_slowly
    async def test_cancelling_lets_the_next_question_through(self, model: Model) -> None:
        heard = anyio.Event()
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                await model.ask(self.slow_request(), lambda _: heard.set())

            group.start_soon(ask)
            await heard.wait()
            group.cancel_scope.cancel()
        answer = await model.ask(question(max_tokens=4))
        assert answer.finish_reason

    def test_can_be_entered_again(self) -> None:
        self.test_answers()
        self.test_answers()


class WindowConformance(ModelConformance):
    """For models with a window that is known."""

    @_asked
    async def test_too_long_is_named(self, model: Model) -> None:
        window = model.info.context_window
        assert window
        error = await _too_long(model, question("word " * (window + 100)))
        assert error.prompt_tokens is None or error.prompt_tokens > window
        assert error.window is None or error.window == window
        await model.ask(question(max_tokens=4))


async def _too_long(model: Model, request: ModelRequest) -> ContextExceeded:
    try:
        await model.ask(request)
    except ContextExceeded as error:
        return error
    raise AssertionError("a request larger than the window was answered")


def given(model: object) -> AbstractAsyncContextManager[Model]:
    """A model as the context manager that it is."""
    return cast("AbstractAsyncContextManager[Model]", model)
