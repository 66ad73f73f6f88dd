"""A model to talk to: the conversation is kept, the system prompt stays."""

import anyio

from stockade.core.messages import Message, ModelAnswer, ModelRequest, Sampling
from stockade.core.ports import Model
from stockade.runtime import models
from stockade.runtime.spec import spec_of


class LLM:
    """`LLM("embedded/qwen2.5-coder-1.5b", system_prompt="Be brief.").ask("What is a stockade?")`.

    Options are those of the command line by name (`temperature`, `seed`, `ctx_size`, ...).
    """

    def __init__(self, model: str = "auto", system_prompt: str = "", **options: object) -> None:
        self._options = spec_of({**options, "model": model})
        self._system = (Message(role="system", content=system_prompt),) if system_prompt else ()
        self._said: list[Message] = []
        self._model: Model | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far, the system prompt first."""
        return (*self._system, *self._said)

    async def aask(self, message: str) -> ModelAnswer:
        """The answer to a message, both of which are kept. ModelFailed, and nothing kept, when there is none."""
        if self._model is None:
            self._model, _, _ = await models.model_of(self._options, None)
        model = self._model
        asked = Message(role="user", content=message)
        sampling: Sampling = self._options.sampling(local=model.info.local)
        if (skip := getattr(model, "skip", None)) is not None:
            skip(len(self._said) // 2)  # a script goes on where it was
        async with model:
            answer = await model.ask(ModelRequest(messages=(*self.messages, asked), sampling=sampling))
        self._said += [asked, Message(role="assistant", content=answer.content)]
        return answer

    def ask(self, message: str) -> str:
        return anyio.run(self.aask, message).content

    def clear_history(self) -> None:
        """Forget what was said; the system prompt stays."""
        self._said.clear()
