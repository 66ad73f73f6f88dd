"""In place of a model, where a run's bot is a program that asks one itself (plugins/wrap)."""

from typing import Self

from stockade.core.errors import ModelUnavailable
from stockade.core.messages import ModelAnswer, ModelInfo, ModelRequest
from stockade.core.ports import OnText
from stockade.models.settings import ModelContext


class NoModel:
    """Implements core.ports.Model, and answers nothing. What a program's model costs, nobody here knows."""

    def __init__(self, name: str, context: ModelContext) -> None:
        self.info = ModelInfo(name=name, provider=context.provider, local=False, priced=False, native_tools=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Nothing to let go of."""

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        raise ModelUnavailable(f"{self.info.name} asks its own model", "choose a model: stockade model list")
