"""The folder in which a Shell bot lives: made from a template, begun anew by a reset, held while a bot is in it.

Folders that were made here are on a list in the state folder: only those are ever removed.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from stockade.core.errors import UsageError
from stockade.files import open_lock, try_lock
from stockade.places import state_dir
from stockade.runtime.sandboxes import remove_folder

_LIST = "workspaces"


def ensure(folder: Path, template: Mapping[str, str], *, named: bool = True) -> bool:
    """Makes `folder` from `template` when it is not there, or empty; True when it did.

    UsageError when it cannot be made, and for somebody's folder that the person has not `named` to be written to.
    """
    try:
        if folder.is_dir() and any(folder.iterdir()):
            if not named and str(folder.resolve()) not in _noted():
                raise UsageError(
                    f"{folder} is there and was not made by stockade shell: the bot would write to it",
                    f"--workspace {folder} if you mean it, or another one",
                )
            return False
        folder.mkdir(parents=True, exist_ok=True)
        _fill(folder, template)
    except OSError as error:
        raise UsageError(f"the workspace {folder} cannot be made: {error.strerror}") from None
    _note(folder)
    return True


def reset(folder: Path, template: Mapping[str, str]) -> None:
    """Everything in `folder` goes, and the template comes. UsageError for a folder that was not made here."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder} is no folder", "name the workspace itself: --workspace PATH")
    if folder.is_dir() and any(folder.iterdir()) and str(folder.resolve()) not in _noted():
        raise UsageError(
            f"{folder} was not made by stockade shell: it is not removed", "empty it yourself, or name another one"
        )
    with held(folder):
        if folder.is_dir():
            remove_folder(folder)
        ensure(folder, template)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Inside, nobody else can be in that workspace, nor reset it. UsageError when somebody is there."""
    place = state_dir() / "held"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:32]
    descriptor = open_lock(place / name)
    try:
        if not try_lock(descriptor):
            raise UsageError(f"a bot lives in {folder} now", "stop it first, or name another one")
        yield
    finally:
        os.close(descriptor)


def _fill(folder: Path, template: Mapping[str, str]) -> None:
    for name, text in template.items():
        (folder / name).write_text(text, encoding="utf-8")


def _note(folder: Path) -> None:
    known = _noted()
    if (path := str(folder.resolve())) not in known:
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
