"""What a run is made of."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stockade.core.actions import Step
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
from stockade.loop.hooks import Hook
from stockade.loop.pause import Pause

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
    asker: Asker | None = None
    helper: Helper | None = None
    reviewer: Reviewer | None = None
    keeper: Keeper | None = None
    pause: Pause = field(default_factory=Pause)
    approver: Approver | None = None
    """Also among the hooks, as Approval; here so that a terminal can attach its user to it."""
    hooks: tuple[Hook, ...] = ()
    """All of them, in the order in which they are asked."""
    intro: tuple[Step, ...] = ()
    """Scripted actions before the first turn of a run that begins."""
    on_event: OnEvent | None = None
    on_text: OnText | None = None
    redactor: Redactor = field(default_factory=Redactor)
    shared: Account | None = None
    """Of the bot that this one works for."""
    drive: "Callable[[RunStarted, Parts, Record, Account], Awaitable[Ending]] | None" = None
    """Done in place of the loop of run.py, when sandbox and model are there. Keeps to the account, ends by name."""
