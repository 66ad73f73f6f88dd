"""The Model port on Anthropic's Messages API."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from stockade.core.ports import Model
from stockade.models.anthropic import AnthropicModel
from stockade.testing.conformance.model import ModelConformance
from tests.support.fake_anthropic import fake_anthropic, reply, says, start, text
from tests.support.fake_openai import Reply

ANSWER = json.dumps({"word": "hello", "yes": True})


class TestAnthropic(ModelConformance):
    enforces_schema = True

    def open_model(self) -> AbstractAsyncContextManager[Model]:
        return self._open([says(ANSWER)] * 8)

    def open_slow(self) -> AbstractAsyncContextManager[Model]:
        return self._open([reply([start(), *text("one")], "stall"), says(ANSWER)])

    @asynccontextmanager
    async def _open(self, replies: list[Reply]) -> AsyncIterator[Model]:
        async with fake_anthropic(replies) as server, AnthropicModel(server.url, "claude-x", "k") as model:
            yield model
