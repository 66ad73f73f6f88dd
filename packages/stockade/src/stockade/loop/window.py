"""Every request fits into the model's window: counted where the estimate is in doubt, folded until it does."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from stockade.core.errors import ContextExceeded, ModelFailed
from stockade.core.events import HistoryCompacted
from stockade.core.messages import ModelAnswer, ModelInfo, ModelRequest, Usage, cannot_see
from stockade.core.ports import Model, OnText
from stockade.loop.context import Context
from stockade.loop.record import Record


@runtime_checkable
class CountsTokens(Protocol):
    """A model whose server counts a request exactly, cheaply and without answering it."""

    async def count(self, request: ModelRequest) -> int | None:
        """Tokens of the whole prompt, tools and template included; None when the server cannot tell."""
        ...


def unfit(context: Context, info: ModelInfo) -> str | None:
    """Why a run with this model would be in vain, or None. For the start, when nothing but the task is there."""
    if context.images and info.sees is False:
        return f"{info.provider}/{info.name} {cannot_see(info)}"
    needed, window = context.smallest(), context.window
    if window is None or needed + min(context.answer_tokens, window // 4) < window:
        return None
    return (
        f"the window of {window} tokens is too small: the instructions and the task alone take about {needed};"
        " load it with a larger one (--ctx-size here, OLLAMA_CONTEXT_LENGTH for Ollama), or take another model"
    )


@runtime_checkable
class Shortens(Protocol):
    """A model with another beside it that says in short what was."""

    async def shorten(self, text: str) -> ModelAnswer | None:
        """`text` in a few lines; None when that cannot be had."""
        ...


async def _fold(
    model: Model, record: Record, turn: int, before: int, now: Callable[[], float], window: int | None = None
) -> None:
    """What was before turn `before` is short from here on."""
    text = record.context.before(before)
    short = await model.shorten(text) if isinstance(model, Shortens) and text.strip() else None
    summary, usage = (short.content.strip(), short.usage) if short is not None else ("", Usage())
    left_out = record.context.left_out(window)
    await record.add(
        HistoryCompacted(
            at=now(), turn=turn, before_turn=before, window=window, task_left_out=left_out, summary=summary, usage=usage
        )
    )


async def _counted(model: Model, request: ModelRequest) -> int | None:
    """A server that is gone just now is none that cannot be asked: the question itself has the retries for that."""
    if not isinstance(model, CountsTokens):
        return None
    try:
        return await model.count(request)
    except ModelFailed:
        return None


async def ask(
    model: Model, record: Record, request: Callable[[], ModelRequest], turn: int, now: Callable[[], float],
    on_text: OnText | None,
) -> ModelAnswer:  # fmt: skip
    """The answer to `request`, which is made anew after each folding. Raises ContextExceeded when nothing is left."""
    context = record.context
    while context.is_full() or context.in_doubt():
        if context.in_doubt() and (exact := await _counted(model, request())):
            context.counted(exact)
        if not context.is_full() or (before := context.foldable_before(turn)) is None:
            break
        await _fold(model, record, turn, before, now)
    while True:
        try:
            return await model.ask(request(), on_text)
        except ContextExceeded as error:
            before = context.foldable_before(turn)
            if before is None and error.window != context.window and context.left_out(error.window):
                before = turn  # it is the task that is too long
            if before is None:
                raise
            await _fold(model, record, turn, before, now, error.window)
