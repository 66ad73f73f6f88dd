"""Two models as one, in two roles: the smart one acts, the fast one shortens."""

from contextlib import AsyncExitStack
from typing import Any, Self

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


class SmartAndFast:
    """Implements core.ports.Model by `smart`, and loop.window.Shortens by `fast`, which may be on another server."""

    def __init__(self, smart: Model, fast: Model) -> None:
        self._smart, self.fast, self._stack = smart, fast, AsyncExitStack()

    @property
    def info(self) -> ModelInfo:
        return self._smart.info

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._smart)
            await stack.enter_async_context(self.fast)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

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
