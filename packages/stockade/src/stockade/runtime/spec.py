"""What a person may set of a run: each is a flag, a `STOCKADE_*` variable and a TOML key of one name."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator
from pydantic.json_schema import SkipJsonSchema

from stockade.core.data import Data
from stockade.core.errors import UsageError
from stockade.core.events import Autonomy
from stockade.core.model_options import LoadOptions, SamplingOptions
from stockade.core.settings import RunSettings, Setting, key_of
from stockade_sandbox.policy import LEAST_PROCESSES, Policy, parse_memory, parse_network, parse_size

if TYPE_CHECKING:
    from stockade.bots.spec import BotSpec
    from stockade.core.ports import Model, Sandbox, Toolbox
    from stockade.loop.hooks import Hook

REMOTE = "remote="
"""Before the address of a sandbox on another machine."""
LOADING = set(LoadOptions.model_fields)
"""RunSpec of a model that a run goes on with."""
RECORDED = {*LOADING, "fast_model", "search", "loop_repeats", "small_models"}
"""RunSpec that are on record as they were given."""
RENAMED = {"secret": "redact", "advice": "small_models"}
"""Settings of version 1 and what they are called now."""


class HookCommand(Data):
    """A program of the user's, run on this machine: JSON on its standard input, JSON back (docs/hooks.md)."""

    name: str = Field(min_length=1)
    on: Literal["before_turn", "before_action", "after_action", "before_finish"]
    command: Annotated[
        tuple[str, ...],
        BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
        Field(min_length=1),
    ]
    timeout: float = Field(default=10.0, gt=0)


class Objects:
    """What a program passes as objects, where the command line has names.

    `sandbox`: one that stays up, with its policy. `policy`: for a new one, in place of the settings'. `model` is taken
    at its word: nothing is tried with it. `tools` and `hooks` come on top of those of the settings.
    """

    def __init__(
        self,
        *,
        bot: "BotSpec | None" = None,
        model: "Model | None" = None,
        sandbox: "tuple[Sandbox, Policy] | None" = None,
        policy: Policy | None = None,
        tools: "tuple[Toolbox, ...]" = (),
        hooks: "tuple[Hook, ...]" = (),
    ) -> None:
        self.bot, self.model, self.sandbox, self.policy = bot, model, sandbox, policy
        self.tools, self.hooks = tools, hooks


class RunSpec(RunSettings, SamplingOptions, LoadOptions, arbitrary_types_allowed=True, alias_generator=key_of):
    """What a run is: its task, all that may be set (core/settings.py), and what a program passes as objects."""

    task: str = ""
    hooks: Annotated[
        tuple[str | HookCommand, ...],
        Setting("Hooks, in order; `-NAME` leaves one out (docs/hooks.md).", in_bots=True),
    ] = Field(default=(), description="a list of names, or tables with name, on, command and timeout (docs/hooks.md)")
    granted: SkipJsonSchema[int | None] = Field(default=0, ge=0, exclude=True)
    """Actions that a bot which asks does without a question; None: any number."""
    objects: SkipJsonSchema[Objects] = Field(default_factory=Objects, exclude=True)

    @field_validator("net")
    @classmethod
    def _network(cls, value: str) -> str:
        parse_network(value)
        return value

    @field_validator("memory")
    @classmethod
    def _memory(cls, value: str | None) -> str | None:
        if value is not None:
            parse_memory(value)
        return value

    @field_validator("disk")
    @classmethod
    def _disk(cls, value: str | None) -> str | None:
        if value is not None:
            parse_size(value)
        return value

    @field_validator("processes")
    @classmethod
    def _processes(cls, value: int | None) -> int | None:
        if value and value < LEAST_PROCESSES:
            raise ValueError(f"{value} is too few: at least {LEAST_PROCESSES} (a shell and a pipe; 0 is no limit)")
        return value


def autonomy(options: RunSpec) -> Autonomy:
    """What a bot without an end may set itself."""
    return Autonomy(
        goal=options.own_goal, prompt=options.own_prompt, sampling=options.own_sampling, intro=options.intro
    )


def current_folder() -> Path:
    """UsageError when it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current folder is gone", "cd to one that is there") from None
