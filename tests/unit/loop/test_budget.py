"""The loop and its budget: words of warning that only grow the prompt, and budgets that are shared."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from stockade.core.budget import Account, Budget, Spent
from stockade.core.events import MessageInjected
from stockade.core.ports import ExecResult
from stockade.loop.run import run
from stockade.testing import FixedClock, MemorySandbox, say
from stockade_sandbox.policy import Limits, Policy
from stockade_sandbox.results import CommandOutput
from tests.unit.loop.helpers import Bench, started

pytestmark = pytest.mark.anyio


async def test_a_bot_is_warned_twice_and_its_prompt_only_grows() -> None:
    bench = Bench([say("shell", command=f"echo {number}") for number in range(10)])
    finished = await bench.run(started(budget=Budget(max_turns=10)))
    assert finished.reason == "turns"
    told = [event for event in bench.shown if isinstance(event, MessageInjected)]
    assert [(event.source, event.turn) for event in told] == [("budget", 9), ("budget", 10)]
    assert told[0].text == "What is left: 2 of 10 turns. Come to an end in time."
    assert "Finish now" in told[1].text
    for before, after in zip(bench.script.requests, bench.script.requests[1:], strict=False):
        sent = [message.content for message in before.messages]
        assert [message.content for message in after.messages][: len(sent) - 1] == sent[:-1]
        assert after.messages[len(sent) - 1].content.startswith(sent[-1])


async def test_a_run_ends_when_what_it_shares_is_used_up() -> None:
    bench = Bench([say("shell", command=f"echo {number}") for number in range(10)])
    above = Account(Budget(max_turns=7), lambda _now: Spent(turns=4))
    finished = await run(started(), replace(bench.parts, shared=above))
    assert (finished.reason, finished.detail, finished.turns) == ("turns", "turns: 7 of 7, with all bots", 3)


class _TimedSandbox(MemorySandbox):
    """Knows what time each command and check was given."""

    def __init__(self) -> None:
        super().__init__()
        self.given = list[float | None]()

    async def run(self, command: str, timeout_s: float | None = None) -> CommandOutput:
        self.given.append(timeout_s)
        return await super().run(command, timeout_s)

    async def exec(
        self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float | None = None, max_output_bytes: int = 1 << 20
    ) -> ExecResult:
        output = await self.run(argv[-1], timeout_s)
        return ExecResult(exit_code=output.exit_code, stdout=output.output, stderr=b"")


@pytest.mark.parametrize(
    ("limits", "given"),
    [
        (Limits(), [60, 120, 600, 600]),
        (Limits(command_timeout_s=30, longest_command_s=30), [30, 30, 30, 30]),
        (Limits(command_timeout_s=0), [None, 120, 900, None]),
    ],
)
async def test_a_command_has_the_time_that_it_asks_for_and_a_check_the_longest(
    limits: Limits, given: list[float | None]
) -> None:
    asked = [say("shell", command="make"), *(say("shell", command="make", timeout=time) for time in ("120", "900"))]
    sandbox = _TimedSandbox()
    bench = Bench([*asked, say("finish", answer="x")], sandbox)
    first = started(check="make test", budget=Budget(timeout_s=0))
    assert (await bench.run(first.model_copy(update={"policy": Policy(limits=limits)}))).verified
    assert sandbox.given == given


@pytest.mark.parametrize(("left", "given"), [(1000, 600), (100, 100), (20, 60)])
async def test_a_check_has_what_is_left_of_the_run_and_a_minute_at_least(left: float, given: float) -> None:
    sandbox = _TimedSandbox()
    bench = Bench([say("finish", answer="x")], sandbox, clock=FixedClock(started().at))
    assert (await bench.run(started(check="make test", budget=Budget(timeout_s=left)))).verified
    assert sandbox.given == [given]
