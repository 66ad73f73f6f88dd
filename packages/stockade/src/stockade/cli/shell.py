"""What `stockade auto` does: a run of the Shell bot in its workspace.

The workspace is made from a template, and locked while a bot is in it. Those that were made here are on a list in the
state folder: only those are written to without being named.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from os.path import expanduser, realpath
from pathlib import Path
from typing import Any

import anyio

from stockade.cli import flags
from stockade.cli.run import carry_out, read_task
from stockade.cli.ui.asciicast import Recorder
from stockade.cli.ui.failures import say
from stockade.cli.ui.safe import one_line
from stockade.core.errors import UsageError
from stockade.paths import state_dir
from stockade.plugins.shell_bot.bot import DEFAULT_GOAL, TEMPLATE
from stockade.runtime import factory, records
from stockade.runtime.sandboxes import is_far
from stockade_sandbox.locks import open_lock, release, try_lock

GOAL_VARIABLES = ("STOCKADE_GOAL", "LLAMA_DEFAULT_GOAL")
WORKSPACE = "workspace"
_YES = ("1", "true", "yes")


def begin(
    task: str | None, given: Mapping[str, Any], *, workspace: str | None, goal: str | None, show_intro: bool,
    cast: Path | None,
) -> int:  # fmt: skip
    """A new run in the workspace, until it is stopped; the exit status."""
    if task is not None and goal is not None:
        raise UsageError("--goal and TASK are the same", "leave one of them out")
    folder = _folder(workspace)
    settings = flags.settings({**given, "task": _goal(goal) if task is None else read_task(task), "bot": "shell"})
    folders = (f"{folder}:rw", *settings.options.folder)
    settings = settings.model_copy(update={"options": settings.options.model_copy(update={"folder": folders})})
    shows = show_intro or os.environ.get("LLAMA_SHOW_INTRO", "").lower() in _YES
    far = is_far(settings.options.sandbox)  # then the workspace is on that machine
    store = records.open_store(settings.options.store)
    try:
        with nullcontext() if far else held(folder):
            if task is None and goal is None:
                say(f"its goal: {one_line(settings.options.task)}")
            if not far and ensure(folder, TEMPLATE, named=workspace is not None):
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


def _goal(given: str | None) -> str:
    if given is not None:
        return given
    found = (os.environ[name] for name in GOAL_VARIABLES if os.environ.get(name, "").strip())
    return next(found, DEFAULT_GOAL)


def _folder(given: str | None) -> Path:
    text = WORKSPACE if given is None else given
    if not text or "\0" in text:
        raise UsageError("--workspace names no folder", "write --workspace PATH")
    return Path(expanduser(text)).absolute()


_LIST = "workspaces"


def ensure(folder: Path, template: Mapping[str, str], *, named: bool = True) -> bool:
    """Makes `folder` from `template` when it is not there, or empty; True when it did.

    UsageError when it cannot be made, and for somebody's folder that the user has not `named` to be written to.
    """
    try:
        if folder.is_dir() and any(folder.iterdir()):
            if not named and realpath(folder) not in _noted():
                raise UsageError(
                    f"{folder} is there and was not made by stockade auto: the bot would write to it",
                    f"--workspace {folder} if you mean it, or another one",
                )
            return False
        folder.mkdir(parents=True, exist_ok=True)
        _fill(folder, template)
    except OSError as error:
        raise UsageError(f"the workspace {folder} cannot be made: {error.strerror}") from None
    _note(folder)
    return True


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Inside, nobody else can be in that workspace. UsageError when somebody is there."""
    place = state_dir() / "held"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = hashlib.sha256(os.fsencode(realpath(folder))).hexdigest()[:32]
    descriptor = open_lock(place / name)
    try:
        if not try_lock(descriptor):
            raise UsageError(f"a bot lives in {folder} now", "stop it first, or name another one")
        yield
    finally:
        release(descriptor)


def _fill(folder: Path, template: Mapping[str, str]) -> None:
    for name, text in template.items():
        (folder / name).write_text(text, encoding="utf-8")


def _note(folder: Path) -> None:
    known = _noted()
    if (path := realpath(folder)) not in known:
        place = state_dir()
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (place / _LIST).open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{path}\n")


def _noted() -> list[str]:
    try:
        text = (state_dir() / _LIST).read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return []
    return text.splitlines()
