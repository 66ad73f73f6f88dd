"""300 turns with large outputs in a window of 4096 tokens of a real model: its tokenizer and its template count.

What the bot says is a script. The prompts are the loop's own, counted by the server at every turn, and answered at
some of them: it refuses what does not fit.
"""

import hashlib
import os
import random
from pathlib import Path

import pytest

from stockade.core.budget import Budget
from stockade.core.errors import ContextExceeded
from stockade.core.events import HistoryCompacted
from stockade.core.messages import ModelAnswer, ModelRequest, Usage
from stockade.core.ports import OnText
from stockade.models.local.catalogue import CATALOGUE
from stockade.models.local.embedded import EmbeddedModel
from stockade.models.local.fetch import fetch
from stockade.models.settings import ModelSettings
from stockade.testing import MemorySandbox, ScriptedModel, say
from stockade_sandbox.results import Chunk, CommandOutput
from tests.unit.loop.helpers import Bench, started

pytestmark = pytest.mark.anyio
# Read before the fixture that hides the person's folders.
MODELS = Path(os.environ.get("STOCKADE_TEST_MODELS") or Path.home() / ".cache/stockade-dev/models")
WINDOW, TURNS, ASKED_EVERY = 4096, 300, 60
TASK = "Read all the logs and say which of them has the word zebra."


def output(command: str) -> CommandOutput:
    """Words that a tokenizer knows (6 characters a token), hashes (2), or signs that are several tokens each."""
    rng = random.Random(command)
    kinds = (
        "the service was started again without any error\n",
        hashlib.sha256(command.encode()).hexdigest() + "\n",
        "".join(chr(rng.randrange(0x4E00, 0x9FFF)) for _ in range(40)) + "\n",
    )
    text = f"{command}\n" + rng.choice(kinds) * rng.choice([3, 60, 300])
    return CommandOutput(exit_code=0, chunks=(Chunk.of("stdout", text.encode()),))


class Blind(ScriptedModel):
    """Says what is in the script, for what the real model counts. Nobody may ask it beforehand."""

    def __init__(self, real: EmbeddedModel, answers: list[str | ModelAnswer]) -> None:
        super().__init__(answers)
        self.real, self.info = real, real.info
        self.prompts: list[int] = []
        self.refused = 0

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        tokens = await self.real.count(request)
        assert tokens is not None
        if tokens >= WINDOW:
            self.refused += 1
            raise ContextExceeded("too long", tokens, WINDOW)
        self.prompts.append(tokens)
        if len(self.prompts) % ASKED_EVERY == 0:
            short = request.sampling.model_copy(update={"max_tokens": 1})
            answered = await self.real.ask(request.model_copy(update={"sampling": short}))
            assert answered.usage.prompt_tokens == tokens
        answer = await super().ask(request, on_text)
        return answer.model_copy(update={"usage": Usage(prompt_tokens=tokens, completion_tokens=20)})


class Counting(Blind):
    """Counts when asked, as the embedded model does."""

    async def count(self, request: ModelRequest) -> int | None:
        return await self.real.count(request)


@pytest.mark.parametrize("kind", [Counting, Blind])
async def test_300_turns_in_4096_tokens(kind: type[Blind]) -> None:
    path = await fetch(CATALOGUE["smollm2"], folder=MODELS)
    settings = ModelSettings(ctx_size=WINDOW, slots=1, llama_server="off")
    answers: list[str | ModelAnswer] = [say("shell", command=f"cat log{n}.txt") for n in range(TURNS - 1)]
    async with EmbeddedModel(path, "smollm2", settings=settings, trusted=True) as real:
        assert real.info.context_window == WINDOW
        model = kind(real, [*answers, say("finish", answer="log7")])
        bench = Bench([], MemorySandbox(on_command=output), model=model)
        finished = await bench.run(started(task=TASK, budget=Budget(max_turns=0, timeout_s=0)))
    assert (finished.status, finished.turns, finished.answer) == ("done", TURNS, "log7"), finished.detail
    assert len(model.prompts) == TURNS
    assert max(model.prompts) < WINDOW
    assert all(TASK in request.messages[1].content for request in model.requests)
    assert sum(isinstance(event, HistoryCompacted) for event in bench.shown) > 10
    if kind is Counting:
        assert not model.refused
        assert max(model.prompts) > WINDOW // 2
