"""The loop and its budget: words of warning that only grow the prompt, and budgets that are shared."""

from dataclasses import replace

import pytest

from stockade.core.budget import Account, Budget, Spent
from stockade.core.events import MessageInjected
from stockade.loop.run import run
from stockade.testing import say
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
