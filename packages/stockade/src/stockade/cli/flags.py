"""The flags of settings, made of their one definition (core/settings.py), in the groups that commands share.

A flag has the name of its TOML key; what was not given is None.
"""

import logging
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from stockade.cli.lazy import load
from stockade.cli.ui.safe import hide_named
from stockade.core.settings import FrontSettings, LoadSettings, RunSettings, SamplingSettings, fields

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from stockade.runtime.settings import Settings

Command = Callable[..., Any]
Flags = tuple[Callable[[Command], Command], ...]


def _redacted(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    hide_named(names)
    return names


def _given(_: click.Context, __: click.Parameter, variables: tuple[str, ...]) -> tuple[str, ...]:
    hide_named(given=variables)
    return variables


class Number(click.FloatRange):
    """Within the range; what is none, and infinity, are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a valid float.", param, ctx)
        return found


_COMPLETED = frozenset({"bot", "model", "smart_model", "fast_model", "fallback"})
_SHORT = {"bot": ("-b",), "model": ("-m",), "verbose": ("-v",)}
_AT_ONCE = {"redact": _redacted, "env": _given}
"""Hidden before anything else of the command line is read."""


def flag(key: str, words: str = "") -> Callable[[Command], Command]:
    """The flag of a setting; `words` stand in place of its own help."""
    field = fields(RunSettings).get(key) or fields(FrontSettings)[key]
    name, how = f"--{key.replace('_', '-')}", dict[str, Any](default=None, help=words or field.setting.help)
    if key in _COMPLETED:
        how["shell_complete"] = completed(key)
    if key in _AT_ONCE:
        how |= {"is_eager": True, "callback": _AT_ONCE[key]}
    if field.kind is bool:
        switch = field.default is False
        name = name if switch else f"{name}/--no-{name[2:]}"
        return click.option(*_SHORT.get(key, ()), name, is_flag=True, **how)
    if typing.get_origin(field.kind) is Literal and not field.setting.metavar:
        return click.option(name, type=click.Choice(typing.get_args(field.kind)), **how)
    kind = field.kind if field.kind in (int, float) else str
    names, takes = (*_SHORT.get(key, ()), name), field.setting.metavar
    return click.option(*names, type=kind, multiple=field.many, metavar=takes, **how)


def completed(kind: str) -> Callable[[click.Context, click.Parameter, str], list["CompletionItem"]]:
    """What may stand here, when the Tab key is pressed: `kind` of cli.completion.KINDS."""
    return lambda _context, _parameter, incomplete: load("cli.completion:complete")(kind, incomplete)


def run(**how: Any) -> Callable[[Command], Command]:
    """The argument RUN."""
    return click.argument("run", shell_complete=completed("run"), **how)


def _group(*keys: str) -> Flags:
    return tuple(map(flag, keys))


OPTION: Callable[[Command], Command] = click.option(
    "-o", "option", multiple=True, metavar="KEY=VALUE", help="Any other setting: -o temperature=0.2."
)
SAMPLING = _group(*fields(SamplingSettings))
_SERVED = ("ctx_size", "threads", "gpu_layers")
LOADING = _group(*_SERVED, "llama_server", *(key for key in fields(LoadSettings) if key not in _SERVED))
BOUNDS = ("max_turns", "timeout", "max_tokens", "max_cost")
MODEL: Flags = (
    *_group("model", "smart_model", "fast_model", "fallback", *BOUNDS),
    *SAMPLING,
    *LOADING,
    OPTION,
    flag("keep_warm_s"),
)
LIVING: Flags = (*MODEL, flag("answers"))
BEST_OF = _group("best_of")
CHECK = _group("check", "protect")
BOT: Flags = (*_group("attach", "bot"), *LIVING, *CHECK)
TOOL = _group("tool")
APPROVE = _group("approve")
TOOLS = (*TOOL, *_group("search", "mcp", "no_tool", "allow_external"), *APPROVE)
SANDBOX = _group("folder", "copy", "toolchain", "sandbox", "image", "net", "command_timeout", "memory", "processes",
                 "cpus", "disk", "env", "credential", "ca", "ssh_agent", "redact")  # fmt: skip
HERE = _group("no_folder")
NOTIFY = _group("notify")
CHANGES = (*_group("apply", "discard", "no_input"), *NOTIFY)
JSON = _group("json")
LOOK = _group("plain", "verbose")
OUTPUT = _group("output_schema")
SHOWN = (*JSON, *_group("quiet"), *LOOK)
STORE = _group("store")
OWN = _group("own_goal", "own_prompt", "own_sampling", "intro")

ON_A_SCREEN = {
    "Work": ("folder", "no_folder", "worktree", "copy", "attach", "bot", "check", "protect", "best_of"),
    "Model": ("model", "smart_model", "max_turns", "timeout", "max_tokens", "max_cost"),
    "Allow": ("net", "approve", "tool", "no_tool", "mcp", "search", "env", "credential", "redact", "allow_external",
              "toolchain", "sandbox", "image", "memory"),
    "Review": ("apply", "discard", "no_input", "go_on", "detach"),
    "Output": ("json", "quiet", "plain", "verbose", "notify", "output_schema"),
    "More": ("option",),
}  # fmt: skip
"""What `run --help` shows of all that it takes, by what it is for."""


def offered(*groups: tuple[Callable[[Command], Command], ...]) -> Callable[[Command], Command]:
    """A decorator that gives a command all flags of `groups`, in their order."""

    def decorate(command: Command) -> Command:
        for group in reversed(groups):
            for flag in reversed(group):
                command = flag(command)
        return command

    return decorate


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that were given on the command line."""
    return {key: value for key, value in values.items() if value is not None and value != ()}


@dataclass(frozen=True, slots=True)
class Reading:
    """What a command that only reads the record was set to: its `--store`, how to show, and what more to hide."""

    store: str | None
    json_lines: bool = False
    plain: bool = False
    redact: tuple[str, ...] = ()


def reading(values: Mapping[str, Any]) -> Reading:
    """Of the flags JSON and STORE. Where all that is set is plain, without the import of what checks and merges it."""
    found = given(values)
    rest = {key: value for key, value in found.items() if key != "json"}
    where: RunSettings | None = load("runtime.sources:plain_settings")(rest)
    if where is not None:
        return Reading(where.store, bool(found.get("json")))
    every = settings(found)
    return Reading(every.options.store, every.front.json_lines, every.front.plain, every.options.redact)


def settings(values: Mapping[str, Any], *, here: bool = False) -> "Settings":
    """The settings of this call, from what was given. What they name is hidden from here on. `here`: as of load."""
    found: Settings = load("runtime.settings:load")(values, here=load("runtime.bots:working_folders") if here else None)
    hide_named(found.options.redact, found.options.env)
    if (level := found.front.log_level) != "off":
        form = "%(asctime)s.%(msecs)03d - %(levelname)s - %(name)s - %(message)s"
        logging.basicConfig(level=level.upper(), format=form, datefmt="%M:%S")
    return found
