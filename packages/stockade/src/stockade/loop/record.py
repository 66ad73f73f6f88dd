"""The only way an event comes to be: on disk first, then into the state and the conversation, then shown."""

from dataclasses import dataclass, field
from functools import partial

import anyio

from stockade.core.actions import Answered, Refused
from stockade.core.events import ActionFinished, Checkpoint, RunEvent
from stockade.core.ports import OnEvent, RunStore
from stockade.core.secrets import Redactor
from stockade.loop.context import Context
from stockade.loop.state import RunState


@dataclass(slots=True)
class Record:
    """The events of one run, and what follows from them."""

    run_id: str
    store: RunStore
    context: Context
    listener: OnEvent | None = None
    redactor: Redactor = field(default_factory=Redactor)
    state: RunState = field(default_factory=RunState)
    turn: anyio.Lock = field(default_factory=partial(anyio.Lock, fast_acquire=True))

    async def add(self, *events: RunEvent) -> None:
        """Returns when `events` are on disk and taken in, without the secrets in them."""
        events = tuple(self.redactor.event(event) for event in events)
        async with self.turn:  # what the network has to say comes at any time: one order on disk and here
            await self.store.append(self.run_id, events, durable=not all(_may_wait(event) for event in events))
            for event in events:
                self.state.apply(event)
                self.context.apply(event)
                if self.listener is not None:
                    self.listener(event)


def _may_wait(event: RunEvent) -> bool:
    """Whether it need not be synced before the model's next answer is: a power cut leaves its action "unknown" then.

    What a person said is: nobody says it again. docs/record.md has the whole reasoning.
    """
    if isinstance(event, ActionFinished):
        return not isinstance(event.observation, Answered | Refused)
    return isinstance(event, Checkpoint)
