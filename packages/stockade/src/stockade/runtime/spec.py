"""What a run is, as one value: what the command line, the Python API, bots and records make and the factory takes; and
the budget that it says.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, field_validator
from pydantic.json_schema import SkipJsonSchema

from stockade.core.budget import Budget, unpriced
from stockade.core.data import Data, first_refused
from stockade.core.errors import UsageError, did_you_mean
from stockade.core.events import Autonomy, RunEvent, RunStarted
from stockade.core.messages import ModelInfo
from stockade.core.model_options import LoadOptions, SamplingOptions
from stockade.core.settings import RunSettings, Setting, key_of
from stockade_sandbox.policy import LEAST_PROCESSES, WORKSPACE, Policy, parse_memory, parse_network, parse_size

if TYPE_CHECKING:
    from stockade.bots.spec import BotSpec
    from stockade.core.ports import Model, Sandbox, Toolbox
    from stockade.loop.hooks import Hook

RECORDED = {
    *LoadOptions.model_fields,
    "api",
    "best_of",
    "fast_model",
    "smart_model",
    "fallback",
    "search",
    "score",
    "loop_repeats",
    "small_models",
}
"""RunSpec that are on record as they were given."""


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


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run on record that shall go on: its first event with the values that were hidden, and all of its events.
    `changed`: the settings that were set anew; `from_scratch`: also where what it wrote is gone.
    """

    started: RunStarted
    history: tuple[RunEvent, ...]
    changed: frozenset[str] = frozenset()
    from_scratch: bool = False


class Objects:
    """What a program passes as objects, where the command line has names.

    `sandbox`: one that is up and stays so, with its policy. `policy`: for a new one, in place of the settings'. `model`
    is taken at its word: nothing is tried with it. `tools` and `hooks` come on top of those of the settings. `record`:
    the run is none that begins (runtime/resume.py makes the whole of its RunSpec). `run_id`: of one that begins, where
    who asks for it has named it already.
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
        record: Recorded | None = None,
        run_id: str | None = None,
    ) -> None:
        self.bot, self.model, self.sandbox, self.policy = bot, model, sandbox, policy
        self.tools, self.hooks, self.record, self.run_id = tools, hooks, record, run_id

    def but(self, **changed: object) -> "Objects":
        """The same, but for these."""
        return Objects(**{**vars(self), **changed})


class NotOneOf(ValueError):
    """A value that is none of a setting's `choices`; `hint` is the one that was meant, perhaps."""

    def __init__(self, value: str, *choices: str) -> None:
        super().__init__(f"{value!r} is not one of {', '.join(choices)}")
        self.hint = did_you_mean(value, choices)


class RunSpec(
    RunSettings, SamplingOptions, LoadOptions, arbitrary_types_allowed=True, alias_generator=key_of, allow_inf_nan=False
):
    """What a run is: its task, all that may be set (core/settings.py), and what a program passes as objects."""

    task: str = ""
    hooks: Annotated[
        tuple[str | HookCommand, ...],
        Setting("Hooks, in order; `-NAME` leaves one out (docs/hooks.md).", in_bots=True),
    ] = Field(default=(), description="a list of names, or tables with name, on, command and timeout (docs/hooks.md)")
    granted: SkipJsonSchema[int | None] = Field(default=0, ge=0, exclude=True)
    """Actions that a bot which asks does without a question; None: any number."""
    program_model: SkipJsonSchema[str] = Field(default="", exclude=True)
    """What the user named for this run, for a bot that is a program: a configured model is for bots of ours."""
    objects: SkipJsonSchema[Objects] = Field(default_factory=Objects, exclude=True)

    @field_validator("net")
    @classmethod
    def _network(cls, value: str) -> str:
        parse_network(value)
        return value

    @field_validator("approve")
    @classmethod
    def _approve(cls, value: str) -> str:
        if value not in ("never", "ask", "rules") and len(value.removeprefix("rules=")) in (0, len(value)):
            raise NotOneOf(value, "never", "ask", "rules", "rules=FILE")
        return value

    @field_validator("check", "score")
    @classmethod
    def _commands(cls, value: tuple[str, ...] | str | None) -> tuple[str, ...] | str | None:
        """An empty one (a variable that is not set, perhaps) would pass."""
        if any(not one.strip() for one in ((value,) if isinstance(value, str) else value or ())):
            raise ValueError("the command is empty, and would always pass: leave it out, or say `true`")
        return value

    @field_validator("protect")
    @classmethod
    def _protect(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Relative to the working folder."""
        return tuple(_protected(one) for one in value)

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


def _protected(text: str) -> str:
    path = PurePosixPath(text)
    if path.is_absolute() and path.is_relative_to(WORKSPACE):
        path = path.relative_to(WORKSPACE)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in text:
        raise ValueError(f"{text!r} is no path in the folder: give it relative to the folder, like tests")
    return str(path)


def autonomy(spec: RunSpec) -> Autonomy:
    """What a bot without an end may set itself."""
    return Autonomy(goal=spec.own_goal, prompt=spec.own_prompt, sampling=spec.own_sampling, intro=spec.intro)


def make_budget(spec: RunSpec, default: Budget) -> Budget:
    """`default` with what was set: by the user, or in the bot's file."""
    bounds = {
        "max_turns": spec.max_turns,
        "timeout_s": spec.timeout,
        "max_tokens": spec.max_tokens,
        "max_cost": spec.max_cost,
    }
    return default.model_copy(update={name: value for name, value in bounds.items() if value is not None})


def check_priced(budget: Budget, info: ModelInfo, name: str) -> None:
    """UsageError when a bound on cost is asked for and nobody says what the model costs."""
    if budget.max_cost and not info.priced:
        if info.provider == "program":
            what = "--max-cost cannot be kept: a program asks its own model"
            raise UsageError(what, "--timeout S bounds it; -o max_cost=0 lifts the bound of your settings")
        raise UsageError(unpriced(name), "write it into prices.toml (docs/models.md)")


def spec_of(given: Mapping[str, Any]) -> RunSpec:
    """A RunSpec by the names of the command line. UsageError for a name or value that is none."""
    try:
        values = {key: value for key, value in given.items() if value is not None}
        if not isinstance(schema := values.get("output_schema", ""), str):  # from Python
            values["output_schema"] = json.dumps(schema) if isinstance(schema, Mapping) else str(schema)
        return RunSpec.model_validate(values)
    except ValidationError as error:
        key, words = first_refused(error, RunSpec)
        raise UsageError(f"{key}{words}") from None
