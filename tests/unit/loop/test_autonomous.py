"""A bot that lives until it is stopped, on fakes: its own rules, and the way out of loops."""

import json
import random
from collections.abc import Sequence

import pytest

from stockade.answers.action_list import ListAnswers
from stockade.bots.shell import INTRO, SHELL, own_part, steering_of
from stockade.core.actions import Refused
from stockade.core.budget import Budget
from stockade.core.events import (
    ActionFinished,
    Autonomy,
    ModelAnswered,
    Nudged,
    OwnRules,
    RunEvent,
    RunFinished,
    RunResumed,
    RunStarted,
    TurnsForgotten,
)
from stockade.core.messages import ModelAnswer, ModelInfo, ModelRequest
from stockade.core.ports import ExecResult, OnText
from stockade.loop import circles
from stockade.loop.autonomous import Autonomous
from stockade.loop.context import Context
from stockade.loop.resume import resume
from stockade.loop.run import Parts, run
from stockade.loop.state import fold
from stockade.testing import FixedClock, MemorySandbox, MemoryStore, ScriptedModel
from tests.unit.loop.helpers import started

pytestmark = pytest.mark.anyio
WORK = "/workspace/"


class Home(MemorySandbox):
    """Writes and reads files of the workspace by their names, as a shell there would."""

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        path = argv[-1] if argv[-1].startswith("/") else WORK + argv[-1]
        return await super().exec([*argv[:-1], path], stdin, timeout_s, max_output_bytes)


class Alive:
    """A run of the real loop with the steering of the Shell bot."""

    def __init__(
        self, answers: Sequence[str], may: Autonomy | None = None, window: int | None = None, turns: int | None = None
    ) -> None:
        self.model = ScriptedModel(answers, window)
        self.sandbox = Home()
        self.store = MemoryStore()
        may = may or Autonomy(intro=False)
        first = started("learn", budget=Budget(max_turns=turns or len(answers), timeout_s=0))
        self.first = first.model_copy(update={"autonomy": may, "bot": "shell"})
        self.parts = Parts(
            model=self.model, protocol=ListAnswers(), sandbox=self.sandbox, store=self.store, clock=FixedClock(),
            tools=SHELL.tools, steering=steering_of(self.first),
        )  # fmt: skip

    async def run(self) -> RunFinished:
        return await run(self.first, self.parts)

    async def events(self) -> list[RunEvent]:
        return await self.store.events("r1")

    def last_messages(self, request: int) -> str:
        return self.model.requests[request].messages[-1].content


def act(**fields: str) -> str:
    return json.dumps([fields])


def several(*actions: dict[str, str]) -> str:
    return json.dumps(actions)


async def test_it_changes_its_goal_prompt_and_sampling_from_its_next_turn_on() -> None:
    alive = Alive([
        several({"file": "goal", "content": "learn C"}, {"file": "system.md", "content": "Be `brief`, \"always\"."}),
        act(file="config.json", content='{"temperature": 0.25}'),
        act(command="ls"),
    ])  # fmt: skip
    finished = await alive.run()
    assert (finished.status, finished.reason) == ("stopped", "turns")
    assert "learn C" not in str(alive.model.requests[0])
    assert "Your goal from now on: learn C" in alive.last_messages(1)
    assert 'Be `brief`, "always".' in alive.last_messages(1)
    assert [request.sampling.temperature for request in alive.model.requests] == [0.0, 0.0, 0.25]
    rules = [event for event in await alive.events() if isinstance(event, OwnRules)]
    assert [(rule.turn, rule.goal, rule.sampling.temperature) for rule in rules] == [
        (2, "learn C", None), (3, "learn C", 0.25),
    ]  # fmt: skip
    asked = [event for event in await alive.events() if isinstance(event, ModelAnswered)]
    assert [event.sampling and event.sampling.temperature for event in asked] == [None, None, 0.25]


async def test_the_prompt_only_grows_and_what_holds_is_said_once() -> None:
    alive = Alive([
        act(file="goal", content="learn C"), act(command="a"), act(command="b"), act(file="goal", content="learn D"),
        act(command="c"),
    ])  # fmt: skip
    await alive.run()
    for before, after in zip(alive.model.requests, alive.model.requests[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages
    everything = "\n".join(message.content for message in alive.model.requests[-1].messages)
    assert everything.count("Your goal from now on: learn C") == 1
    assert everything.count("Your goal from now on: learn D") == 1


async def test_what_is_invalid_is_refused_once_with_a_message_and_changes_nothing() -> None:
    alive = Alive([
        act(file="config.json", content='{"temperature": 0.5}'), act(file="config.json", content='{"temperature": 77}'),
        act(command="a"), act(command="b"), act(file="config.json", content='{"stream": true}'), act(command="c"),
    ])  # fmt: skip
    await alive.run()
    assert "config.json: temperature: input should be less than or equal to 5" in alive.last_messages(2)
    assert "This was not taken" not in alive.last_messages(3)
    assert [request.sampling.temperature for request in alive.model.requests] == [0.0, 0.5, 0.5, 0.5, 0.5, 0.0]


async def test_what_is_switched_off_has_no_effect_and_is_not_spoken_of() -> None:
    may = Autonomy(goal=False, prompt=False, sampling=False, intro=False)
    alive = Alive([act(file="goal", content="evil"), act(file="config.json", content='{"top_k": 1}'), act(command="a")],
                  may)  # fmt: skip
    await alive.run()
    assert not [event for event in await alive.events() if isinstance(event, OwnRules)]
    assert own_part(may, "/workspace") == ()
    assert "config.json" not in "".join(own_part(Autonomy(sampling=False), "/workspace"))


async def test_the_intro_is_done_once_and_before_the_first_turn() -> None:
    alive = Alive([act(command="a"), act(command="b")], Autonomy())
    await alive.run()
    done = [event for event in await alive.events() if isinstance(event, ActionFinished)]
    assert [event.turn for event in done] == [0] * len(INTRO) + [1, 2]
    assert alive.sandbox.ran[:2] == ["ls -la", "git init -q && echo done"]
    assert alive.sandbox.files["/workspace/test.txt"] == b"This is a test.\n"
    first = alive.model.requests[0].messages
    assert [message.role for message in first].count("assistant") == len(INTRO)


async def test_a_run_that_goes_on_has_the_same_rules_and_no_second_intro() -> None:
    alive = Alive([act(file="goal", content="learn C"), act(command="a")], Autonomy())
    await alive.run()
    history = await alive.events()
    again = Alive([act(command="b")], Autonomy())
    again.sandbox.files.update(alive.sandbox.files)
    object.__setattr__(again.parts, "store", alive.store)
    resumed = RunResumed(at=1.0, version="0", model="m", sandbox="memory", budget=Budget(max_turns=3, timeout_s=0))
    finished = await resume(history, resumed, again.parts)
    assert finished.turns == 3
    assert "ls -la" not in again.sandbox.ran
    sent = again.model.requests[0].messages
    assert sent[: len(alive.model.requests[-1].messages) - 1] == alive.model.requests[-1].messages[:-1]
    whole = "\n".join(message.content for message in sent)
    assert whole.count("Your goal from now on: learn C") == 1


async def test_a_loop_does_not_end_it_and_is_taken_out_of_the_prompt() -> None:
    alive = Alive([act(command="first")] + [act(command="ls")] * 30)
    finished = await alive.run()
    assert (finished.reason, finished.turns) == ("turns", 31)
    events = await alive.events()
    forgotten = [event for event in events if isinstance(event, TurnsForgotten)]
    assert len(forgotten) >= 3
    assert len({event.text for event in forgotten}) > 2
    assert [event for event in events if isinstance(event, Nudged) and event.why == "loop"]
    assert alive.sandbox.ran.count("ls") < 8
    assert any(isinstance(event.observation, Refused) for event in events if isinstance(event, ActionFinished))
    warm = [request.sampling.temperature or 0 for request in alive.model.requests]
    assert max(warm) > 1.2
    assert max(len(request.messages) for request in alive.model.requests) < 20


async def test_forgetting_leaves_the_prompt_before_the_loop_as_it_was() -> None:
    alive = Alive([act(command=name) for name in ("make", "cat b", "who am i", "uptime -p")] + [act(command="ls")] * 7)
    await alive.run()
    events = await alive.events()
    first = next(event for event in events if isinstance(event, TurnsForgotten))
    before = alive.model.requests[first.first_turn - 1].messages
    after = alive.model.requests[first.turn - 1].messages
    assert after[: len(before) - 1] == before[:-1]
    assert after[-1].content.startswith(before[-1].content)
    assert "`ls`" in after[-1].content


async def test_something_new_ends_the_way_out() -> None:
    alive = Alive([act(command="ls")] * 6 + [act(command="something else"), act(command="and more"), act(command="x")])
    await alive.run()
    assert alive.sandbox.ran[-3:] == ["something else", "and more", "x"]
    assert alive.model.requests[-1].sampling.temperature == 0.0


async def test_a_tool_is_withheld_in_a_long_loop() -> None:
    alive = Alive([act(command="ls")] * 24)
    await alive.run()
    offered = [len(request.schema_["items"]["anyOf"]) for request in alive.model.requests if request.schema_]
    assert min(offered) == 2
    assert offered[0] == 3


async def test_own_sampling_that_makes_nonsense_is_set_aside() -> None:
    answers = [act(file="config.json", content='{"temperature": 5}'), "nonsense", "nonsense", act(command="ls")]
    alive = Alive(answers, turns=2)
    finished = await alive.run()
    assert finished.reason == "turns"
    warm = [request.sampling.temperature or 0.0 for request in alive.model.requests]
    assert warm[1] == 5
    assert max(warm[2:]) < 1


async def test_unreadable_answers_end_it_in_the_end() -> None:
    alive = Alive(["nonsense"] * 40)
    finished = await alive.run()
    assert (finished.reason, finished.turns, len(alive.model.requests)) == ("unreadable", 0, 20)


class Fits(ScriptedModel):
    """Notes the length of each prompt in characters."""

    async def ask(self, request: ModelRequest, on_text: object = None) -> object:  # type: ignore[override]
        self.lengths = [*getattr(self, "lengths", []), sum(len(message.content) for message in request.messages)]
        return await super().ask(request)


async def test_a_full_window_is_folded_and_what_holds_is_said_again_first() -> None:
    answers = [several({"file": "goal", "content": "learn C"}, {"file": "system.md", "content": "Be brief."})]
    answers += [act(command=f"echo {'abcdefghijklmnopqrstuvwxyz'[n % 26] * 300}") for n in range(60)]
    alive = Alive(answers, window=2048)
    model = Fits(answers, 2048)
    object.__setattr__(alive.parts, "model", model)
    finished = await alive.run()
    assert finished.reason == "turns"
    last = model.requests[-1].messages
    assert last[1].content.startswith("learn C\n\nYour part of the prompt, from system.md:\n=====\nBe brief.")
    assert max(model.lengths) < 2048 * 4


async def test_a_budget_that_ends_is_no_news_for_one_that_cannot_finish() -> None:
    alive = Alive([act(command=name) for name in "abcdefghij"])
    await alive.run()
    assert not [event for event in await alive.events() if isinstance(event, Nudged)]


async def test_state_and_conversation_are_folds_of_the_record() -> None:
    alive = Alive([act(file="goal", content="g")] + [act(command="ls")] * 12, Autonomy())
    await alive.run()
    events = await alive.events()
    context = Context(ListAnswers())
    for event in events:
        context.apply(event)
    assert context.messages()[: len(alive.model.requests[-1].messages) - 1] == alive.model.requests[-1].messages[:-1]
    state = fold(events)
    assert state.own is not None
    assert state.own.goal == "g"


def test_an_ordinary_run_is_guided_as_before() -> None:
    first = started()
    assert isinstance(first, RunStarted)
    assert first.autonomy is None
    assert type(steering_of(first)).__name__ == "Steering"
    assert ModelInfo(name="x", provider="y").local


class Copycat(ScriptedModel):
    """What small models do: the more often something stands in the prompt, the likelier it comes again.

    Warmth helps against it; an empty prompt helps most.
    """

    def __init__(self, seed: int) -> None:
        super().__init__([])
        self._random = random.Random(seed)

    async def ask(self, request: ModelRequest, on_text: OnText | None = None) -> ModelAnswer:
        said = [message.content for message in request.messages if message.role == "assistant"][-8:]
        last = said[-1] if said else ""
        copies = said.count(last)
        stay = min(0.99, 0.6 + 0.13 * copies) - 0.15 * max(0.0, (request.sampling.temperature or 0.0) - 1.0)
        if said and self._random.random() < stay:
            return ModelAnswer(content=last)
        return ModelAnswer(content=act(command="try " + "".join(self._random.choices("abcdefgh", k=6))))


@pytest.mark.parametrize("seed", range(4))
async def test_a_copycat_is_kept_out_of_endless_loops_and_without_it_falls_into_one(seed: int) -> None:
    longest = {}
    for breaking in (True, False):
        alive = Alive([], turns=200)
        may = alive.first.autonomy
        assert may is not None
        object.__setattr__(alive.parts, "steering", Autonomous(may, "/workspace", breaking=breaking))
        object.__setattr__(alive.parts, "model", Copycat(seed))
        finished = await alive.run()
        assert (finished.reason, finished.turns) == ("turns", 200)
        longest[breaking] = circles.longest(circles.repeated(fold(await alive.events()).done))
    assert longest[True] < circles.ENDLESS < longest[False]
