"""The hook port: who is asked when, what a hook can do, and what becomes of a broken one."""

import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from stockade.core.actions import Action, Finish, Observation, Refused, Step
from stockade.core.events import ActionFinished, ActionStarted, HookRan, MessageInjected, RunFinished
from stockade.core.messages import Sampling
from stockade.loop.hooks import Accept, AddMessage, AddWords, EndRun, Hook, HookContext, Refuse, SendBack
from stockade.plugins.command_hooks import CommandHook, Moment
from stockade.testing import MemorySandbox, say
from stockade_sandbox.results import CommandOutput
from tests.cli.conftest import gone, watched
from tests.unit.loop.helpers import Bench, HereSandbox, started

pytestmark = pytest.mark.anyio
LIST, DONE = say("shell", command="ls"), say("finish", answer="x")


def bench(*answers: str, hooks: tuple[Hook, ...], sandbox: MemorySandbox | None = None) -> Bench:
    made = Bench(answers, sandbox)
    object.__setattr__(made.parts, "hooks", (*made.parts.hooks, *hooks))
    return made


class Watch(Hook):
    """Notes what it is asked, in `asked`, which several share; answers as it was told."""

    def __init__(self, name: str, asked: list[str], **answers: Any) -> None:
        self.name, self.asked, self.answers = name, asked, answers

    def _said(self, moment: str) -> Any:
        self.asked.append(f"{self.name}.{moment}")
        answer = self.answers.get(moment)
        return answer.pop(0) if isinstance(answer, list) and answer else None if isinstance(answer, list) else answer

    async def before_turn(self, ctx: HookContext) -> AddMessage | EndRun | None:
        answer: AddMessage | EndRun | None = self._said("before_turn")
        return answer

    async def before_action(self, ctx: HookContext, action: Action) -> Refuse | EndRun | None:
        answer: Refuse | EndRun | None = self._said("before_action")
        return answer

    async def after_action(self, ctx: HookContext, step: Step, observation: Observation) -> AddWords | None:
        answer: AddWords | None = self._said("after_action")
        return answer

    async def before_finish(self, ctx: HookContext, finish: Finish) -> Accept | SendBack | EndRun | None:
        answer: Accept | SendBack | EndRun | None = self._said("before_finish")
        return answer


async def test_all_are_asked_in_their_order_and_all_words_are_added() -> None:
    asked: list[str] = []
    first = Watch("a", asked, before_turn=[AddMessage("m1")], after_action=AddWords("w1", rule="r"))
    second = Watch("b", asked, before_turn=[AddMessage("m2")], after_action=AddWords("w2"))
    run = bench(LIST, DONE, hooks=(first, second))
    assert (await run.run()).status == "done"
    moments = ["before_turn", "before_action", "after_action", "before_turn", "before_finish"]
    assert asked == [f"{name}.{moment}" for moment in moments for name in "ab"]
    opening, observed = run.script.requests[0].messages[-1], run.script.requests[1].messages[-1]
    assert opening.content.endswith("\n\nm1\n\nm2")
    assert observed.content.endswith("\n[a] w1\n[b] w2")
    (done,) = [event for event in run.shown if isinstance(event, ActionFinished)]
    assert [(words.hook, words.rule) for words in done.words] == [("a", "r"), ("b", "")]


async def test_the_first_refusal_stands_is_on_record_and_no_later_hook_is_asked() -> None:
    asked: list[str] = []
    run = bench(LIST, DONE, hooks=(Watch("a", asked, before_action=Refuse("no", rule="r")), Watch("b", asked)))
    assert (await run.run()).status == "done"
    assert "b.before_action" not in asked
    assert run.sandbox.ran == []
    (done,) = [event for event in run.shown if isinstance(event, ActionFinished)]
    assert done.observation == Refused(reason="no", by="a", rule="r")
    assert "This was not run: no" in run.script.requests[1].messages[-1].content


async def test_a_finish_is_sent_back_with_the_reason_until_the_hook_lets_it_stand() -> None:
    hook = Watch("a", [], before_finish=[SendBack("not yet", rule="r"), SendBack("nor now")])
    run = bench(DONE, DONE, say("finish", answer="last"), hooks=(hook,))
    finished = await run.run()
    assert (finished.status, finished.answer, finished.turns) == ("done", "last", 3)
    said = [(one.source, one.text, one.rule) for one in run.shown if isinstance(one, MessageInjected)]
    assert said == [("a", "not yet", "r"), ("a", "nor now", "")]


async def test_a_hook_of_the_users_is_asked_where_the_check_has_passed(tmp_path: Path) -> None:
    hook = Watch("a", [], before_finish=[SendBack("and the changelog?")])
    run = bench(DONE, say("finish", answer="last"), hooks=(hook,), sandbox=HereSandbox(tmp_path))
    finished = await run.run(started(check="true"))
    assert (finished.answer, finished.verified, finished.turns) == ("last", True, 2)


async def test_who_accepts_a_finish_is_the_last_to_be_asked() -> None:
    asked: list[str] = []
    run = bench(
        DONE, hooks=(Watch("a", asked, before_finish=Accept()), Watch("b", asked, before_finish=SendBack("no")))
    )
    assert (await run.run()).status == "done"
    assert "b.before_finish" not in asked


@pytest.mark.parametrize("moment", ["before_turn", "before_action", "before_finish"])
async def test_a_run_is_ended_by_name(moment: str) -> None:
    answers = (DONE,) if moment == "before_finish" else (LIST,)
    run = bench(*answers, hooks=(Watch("a", [], **{moment: EndRun("stopped", "hook", "enough")}),))
    finished = await run.run()
    assert (finished.status, finished.reason, finished.detail) == ("stopped", "hook", "enough")
    assert run.sandbox.ran == []
    starts = [event for event in run.shown if isinstance(event, ActionStarted)]
    ends = [event for event in run.shown if isinstance(event, ActionFinished)]
    assert len(starts) == len(ends)  # else a run that goes on says that it is unknown whether it ran


class Warm(Hook):
    name = "warm"

    def sampling(self, ctx: HookContext, sampling: Sampling) -> Sampling:
        return sampling.model_copy(update={"temperature": (sampling.temperature or 0) + 0.25})


async def test_each_chooses_the_sampling_on_from_the_one_before() -> None:
    run = bench(DONE, hooks=(Warm(), Warm()))
    await run.run()
    assert run.script.requests[0].sampling.temperature == 0.5


class Counts(Hook):
    name = "counts"

    async def after_action(self, ctx: HookContext, step: Step, observation: Observation) -> AddWords | None:
        await ctx.exec(["cat", "/note"])
        return AddWords("again") if ctx.count("words") < 2 else None


async def test_a_hook_counts_what_it_said_and_its_commands_are_on_record() -> None:
    run = bench(*[say("shell", command=f"echo {n}") for n in range(4)], DONE, hooks=(Counts(),))
    await run.run()
    done = [event for event in run.shown if isinstance(event, ActionFinished)]
    assert [len(event.words) for event in done] == [1, 1, 0, 0]
    ran = [(event.hook, event.argv) for event in run.shown if isinstance(event, HookRan)]
    assert ran == [("counts", ("cat", "/note"))] * 4


async def raises(*_: object) -> Any:
    raise ValueError("oh")


async def times_out(*_: object) -> Any:
    raise TimeoutError("mine")


async def hangs(*_: object) -> Any:
    await anyio.sleep_forever()


async def exits(*_: object) -> Any:
    sys.exit(3)


async def cancels_itself(*_: object) -> Any:
    raise anyio.get_cancelled_exc_class()


async def blocks(*_: object) -> Any:
    time.sleep(3600)  # noqa: ASYNC251 - that is what is wrong with it


async def spins(*_: object) -> Any:
    await anyio.sleep(0.001)
    while True:
        pass


def is_no_coroutine(*_: object) -> Any:
    return AddMessage("x")


def says(answer: object) -> Callable[..., Awaitable[Any]]:
    async def method(*_: object) -> Any:
        return answer

    return method


def sampling_that(act: Callable[[], object]) -> Hook:
    class Mine(Hook):
        name, timeout_s = "mine", 0.05

        def sampling(self, ctx: HookContext, sampling: Sampling) -> Sampling:
            act()
            return sampling

    return Mine()


@pytest.mark.parametrize(
    ("act", "why"), [(sys.exit, "it raised SystemExit"), (lambda: time.sleep(3600), "it blocked for 0.05 s")]
)
async def test_a_broken_choice_of_sampling_too(act: Callable[[], object], why: str) -> None:
    finished = await bench(LIST, DONE, hooks=(sampling_that(act),)).run()
    assert (finished.status, finished.reason) == ("failed", "hook")
    assert f"the hook 'mine' is broken: {why}" in finished.detail


async def test_a_message_without_words_is_none() -> None:
    run = bench(LIST, DONE, hooks=(Watch("mine", [], before_turn=AddMessage("")),))
    assert (await run.run()).status == "done"
    assert [event for event in run.shown if isinstance(event, MessageInjected)] == []


async def test_a_run_that_is_cancelled_while_a_hook_waits_is_no_broken_hook() -> None:
    run = bench(LIST, DONE, hooks=(waiting := Watch("mine", []),))
    waiting.timeout_s = None
    setattr(waiting, "before_action", hangs)  # noqa: B010 - as a method of another class
    with anyio.move_on_after(0.2):
        await run.run()
    ended = [event for event in run.shown if isinstance(event, RunFinished)]
    assert [(event.status, event.reason) for event in ended] == [("stopped", "user")]


BROKEN = [
    (raises, "it raised ValueError: oh"),
    (times_out, "it raised TimeoutError: mine"),
    (hangs, "it did not answer within 0.05 s"),
    (exits, "it raised SystemExit: 3"),
    (cancels_itself, "it was cancelled from within"),
    (blocks, "it blocked for 0.05 s"),
    (spins, "it blocked for 0.05 s"),
    (is_no_coroutine, "it raised TypeError"),
    (lambda: None, "it raised TypeError"),
    (says("words"), "it answered str; wanted is one of"),
    (says(Sampling()), "it answered Sampling; wanted is one of"),
]


@pytest.mark.parametrize(("method", "why"), BROKEN, ids=[why for _, why in BROKEN])
@pytest.mark.parametrize("moment", ["before_turn", "before_action", "after_action", "before_finish"])
async def test_a_broken_hook_is_named_and_nothing_is_lost(moment: str, method: Any, why: str) -> None:
    """On 1cf529c a method that is no coroutine, or has other arguments, was a bug of ours."""
    hook = Hook()
    hook.name, hook.timeout_s = "mine", 0.05
    setattr(hook, moment, method)
    run = bench(say("shell", command="touch x"), DONE, hooks=(hook,))
    finished = await run.run()
    assert (finished.status, finished.reason) == ("failed", "hook")
    assert "the hook 'mine' is broken: " in finished.detail
    assert why in finished.detail
    assert "-o hooks=-mine" in finished.detail
    starts = [event for event in run.shown if isinstance(event, ActionStarted)]
    ends = [event for event in run.shown if isinstance(event, ActionFinished)]
    assert len(starts) == len(ends)
    assert run.sandbox.ran == (["touch x"] if moment in ("after_action", "before_finish") else [])


@pytest.mark.parametrize(
    ("moment", "answer"),
    [
        ("before_turn", AddMessage(5)),  # type: ignore[arg-type]
        ("before_turn", AddMessage("\ud800")),
        ("before_turn", EndRun("over", "hook")),  # type: ignore[arg-type]
        ("before_turn", EndRun("stopped", "because")),  # type: ignore[arg-type]
        ("before_action", Refuse(None)),  # type: ignore[arg-type]
        ("after_action", AddWords(b"x")),  # type: ignore[arg-type]
        ("before_finish", SendBack(["x"])),  # type: ignore[arg-type]
    ],
)
async def test_an_answer_that_cannot_go_on_record_is_nonsense_too(moment: str, answer: object) -> None:
    """On 1cf529c it was "a bug in Stockade"."""
    run = bench(LIST, DONE, hooks=(Watch("mine", [], **{moment: answer}),))
    finished = await run.run()
    assert (finished.status, finished.reason) == ("failed", "hook")
    assert "the hook 'mine' is broken" in finished.detail


async def test_a_sampling_that_is_none_is_nonsense() -> None:
    hook = Hook()
    hook.sampling = lambda *_: None  # type: ignore[method-assign, assignment]
    finished = await bench(DONE, hooks=(hook,)).run()
    assert (finished.reason, "it chose NoneType" in finished.detail) == ("hook", True)


def command(on: Moment, script: str, timeout_s: float = 60) -> CommandHook:
    """A real process of Python; `given` is what it reads."""
    text = f"import json, sys\ngiven = json.load(sys.stdin)\n{script}"
    return CommandHook("mine", on, [sys.executable, "-c", text], timeout_s)


def says_back(on: Moment, key: str, value: str) -> CommandHook:
    return command(on, f"print(json.dumps({{{key!r}: {value}}}))")


async def test_a_command_is_told_what_a_hook_sees(tmp_path: Path) -> None:
    path = tmp_path / "seen"
    note = f"open({str(path)!r}, 'a').write(json.dumps(given) + '\\n')"
    moments: tuple[Moment, ...] = ("before_turn", "before_action", "after_action", "before_finish")
    hooks = tuple(command(moment, note) for moment in moments)
    sandbox = MemorySandbox({"ls": CommandOutput(exit_code=3)})
    assert (await bench(LIST, DONE, hooks=hooks, sandbox=sandbox).run()).status == "done"
    seen = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(one["on"], one["turn"]) for one in seen] == [
        ("before_turn", 0), ("before_action", 1), ("after_action", 1), ("before_turn", 1), ("before_finish", 2)
    ]  # fmt: skip
    assert {(one["run"], one["task"]) for one in seen} == {("r1", "do it")}
    assert seen[1]["action"] == {"tool": "shell", "command": "ls", "timeout_s": None}
    assert seen[2]["observation"]["exit_code"] == 3
    assert seen[4]["answer"] == "x"


async def test_a_command_speaks_refuses_and_sends_back() -> None:
    hooks = (
        says_back("before_turn", "message", "f'turn {given[\"turn\"]}'"),
        says_back("before_action", "refuse", "given['action']['command']"),
    )
    run = bench(LIST, DONE, hooks=hooks)
    assert (await run.run()).status == "done"
    assert run.sandbox.ran == []
    assert "This was not run: ls" in run.script.requests[1].messages[-1].content
    assert [one.text for one in run.shown if isinstance(one, MessageInjected)] == ["turn 0", "turn 1"]
    words = bench(LIST, DONE, hooks=(says_back("after_action", "words", "'ü'"),))
    await words.run()
    assert words.script.requests[1].messages[-1].content.endswith("\n[mine] ü")
    back = bench(DONE, say("finish", answer="y"), hooks=(says_back("before_finish", "send_back", "given['answer']"),))
    assert (await back.run()).reason == "model"  # it sends every finish back, and the script is at its end
    end = bench(LIST, hooks=(says_back("before_action", "end", "'enough'"),))
    finished = await end.run()
    assert (finished.status, finished.reason, finished.detail) == ("stopped", "hook", "enough")


NONSENSE = [
    ("print('yes')", "what it wrote is not JSON"),
    ("print('[1]')", "it wants one key of message, end"),
    ('print(\'{"refuse": "x"}\')', "it wants one key of message, end"),
    ("print('{\"message\": 5}')", "message is no text"),
    ('print(\'{"message": "a", "end": "b"}\')', "it wants one key of message, end"),
    ('print(\'{"message": "\\\\ud800"}\')', "is no text"),
    ("sys.exit('first\\nno such rule')", "ended with exit status 1: no such rule"),
    ("print('x' * 200_000)", "it wrote more than 100000 bytes"),
    ("while True: print('x' * 10_000)", "it wrote more than 100000 bytes"),
]


@pytest.mark.parametrize(("script", "why"), NONSENSE)
async def test_a_command_that_talks_nonsense_is_named(script: str, why: str) -> None:
    finished = await bench(LIST, DONE, hooks=(command("before_turn", script),)).run()
    assert (finished.status, finished.reason) == ("failed", "hook")
    assert why in finished.detail
    assert "'mine'" in finished.detail


async def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """On 1cf529c what it had started went on."""
    script = f"(echo $BASHPID > {tmp_path}/child; exec sleep 1000) & wait"
    hook = CommandHook("mine", "before_turn", ["bash", "-c", script], 3)
    finished = await bench(LIST, hooks=(hook,)).run()
    assert "it did not answer within 3 s" in finished.detail
    assert gone(watched([int((tmp_path / "child").read_text())]))


async def test_a_command_need_not_read_and_may_be_told_much() -> None:
    sandbox = MemorySandbox({"ls": "x" * 3_000_000})
    silent = CommandHook("mine", "after_action", ["true"], 60)
    assert (await bench(LIST, DONE, hooks=(silent,), sandbox=sandbox).run()).status == "done"


async def test_a_command_that_is_not_there_is_named() -> None:
    finished = await bench(LIST, hooks=(CommandHook("mine", "before_turn", ["/no/such"], 5),)).run()
    assert "/no/such cannot be started: No such file or directory" in finished.detail
