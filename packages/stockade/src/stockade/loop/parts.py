"""What a run is made of."""

from dataclasses import dataclass, field

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
from stockade.core.tool_plan import OpenSandbox
from stockade.loop.bot import Bot
from stockade.loop.hooks import Hook
from stockade.loop.pause import Pause


@dataclass(frozen=True, slots=True)
class Parts:
    """The adapters of one run, chosen by runtime/factory.py."""

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
    on_event: OnEvent | None = None
    on_text: OnText | None = None
    redactor: Redactor = field(default_factory=Redactor)
    shared: Account | None = None
    """Of the bot that this one works for."""
    bot: Bot = field(default_factory=Bot)
    """What drives the run."""
    open_sandbox: OpenSandbox | None = None
    """Another sandbox, for a bot that needs one."""
