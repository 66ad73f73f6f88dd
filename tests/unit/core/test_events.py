"""Events as lines: whatever the order of their fields, and only those that are events."""

import json
from typing import get_args

import pytest

from stockade.core.actions import Shell, Step
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    MessageInjected,
    RunEvent,
    from_json,
    to_json,
)
from stockade_sandbox.results import Chunk, CommandOutput

EVENTS: tuple[RunEvent, ...] = (
    ActionStarted(
        at=1763800030.123456, turn=3, step=0, action=Step(action=Shell(command="echo \u00e9 \x1b \U0001f600"))
    ),
    ActionFinished(
        at=1e-7, turn=3, step=0, observation=CommandOutput(exit_code=0, chunks=(Chunk.of("stdout", b"\xff\0"),))
    ),
    MessageInjected(at=0.0, turn=1, source="loop", text='{"type":"run_finished"}'),
)


@pytest.mark.parametrize("event", EVENTS)
def test_there_and_back(event: RunEvent) -> None:
    line = to_json(event)
    assert from_json(line) == event
    assert from_json(line.encode()) == event
    assert from_json(to_json(event, ascii_only=True)) == event


@pytest.mark.parametrize("event", EVENTS)
def test_the_order_of_fields_does_not_matter(event: RunEvent) -> None:
    value = json.loads(to_json(event))
    assert from_json(json.dumps(dict(sorted(value.items(), reverse=True)))) == event
    assert from_json(json.dumps(value, indent=1)) == event


def test_every_kind_says_first_what_it_is() -> None:
    for kind in get_args(get_args(RunEvent)[0]):
        assert list(kind.model_fields)[:2] == ["at", "type"], kind


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b'{"at":1.0,"type":"nothing"}',
        b'{"at":1.0,"type":"message_injected"}',
        b'{"at":1.0,"type":"changes_discarded","type":"message_injected"}',
        b'{"at":1.0,"type":"changes_discarded","more":1}',
        b'{"at":1.0,"type":"changes_discarded"} {}',
        b'{"at":"x","type":"changes_discarded"}',
        b"\xff",
    ],
)
def test_what_is_no_event(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(line)
