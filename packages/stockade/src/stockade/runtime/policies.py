"""From what a person set to the policy and the budget of a run: plain data."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from stockade.core.budget import Budget
from stockade.core.errors import UsageError
from stockade.core.messages import ModelInfo
from stockade.runtime.spec import RunSpec
from stockade_sandbox.policy import (
    WORKSPACE,
    CopyRule,
    FolderMode,
    FolderRule,
    Limits,
    Policy,
    parse_folder,
    parse_network,
    parse_size,
)


def make_policy(options: RunSpec, default_mode: FolderMode) -> Policy:
    """The policy of the flags. The first folder is /workspace, others are /folders/NAME."""
    folders: list[FolderRule] = []
    for number, text in enumerate(options.folder):
        rule = parse_folder(text, default_mode, WORKSPACE)
        folders.append(rule if not number else replace(rule, inside=f"/folders/{Path(rule.host).name}"))
    real = [os.path.realpath(rule.host) for rule in folders]
    for number, rule in enumerate(folders):
        if real[number] in real[:number]:
            raise UsageError(f"the folder {rule.host} is given twice", "give it once, with one mode")
    if len({rule.inside for rule in folders}) != len(folders):
        raise UsageError("two folders have the same name", "rename one of them, or mount their parent")
    return Policy(
        folders=tuple(folders),
        copies=tuple(_copy_rule(text) for text in options.copy_in),
        network=parse_network(options.net),
        limits=_limits(options),
        environment=environment_of(options),
        rootfs=options.image,
    )


def _copy_rule(text: str) -> CopyRule:
    host, _, inside = text.partition(":")
    path = Path(host).expanduser().absolute()
    if not path.exists():
        raise UsageError(f"--copy {host}: there is no such file or folder")
    return CopyRule(host=str(path), inside=inside or f"/copied/{path.name}")


def _limits(options: RunSpec) -> Limits:
    given: dict[str, Any] = {"processes": options.processes, "command_timeout_s": options.command_timeout}
    for name, text in (("memory_bytes", options.memory), ("disk_bytes", options.disk)):
        given[name] = None if text is None else parse_size(text)
    if given["disk_bytes"] is not None:
        given["file_bytes"] = given["disk_bytes"] // 2
    return Limits(**{name: value for name, value in given.items() if value is not None})


def environment_of(options: RunSpec) -> dict[str, str]:
    """The variables that the sandbox is given. UsageError for what is none, or not set here."""
    return dict(_variable(text) for text in options.env)


def _variable(text: str) -> tuple[str, str]:
    name, given, value = text.partition("=")
    if not name.replace("_", "a").isalnum() or name[0].isdigit():
        raise UsageError(
            f"--env {name!r} is not the name of a variable", "write NAME=VALUE; a name is of letters, digits and _"
        )
    if not given:
        if name not in os.environ:
            raise UsageError(f"--env {name}: the variable is not set here", f"write --env {name}=VALUE")
        value = os.environ[name]
    return name, value


def make_budget(options: RunSpec, default: Budget) -> Budget:
    """`default` with what was set: by the user, or in the bot's file."""
    given = {
        "max_turns": options.max_turns,
        "timeout_s": options.timeout,
        "max_tokens": options.max_tokens,
        "max_cost": options.max_cost,
    }
    return default.model_copy(update={name: value for name, value in given.items() if value is not None})


def check_priced(budget: Budget, info: ModelInfo, name: str) -> None:
    """UsageError when a bound on cost is asked for and nobody says what the model costs."""
    if budget.max_cost and not info.priced:
        raise UsageError(
            f"--max-cost cannot be kept: nobody says what {name} costs", "write it into prices.toml (docs/models.md)"
        )
