"""Every protocol in the real loop, on a script: what is asked next holds the cleaned answer and what came of it."""

from dataclasses import replace

import pytest

from stockade.core.actions import Answer, Finish, Shell, Step
from stockade.core.messages import ModelAnswer
from stockade.testing import MemorySandbox
from tests.support.parts import PROTOCOLS, make_protocol
from tests.unit.loop.helpers import Bench


@pytest.mark.anyio
@pytest.mark.parametrize("name", PROTOCOLS)
async def test_a_run_in_each_spelling(name: str) -> None:
    protocol = make_protocol(name)
    written = [
        protocol.write(Answer(steps=(Step(action=action),))) for action in (Shell(command="ls"), Finish(answer="42"))
    ]
    script = [ModelAnswer(content=message.content, tool_calls=message.tool_calls or ()) for message in written]
    bench = Bench(script, MemorySandbox({"ls": "a b c"}))
    bench.parts = replace(bench.parts, protocol=protocol)
    finished = await bench.run()
    assert (finished.status, finished.answer) == ("done", "42")
    assert bench.sandbox.ran == ["ls"]
    last = bench.script.requests[-1].messages
    assert last[2] == written[0]
    assert "a b c" in last[3].content
