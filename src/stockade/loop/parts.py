"""What a run is made of."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stockade.core.budget import Account
from stockade.core.ports import (
    AnswerProtocol,
    Approver,
    Asker,
    Clock,
    Helper,
    Keeper,
    Model,
    OnEvent,
    OnText,
    Reviewer,
    RunStore,
    Sandbox,
    Toolbox,
)
from stockade.core.secrets import Redactor
from stockade.loop.pause import Pause
from stockade.loop.steering import Steering

if TYPE_CHECKING:
    from stockade.core.events import RunStarted
    from stockade.loop.ending import Ending
    from stockade.loop.record import Record


@dataclass(frozen=True, slots=True)
class Parts:
    """The adapters of one run, chosen by assemble.py."""

    model: Model
    protocol: AnswerProtocol
    sandbox: Sandbox
    store: RunStore
    clock: Clock
    tools: tuple[str, ...]
    toolboxes: tuple[Toolbox, ...] = ()
    approver: Approver | None = None
    asker: Asker | None = None
    helper: Helper | None = None
    reviewer: Reviewer | None = None
    keeper: Keeper | None = None
    pause: Pause = field(default_factory=Pause)
    steering: Steering = field(default_factory=Steering)
    on_event: OnEvent | None = None
    on_text: OnText | None = None
    redactor: Redactor = field(default_factory=Redactor)
    shared: Account | None = None
    """Of the bot that this one works for."""
    drive: "Callable[[RunStarted, Parts, Record, Account], Awaitable[Ending]] | None" = None
    """Done in place of the loop of run.py, when sandbox and model are there. Keeps to the account, ends by name."""
