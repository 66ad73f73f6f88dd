"""Models that think before they answer: what to do when the bound of an answer is met amid that."""

from collections.abc import Awaitable, Callable

from stockade.core.errors import ModelUnavailable
from stockade.core.messages import ModelAnswer, ModelRequest
from stockade.models.refusals import Refused

TIMES = 4
LEAST_TOKENS = 1024
"""What a model that thinks is given at least: a short question may take it a page of thoughts."""
_CHARS_A_TOKEN = 3
_MARGIN_TOKENS = 16


class StillThinking(ModelUnavailable):
    """The answer was cut by its bound before a word of it was said. `cut` is what came, its usage included; `thoughts`
    counts the pieces of thinking beside its content.
    """

    def __init__(self, cut: ModelAnswer, thoughts: int) -> None:
        tokens = cut.usage.completion_tokens or thoughts + len(cut.content) // _CHARS_A_TOKEN
        super().__init__(
            f"the model was still thinking after {tokens} tokens",
            "give it more with --answer-tokens N, in a window that holds them",
        )
        self.cut = cut


class Patience:
    """Asks once more, with a larger bound, where a model was cut amid its thinking; from then on with that at once.

    Within the window, and only where there is a bound of ours.
    """

    def __init__(self) -> None:
        self._thinks = False

    async def ask(
        self, request: ModelRequest, window: int | None, once: Callable[[ModelRequest], Awaitable[ModelAnswer]]
    ) -> ModelAnswer:
        """`once` asks a request. Raises StillThinking when more is not enough or not to be had."""
        if self._thinks:
            return await once(_wider(request, window) or request)
        try:
            return await once(request)
        except StillThinking as error:
            first = error
        wider = _wider(request, window, first.cut.usage.prompt_tokens)
        if wider is None:
            raise first
        self._thinks = True
        try:
            return _added(first.cut, await once(wider))
        except Refused as error:
            raise first from error


def _wider(request: ModelRequest, window: int | None, prompt_tokens: int = 0) -> ModelRequest | None:
    bound = request.sampling.max_tokens
    if bound is None:
        return None
    wanted = max(TIMES * bound, LEAST_TOKENS)
    if window is not None:
        told = prompt_tokens or sum(len(message.content) for message in request.messages) // _CHARS_A_TOKEN
        wanted = min(wanted, window - told - _MARGIN_TOKENS)
    if wanted <= bound:
        return None
    return request.model_copy(update={"sampling": request.sampling.model_copy(update={"max_tokens": wanted})})


def _added(first: ModelAnswer, answer: ModelAnswer) -> ModelAnswer:
    """With what the first one took. The prompt is the same and counts once: it tells how full the window is."""
    usage = answer.usage.model_copy(
        update={
            "completion_tokens": first.usage.completion_tokens + answer.usage.completion_tokens,
            "cost": first.usage.cost + answer.usage.cost,
        }
    )
    return answer.model_copy(update={"usage": usage, "duration_s": first.duration_s + answer.duration_s})
