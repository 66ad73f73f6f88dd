"""What `stockade plan` does: the profile is shown and changed, then each action is done when the user authorises it."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from stockade.cli import run
from stockade.cli.talk import Talk
from stockade.cli.ui.console import progress
from stockade.cli.ui.failures import say
from stockade.cli.ui.reviser import Reviser
from stockade.core.errors import UsageError
from stockade.plugins.planner.bot import PLANNER, Overrides, Planner
from stockade.runtime.settings import Settings
from stockade.runtime.spec import Objects, RunSpec

WARNING = (
    "continuous mode: nobody looks at an action before it is done. What holds is the sandbox, the folder's mode and"
    " the network rule"
)

OWN = ("ai_name", "ai_role", "constraint", "resource", "best_practice", "override_directives", "skip_reprompt",
       "continuous", "continuous_limit")  # fmt: skip


def begin(task: str | None, given: Mapping[str, Any], *, worktree: bool = False, talk: Talk | None = None) -> int:
    """A run of the Planner; its exit status."""
    own = {name: given[name] for name in OWN if name in given}
    rest = {name: value for name, value in given.items() if name not in OWN}
    return run.begin(
        task, {**rest, "bot": PLANNER.name}, worktree=worktree, talk=talk, make=partial(_make, own), name="plan"
    )


def _make(own: Mapping[str, Any], settings: Settings, asks: bool) -> RunSpec:
    """UsageError where nobody could authorise what it would do."""
    if goes_on := "continuous" in own or "continuous_limit" in own:
        say(WARNING)
    elif not asks:
        raise UsageError(
            "not a terminal, cannot ask you to authorise actions",
            "-l N does N actions without asking, --continuous does all",
        )
    overrides, front = _overrides(own), settings.front
    reviser = Reviser(
        progress(plain=front.plain),
        asks=asks and "skip_reprompt" not in own and not overrides.any,
        shows=not (front.json_lines or front.quiet),
    )
    bot = PLANNER.model_copy(update={"bot": Planner(overrides, reviser.revise)})
    granted = own.get("continuous_limit") if goes_on else 0
    options = settings.options
    return options.model_copy(update={"objects": Objects(bot=bot), "granted": granted, "tool": _with_web(options)})


def _with_web(options: RunSpec) -> tuple[str, ...]:
    """Tools for the web are there where a network is; else the user is told how to open one."""
    if options.net == "none":
        say("there is no network, and so no tool for the web", "--net open (or HOST,...), and --search for web_search")
        return options.tool
    web = ("read_page", *(("web_search",) if options.search else ()))
    return (*options.tool, *(name for name in web if name not in (*options.tool, *options.no_tool)))


def _overrides(own: Mapping[str, Any]) -> Overrides:
    return Overrides(
        name=_short(own.get("ai_name")),
        role=_short(own.get("ai_role")),
        constraints=own.get("constraint", ()),
        resources=own.get("resource", ()),
        best_practices=own.get("best_practice", ()),
        replace="override_directives" in own,
    )


def _short(text: str | None) -> str | None:
    return text.strip() or None if text is not None else None
