"""What `stockade shell` does: a run of the Shell bot in its workspace."""

import os
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from stockade.cli import flags, workspace
from stockade.cli.asciicast import Recorder
from stockade.cli.failures import say
from stockade.cli.run import carry_out
from stockade.core.errors import UsageError
from stockade.plugins.shell_bot.bot import DEFAULT_GOAL, TEMPLATE
from stockade.runtime import factory, records
from stockade.runtime.spec import REMOTE

GOAL_VARIABLES = ("STOCKADE_GOAL", "LLAMA_DEFAULT_GOAL")
WORKSPACE = "workspace"
_YES = ("1", "true", "yes")


def live(where: str | None, goal: str | None, given: Mapping[str, Any], *, show_intro: bool, cast: Path | None) -> int:
    """A new run in the workspace, until it is stopped; the exit status."""
    folder = _folder(where)
    settings = flags.load({**given, "task": _goal(goal), "bot": "shell"})
    folders = (f"{folder}:rw", *settings.options.folder)
    settings = settings.model_copy(update={"options": settings.options.model_copy(update={"folder": folders})})
    shows = show_intro or os.environ.get("LLAMA_SHOW_INTRO", "").lower() in _YES
    far = settings.options.sandbox.startswith(REMOTE)  # then the workspace is on that machine
    store = records.open_store(settings.options.store)
    try:
        with nullcontext() if far else workspace.held(folder):
            if not far and workspace.ensure(folder, TEMPLATE, named=where is not None):
                say(f"made the workspace {folder}")
            tape = Recorder(cast, show_intro=shows) if cast is not None else None
            try:
                prepare = partial(factory.prepare, settings.options, store)
                return carry_out(settings, store, prepare, show_intro=shows, tape=tape)
            finally:
                if tape is not None:
                    tape.close()
    finally:
        anyio.run(store.close)


def begin_anew(where: str | None) -> int:
    """The workspace as it was made."""
    folder = _folder(where)
    workspace.reset(folder, TEMPLATE)
    say(f"the workspace {folder} is as new")
    return 0


def _goal(given: str | None) -> str:
    if given is not None:
        return given
    found = (os.environ[name] for name in GOAL_VARIABLES if os.environ.get(name, "").strip())
    return next(found, DEFAULT_GOAL)


def _folder(given: str | None) -> Path:
    text = WORKSPACE if given is None else given
    if not text or "\0" in text:
        raise UsageError("--workspace names no folder", "write --workspace PATH")
    return Path(text).expanduser().absolute()
