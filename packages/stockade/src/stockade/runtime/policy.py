"""The policy that settings say: plain data, made without a model, a record or the checks of a RunSpec."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from stockade.core.errors import UsageError
from stockade.core.settings import RunSettings
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


def current_folder() -> Path:
    """UsageError when it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current folder is gone", "cd to one that is there") from None


def make_policy(spec: RunSettings, default_mode: FolderMode) -> Policy:
    """The policy of the flags. The first folder is /workspace, others are /folders/NAME."""
    folders: list[FolderRule] = []
    for number, text in enumerate(spec.folder):
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
        copies=tuple(_copy_rule(text) for text in spec.copy_in),
        network=parse_network(spec.net),
        limits=_limits(spec),
        environment=environment_of(spec),
        rootfs=spec.image,
        streams=spec.streams,
    )


def _copy_rule(text: str) -> CopyRule:
    host, _, inside = text.partition(":")
    path = Path(host).expanduser().absolute()
    if not path.exists():
        raise UsageError(f"--copy {host}: there is no such file or folder")
    return CopyRule(host=str(path), inside=inside or f"/copied/{path.name}")


def _limits(spec: RunSettings) -> Limits:
    limits: dict[str, Any] = {"processes": spec.processes, "cpus": spec.cpus, "command_timeout_s": spec.command_timeout}
    for name, text in (("memory_bytes", spec.memory), ("disk_bytes", spec.disk)):
        limits[name] = None if text is None else parse_size(text)
    if limits["disk_bytes"] is not None:
        limits["file_bytes"] = limits["disk_bytes"] // 2
    return Limits(**{name: value for name, value in limits.items() if value is not None})


def environment_of(spec: RunSettings) -> dict[str, str]:
    """The variables that the sandbox is given. UsageError for what is none, or not set here."""
    return dict(_variable(text) for text in spec.env)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.replace("_", "a").isalnum() or name[0].isdigit():
        raise UsageError(
            f"--env {name!r} is not the name of a variable", "write NAME=VALUE; a name is of letters, digits and _"
        )
    if not equals:
        if name not in os.environ:
            raise UsageError(f"--env {name}: the variable is not set here", f"write --env {name}=VALUE")
        value = os.environ[name]
    return name, value
