"""Several models as one."""

import anyio
import pytest

from stockade.core.messages import ModelAnswer, ModelRequest
from stockade.core.ports import Model, OnText
from stockade.models.composed import Fan
from stockade.runtime import models as runtime_models
from stockade.runtime.spec import RunSpec
from stockade.testing import ScriptedModel

pytestmark = pytest.mark.anyio
QUESTION = ModelRequest(messages=())


class Slow(ScriptedModel):
    """Answers when it is let."""

    def __init__(self, name: str) -> None:
        super().__init__([name] * 9)
        self.go = anyio.Event()
        self.asked = anyio.Event()

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        self.asked.set()
        await self.go.wait()
        return await super().ask(request, on_text)


async def test_one_after_the_other_goes_to_the_same() -> None:
    one, two = ScriptedModel(["a", "b"]), ScriptedModel([])
    async with Fan([one, two]) as fan:
        assert [(await fan.ask(QUESTION)).content for _ in range(2)] == ["a", "b"]
    assert two.requests == []


async def test_at_once_goes_to_each_and_more_than_that_waits() -> None:
    one, two = Slow("one"), Slow("two")
    answers: list[str] = []
    async with Fan([one, two]) as fan, anyio.create_task_group() as group:

        async def ask() -> None:
            answers.append((await fan.ask(QUESTION)).content)

        for _ in range(3):
            group.start_soon(ask)
        with anyio.fail_after(60):
            await one.asked.wait()
            await two.asked.wait()
        two.go.set()
        one.go.set()
    assert sorted(answers) in (["one", "one", "two"], ["one", "two", "two"])
    assert len(one.requests) + len(two.requests) == 3


@pytest.mark.parametrize(("seed", "opened"), [(None, 3), (7, 1)])
async def test_with_a_seed_candidates_are_asked_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, seed: int | None, opened: int
) -> None:
    models: list[Model] = [_Lends(["a"])]

    async def open_model(spec: RunSpec, on_progress: object) -> tuple[Model, str, str | None]:
        models.append(_Lends(["a"]))
        return models[-1], "embedded/x", None

    monkeypatch.setattr(runtime_models, "model_of", open_model)
    assert isinstance(await runtime_models.several(models[0], RunSpec(seed=seed), "embedded/x", 3), Fan)
    assert len(models) == opened


class _Lends(ScriptedModel):
    """As a server of ours."""

    lends_slots = True
