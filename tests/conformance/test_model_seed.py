"""The same seed gives the same run twice, on a server that still has the first one in its cache too."""

import os
from functools import partial
from pathlib import Path

import pytest

from stockade.core.messages import Message, ModelRequest, Sampling
from stockade.models.local.catalogue import CATALOGUE
from stockade.models.local.embedded import EmbeddedModel
from stockade.models.local.fetch import fetch
from stockade.models.openai import OpenAIModel
from stockade.models.openai_request import Dialect
from stockade.models.settings import ModelSettings
from stockade.testing.conformance.model import question
from tests.support.fake_openai import FakeOpenAI

# Read before the fixture that hides the person's folders.
MODELS = Path(os.environ.get("STOCKADE_TEST_MODELS") or Path.home() / ".cache/stockade-dev/models")
SEEDED = Sampling(temperature=1.2, seed=7, max_tokens=16)


async def conversation(model: EmbeddedModel) -> list[str]:
    """Two turns."""
    said: list[str] = []
    messages = question("Tell a story about a cow, a bridge and the number 17.").messages
    for _ in range(2):
        said.append((await model.ask(ModelRequest(messages=messages, sampling=SEEDED))).content)
        messages = (*messages, Message(role="assistant", content=said[-1]), Message(role="user", content="And then?"))
    return said


@pytest.mark.anyio
async def test_a_seed_gives_the_same_conversation_on_a_cold_and_on_a_warm_server() -> None:
    path = await fetch(CATALOGUE["smollm2"], folder=MODELS)
    settings = ModelSettings(ctx_size=1024, slots=1, llama_server="off")
    model = partial(EmbeddedModel, path, "smollm2", settings=settings, trusted=True)
    async with model() as first:
        cold = await conversation(first)
        # One server with one cache for both: the second one finds the whole of the first in its cache.
        async with model() as second:
            assert second.server.pid == first.server.pid
            warm = await conversation(second)
    assert cold == warm
    assert any(cold)


@pytest.mark.anyio
async def test_only_the_first_question_of_a_seeded_run_is_read_afresh() -> None:
    async with FakeOpenAI() as server:
        async with OpenAIModel(server.base_url, "fake", dialect=Dialect(llama_cpp=True)) as model:
            for sampling in (SEEDED, SEEDED, Sampling()):
                await model.ask(question().model_copy(update={"sampling": sampling}))
        assert [asked.body["cache_prompt"] for asked in server.questions] == [False, True, True]
