"""What has failed twice in the same way leaves the prompt."""

import pytest

from stockade.core.actions import (
    Action,
    Chunk,
    CommandOutput,
    FileWritten,
    Observation,
    Refused,
    Shell,
    Step,
    WriteFile,
)
from stockade.core.events import TurnsForgotten
from stockade.loop.advice import failing
from stockade.loop.state import Done, RunState
from stockade.testing import MemorySandbox, say
from tests.unit.loop.helpers import Bench

pytestmark = pytest.mark.anyio
FAILED = CommandOutput(exit_code=1, chunks=(Chunk(stream="stderr", text="Traceback\nno such thing\n"),))
LIST = Shell(command="ls nothing")
BRACE = WriteFile(path="a.sh", content="}")
WELL = (Shell(command="pwd"), CommandOutput(exit_code=0))


def state(*seen: tuple[Action, Observation]) -> RunState:
    made = RunState()
    made.done.extend(Done(turn, Step(action=action), outcome) for turn, (action, outcome) in enumerate(seen, 1))
    return made


@pytest.mark.parametrize(
    ("action", "outcome", "error"),
    [
        (LIST, FAILED, "no such thing"),
        (LIST, CommandOutput(exit_code=3), "exit status 3"),
        (LIST, CommandOutput(exit_code=0, wrote="out.txt is empty."), "out.txt is empty."),
        (
            WriteFile(path="a.sh", content="}"),
            FileWritten(path="a.sh", size=1, wrong="a.sh has a syntax error:\nx"),
            "x",
        ),
        (LIST, Refused(reason="not here"), "not here"),
    ],
)
def test_the_same_failure_twice_is_said_in_a_line(action: Action, outcome: Observation, error: str) -> None:
    found = failing.again(
        state((Shell(command="pwd"), CommandOutput(exit_code=0)), (action, outcome), (action, outcome))
    )
    assert found is not None
    assert found[0] == 2
    assert error in found[1]


@pytest.mark.parametrize(
    "seen",
    [
        (),
        ((LIST, FAILED),),
        ((LIST, FAILED), (Shell(command="pwd"), FAILED)),
        ((LIST, CommandOutput(exit_code=0)), (LIST, CommandOutput(exit_code=0))),
        ((LIST, FAILED), WELL, (LIST, FAILED)),
    ],
)
def test_everything_else_stays(seen: tuple[tuple[Action, Observation], ...]) -> None:
    assert failing.again(state(*seen)) is None


async def test_in_a_run_the_model_does_not_see_them_again() -> None:
    sandbox = MemorySandbox(commands={"ls": "a\n", "frobnicate --all": 127})
    bad, good = say("shell", command="frobnicate --all"), say("shell", command="ls")
    made = Bench([good, bad, bad, good, say("finish", answer="done")], sandbox)
    await made.run()
    forgotten = [event for event in made.shown if isinstance(event, TurnsForgotten)]
    assert [(event.first_turn, event.turn) for event in forgotten] == [(2, 4)]
    after = "\n".join(message.content for message in made.script.requests[3].messages)
    assert '"frobnicate' not in after
    assert "You have tried `frobnicate --all` 2 times, and it does not work" in after
    assert '"ls"' in after
