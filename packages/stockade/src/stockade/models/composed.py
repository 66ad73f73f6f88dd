"""Several models as one: the run's own, those that it goes on with where that cannot be asked, a stronger one for where
it is stuck, and a fast one that shortens.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Self

from stockade.core.budget import unpriced
from stockade.core.errors import AnswerHeldBack, ContextExceeded, ModelFailed, ModelUnavailable
from stockade.core.messages import REPEATS, Message, ModelAnswer, ModelInfo, ModelRequest, Sampling
from stockade.core.ports import Model, OnText
from stockade.core.text import one_line

SUMMARY_TOKENS = 300
MAX_SHORTENED_CHARS = 16_000
_SYSTEM = (
    "Below is what a worker did so far, and what came of it. Say it in at most ten short lines, one for each thing that"
    " matters later: what was found out (names, numbers and error messages exactly as they stand), what was changed,"
    " what failed. Nothing else, no advice."
)


@dataclass(frozen=True, slots=True)
class Member:
    """A model by its full name, made when it is first needed: a file is not fetched, nor a server asked, before.
    `prefix` is of the variables that say where it is.
    """

    name: str
    make: Callable[[], Awaitable[Model]]
    prefix: str = ""


class ModelTeam:
    """Implements core.ports.Model by `own`, whose full name is `name`, and loop.window.Shortens by `fast`.

    What cannot be asked is left for the next of `fallbacks` until the end of the run; its tries are spent by then. What
    a request wants of a stronger model (`Sampling.smart`) is asked of `smart`. An answer of another one than `own` says
    who gave it, and why: `by` and `why`. `capped`: none is asked of which nobody says what it costs.
    """

    def __init__(
        self,
        own: Model,
        name: str = "",
        *,
        fast: Model | None = None,
        smart: Member | None = None,
        fallbacks: Sequence[Member] = (),
        capped: bool = False,
    ) -> None:
        self.own, self.fast, self._smart, self._fallbacks = own, fast, smart, tuple(fallbacks)
        self._names = (name, *(one.name for one in fallbacks))
        self._stack, self._open = AsyncExitStack(), dict[str, Model]()
        self._at, self._why, self._without_smart, self._capped = 0, "", False, capped
        self._lost = 0.0  # USD of answers that could not be used

    @property
    def members(self) -> tuple[Member, ...]:
        """Those that may be asked as `own` is."""
        return (*self._fallbacks, *((self._smart,) if self._smart else ()))

    @property
    def info(self) -> ModelInfo:
        """Of the one that is asked now."""
        return (self.own if not self._at else self._open[self._names[self._at]]).info

    async def __aenter__(self) -> Self:
        self._at, self._why, self._without_smart, self._open, self._lost = 0, "", False, {}, 0.0
        async with AsyncExitStack() as self._stack:
            if self.fast is not None:
                await self._stack.enter_async_context(self.fast)
            try:
                await self._stack.enter_async_context(self.own)
            except ModelFailed as error:
                await self._next(error)
            self._stack = self._stack.pop_all()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        """See core.ports.Model. Raises as the last that there is, with what was wrong with those before."""
        if request.sampling.smart and (answer := await self._ask_smart(request, on_text)) is not None:
            return self._with_lost(answer)
        while True:
            model, name = self._now
            try:
                answer = await model.ask(request, on_text)
            except ContextExceeded:
                raise
            except ModelFailed as error:
                self._lost += error.cost
                await self._next(error)
            else:
                answer = self._with_lost(answer)
                return answer.model_copy(update={"by": name, "why": self._why}) if self._at else answer

    def _with_lost(self, answer: ModelAnswer) -> ModelAnswer:
        """With what answers before it cost that could not be used."""
        cost, self._lost = answer.usage.cost + self._lost, 0.0
        return answer.model_copy(update={"usage": answer.usage.model_copy(update={"cost": cost})})

    @property
    def _now(self) -> tuple[Model, str]:
        name = self._names[self._at]
        return (self._open[name] if self._at else self.own), name

    async def _next(self, error: ModelFailed) -> None:
        """Goes on with the next that can be entered; raises what was wrong with the last where there is none."""
        while True:
            self._why = "; ".join(filter(None, (self._why, _reason(self._names[self._at], error))))
            if self._at + 1 == len(self._names):
                if self._at:
                    if isinstance(error, AnswerHeldBack):
                        raise AnswerHeldBack(self._why) from error
                    raise ModelUnavailable(self._why, error.hint) from error
                raise error
            member = self._fallbacks[self._at]
            self._at += 1
            try:
                await self._entered(member)
            except ModelFailed as failed:
                error = failed
            else:
                return

    async def _entered(self, member: Member) -> Model:
        if member.name not in self._open:
            self._open[member.name] = await self._stack.enter_async_context(await member.make())
        model = self._open[member.name]
        if self._capped and not model.info.priced:  # which a server that hands on what it is asked tells only then
            raise ModelUnavailable(unpriced(member.name))
        return model

    async def _ask_smart(self, request: ModelRequest, on_text: OnText | None) -> ModelAnswer | None:
        """None where it cannot be asked: the run goes on without."""
        if self._smart is None or self._without_smart:
            return None
        try:
            answer = await (await self._entered(self._smart)).ask(request, on_text)
        except ContextExceeded:
            return None
        except ModelFailed as error:
            self._lost += error.cost
            self._without_smart = True
            return None
        return answer.model_copy(update={"by": self._smart.name, "why": "the run was stuck"})

    async def count(self, request: ModelRequest) -> int | None:
        """Tokens of a request as the one that is asked now counts them; None where it cannot."""
        counted = getattr(self._now[0], "count", None)
        return None if counted is None else await counted(request)

    def skip(self, answers: int) -> None:
        """Of a script: its answers up to there were given before."""
        if (skip := getattr(self.own, "skip", None)) is not None:
            skip(answers)

    async def shorten(self, text: str) -> ModelAnswer | None:
        """`text` in a few lines; None when no fast model can be asked, no words when it said nothing of use.

        The run can do without.
        """
        if len(text) > MAX_SHORTENED_CHARS:
            half = MAX_SHORTENED_CHARS // 2
            text = f"{text[:half]}\n[...]\n{text[-half:]}"
        if self.fast is None:
            return None
        request = ModelRequest(
            messages=(Message(role="system", content=_SYSTEM), Message(role="user", content=text)),
            sampling=Sampling(temperature=0.0, max_tokens=SUMMARY_TOKENS),
        )
        try:
            answer = await self.fast.ask(request)
        except ModelFailed as error:
            self._lost += error.cost
            return None
        return answer.model_copy(update={"content": ""}) if answer.finish_reason == REPEATS else answer


def _reason(name: str, error: ModelFailed) -> str:
    return one_line(f"{name}: {error.message}" if name else error.message, 300)
