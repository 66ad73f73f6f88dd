"""Doing a recorded run again, without its model: every action anew in a real sandbox, each result compared."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from stockade.core.actions import Answered, Observation, Refused, Step, ToolResult, Unknown
from stockade.core.events import (
    ActionFinished,
    ActionStarted,
    CheckFinished,
    RunEvent,
    RunResumed,
    RunStarted,
)
from stockade.core.ports import Sandbox
from stockade.core.secrets import Redactor
from stockade.loop.act import Actor
from stockade.loop.resume import shell_script
from stockade.loop.state import RunState
from stockade.loop.verdict import argv_of, observed
from stockade_sandbox.results import CommandOutput

_NOT_AGAIN = (Unknown, Refused, Answered, ToolResult)
_SHELL_S = 20.0


@dataclass(frozen=True, slots=True)
class Compared:
    """One step, done again or passed over. `field` names what differs first, with both values as text; None is nothing.

    `passed_over` says why it was not done again.
    """

    turn: int
    step: int
    action: str
    field: str | None = None
    recorded: str = ""
    now: str = ""
    passed_over: str | None = None


OpenSandbox = Callable[[], AbstractAsyncContextManager[Sandbox]]


Seen = Callable[[Compared], bool]
"""Takes what was compared; False ends it."""


async def verify(history: Sequence[RunEvent], open_sandbox: OpenSandbox, seen: Seen, redactor: Redactor) -> None:
    """Each action of the record, in order. A sandbox is opened anew, on the same folders, where the run was resumed.

    `redactor` knows the values that are not on record: actions are done with them, results compared without.
    """
    state = RunState()
    for part in _parts(history):
        async with open_sandbox() as sandbox:
            if script := shell_script(state):
                await sandbox.run(script, _SHELL_S)
            if not await _part(part, sandbox, state, seen, redactor):
                return


def _parts(history: Sequence[RunEvent]) -> list[list[RunEvent]]:
    parts: list[list[RunEvent]] = [[]]
    for event in history:
        if isinstance(event, RunResumed):
            parts.append([])
        parts[-1].append(event)
    return parts


async def _part(events: Sequence[RunEvent], sandbox: Sandbox, state: RunState, seen: Seen, redactor: Redactor) -> bool:
    begun: ActionStarted | None = None
    for event in events:
        state.apply(event)
        started = state.started
        match event:
            case ActionStarted():
                begun = event
            case ActionFinished() if begun is not None and isinstance(started, RunStarted):
                actor = Actor(sandbox, started.policy.limits)
                if not seen(await _again(begun, event, actor, redactor)):
                    return False
            case CheckFinished():
                limit_s = started.policy.limits.most_seconds or None if isinstance(started, RunStarted) else None
                now = observed(await sandbox.exec(argv_of(redactor.restored(event.command)), timeout_s=limit_s))
                name = f"check {event.command}"
                if not seen(_compared(event.turn, 0, name, event.observation, redactor.observation(now))):
                    return False
            case _:
                pass
    return True


async def _again(begun: ActionStarted, finished: ActionFinished, actor: Actor, redactor: Redactor) -> Compared:
    name = _name(begun.action)
    if isinstance(finished.observation, _NOT_AGAIN):
        why = {"unknown": "nobody knows whether it ran", "refused": "it was not run"}
        kind = finished.observation.kind
        return Compared(begun.turn, begun.step, name, passed_over=why.get(kind, "it was done outside the sandbox"))
    step = Step.model_validate(redactor.restored(begun.action.model_dump()))
    now = redactor.observation(await actor.do(step.action, None))
    return _compared(begun.turn, begun.step, name, finished.observation, now)


def _compared(turn: int, step: int, name: str, recorded: Observation, now: Observation) -> Compared:
    for field in _fields(recorded, now):
        before, after = _text(recorded, field), _text(now, field)
        if before != after:
            return Compared(turn, step, name, field, before, after)
    return Compared(turn, step, name)


def _fields(recorded: Observation, now: Observation) -> list[str]:
    if recorded.kind != now.kind:
        return ["kind"]
    if isinstance(recorded, CommandOutput):
        fields = ["timed_out", "exit_code", "shell_event", "cwd"]
        return fields if recorded.timed_out or recorded.truncated_bytes else [*fields, "stdout", "stderr"]
    return [name for name in type(recorded).model_fields if name != "kind"]


def _text(observation: Observation, field: str) -> str:
    value = getattr(observation, field)
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _name(step: Step) -> str:
    fields = step.action.model_dump(exclude={"tool"}, exclude_none=True)
    return f"{step.action.tool} {next(iter(fields.values()), '')}"
