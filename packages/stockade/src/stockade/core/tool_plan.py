"""How a tool comes into a run, in two steps, because some change the sandbox that they are for: a plan before there is
one, its toolboxes with it.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from stockade.core.ports import OnProgress, Sandbox, Toolbox
from stockade_sandbox.policy import Policy
from stockade_sandbox.results import NetworkRequest

IN_PROCESS = "python:"
"""On record before the name of a tool that is an object of the program that began the run."""
OpenSandbox = Callable[[Policy], AbstractAsyncContextManager[Sandbox]]
"""A sandbox of its own for a policy, sealed as the run's is, which leaves nothing behind."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool is made with: the run's sandbox, its policy, and what it may say to the record."""

    sandbox: Sandbox
    policy: Policy
    bot: str
    state: Path
    """The state folder of Stockade, for what lasts longer than a run."""

    search: str | None = None
    """The search engine that the user named."""

    def on_network(self, request: NetworkRequest) -> None:
        """Puts it on record like those of the run's sandbox, whose hearer is set by the loop before it is entered."""
        if self.sandbox.on_network is not None:
            self.sandbox.on_network(request)


MakeToolbox = Callable[[ToolContext], Toolbox]


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """`actions`: the built-in ones that are offered. `asked`: names and files, for a run that goes on. `usage`: what
    the bot is told of tools that it calls by the shell. `policy`: with what the tools need in the sandbox."""

    policy: Policy
    actions: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    makers: tuple[MakeToolbox, ...] = ()
    usage: tuple[str, ...] = ()

    def toolboxes(self, context: ToolContext) -> tuple[Toolbox, ...]:
        return tuple(make(context) for make in self.makers)

    def with_objects(self, boxes: Sequence[Toolbox]) -> "ToolPlan":
        """With tools that are objects of the program that begins the run."""
        names = tuple(f"{IN_PROCESS}{getattr(box, '__name__', type(box).__name__)}" for box in boxes)
        return replace(
            self, makers=(*self.makers, *(partial(given, box) for box in boxes)), asked=(*self.asked, *names)
        )


def given(box: Toolbox, _: ToolContext) -> Toolbox:
    """MakeToolbox of a tool that is there already."""
    return box


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A file that was given as a tool, and how the run is set up so far."""

    path: Path
    plan: ToolPlan
    allowed_external: Sequence[str] = ()
    on_progress: OnProgress | None = None
    redact: Sequence[str] = ()
    """Variables of the host whose values stay out of the sandbox and of the record."""
    again: bool = False
    """The run goes on: what the tool needs in the sandbox is in its policy already."""
    open_sandbox: OpenSandbox | None = None
    """A sandbox of its own for what has to be made ready."""


ToolFile = Callable[[ToolRequest], ToolPlan]
"""The plan with the tools of one file in it. Blocks. Raises UsageError, naming the file, when it cannot be used."""
