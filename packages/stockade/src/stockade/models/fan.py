"""Several users of one model server as one model, so that questions asked at once have a slot of its cache each."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import anyio

from stockade.core.messages import ModelAnswer, ModelInfo, ModelRequest
from stockade.core.ports import Model, OnText


class Fan:
    """Implements core.ports.Model. Entering enters all of `models`; a question goes to the first that is free, so that
    one question after the other finds the cache of the one before.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        self._models = models
        self._stack = AsyncExitStack()
        self._free: list[int] = []
        self._turn = anyio.Semaphore(len(models))

    @property
    def info(self) -> ModelInfo:
        return self._models[0].info

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for model in self._models:
                await stack.enter_async_context(model)
            self._free = list(range(len(self._models)))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """See core.ports.Model."""
        async with self._turn:
            number = min(self._free)
            self._free.remove(number)
            try:
                return await self._models[number].ask(request, on_text)
            finally:
                self._free.append(number)
