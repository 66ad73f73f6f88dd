"""Several models as one: two roles, of which the smart one acts and the fast one shortens; or users of one server."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import anyio

from stockade.core.errors import ModelFailed
from stockade.core.messages import REPEATS, Message, ModelAnswer, ModelInfo, ModelRequest, Sampling
from stockade.core.ports import Model, OnText

SUMMARY_TOKENS = 300
MAX_SHORTENED_CHARS = 16_000
_SYSTEM = (
    "Below is what a worker did so far, and what came of it. Say it in at most ten short lines, one for each thing that"
    " matters later: what was found out (names, numbers and error messages exactly as they stand), what was changed,"
    " what failed. Nothing else, no advice."
)


class Entered:
    """Several models as one: entering enters all of them, and what is known is that of the first."""

    def __init__(self, models: Sequence[Model]) -> None:
        self._models, self._stack = models, AsyncExitStack()

    @property
    def info(self) -> ModelInfo:
        return self._models[0].info

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for model in self._models:
                await stack.enter_async_context(model)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)


class Fan(Entered):
    """Implements core.ports.Model by several users of one server, so that questions asked at once have a slot of its
    cache each. A question goes to the first that is free: one after the other finds the cache of the one before.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        super().__init__(models)
        self._free = list(range(len(models)))
        self._turn = anyio.Semaphore(len(models))

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """See core.ports.Model."""
        async with self._turn:
            number = min(self._free)
            self._free.remove(number)
            try:
                return await self._models[number].ask(request, on_text)
            finally:
                self._free.append(number)


class SmartAndFast(Entered):
    """Implements core.ports.Model by `smart`, and loop.window.Shortens by `fast`, which may be on another server."""

    def __init__(self, smart: Model, fast: Model) -> None:
        super().__init__((smart, fast))
        self._smart, self.fast = smart, fast

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        return await self._smart.ask(request, on_text)

    async def count(self, request: ModelRequest) -> int | None:
        """Tokens of a request as the smart model counts them; None where it cannot."""
        counted = getattr(self._smart, "count", None)
        return None if counted is None else await counted(request)

    def skip(self, answers: int) -> None:
        """Of a script: its answers up to there were given before."""
        if (skip := getattr(self._smart, "skip", None)) is not None:
            skip(answers)

    async def shorten(self, text: str) -> ModelAnswer | None:
        """`text` in a few lines; None when the fast model cannot be asked, no words when it said nothing of use.

        The run can do without.
        """
        if len(text) > MAX_SHORTENED_CHARS:
            half = MAX_SHORTENED_CHARS // 2
            text = f"{text[:half]}\n[...]\n{text[-half:]}"
        request = ModelRequest(
            messages=(Message(role="system", content=_SYSTEM), Message(role="user", content=text)),
            sampling=Sampling(temperature=0.0, max_tokens=SUMMARY_TOKENS),
        )
        try:
            answer = await self.fast.ask(request)
        except ModelFailed:
            return None
        return answer.model_copy(update={"content": ""}) if answer.finish_reason == REPEATS else answer
