"""What the command line needs of the Shell bot before its run: its goal, its workspace."""

from collections.abc import Mapping
from pathlib import Path

from stockade.bots.shell import DEFAULT_GOAL, TEMPLATE
from stockade.core.errors import UsageError
from stockade.sandboxes.folders.discard import remove_tree


def default_goal() -> str:
    return DEFAULT_GOAL


def workspace_template() -> Mapping[str, str]:
    """Name -> text of the files of a new workspace."""
    return TEMPLATE


def remove_folder(folder: Path) -> None:
    """With all that a bot may have left in it. UsageError when that is not possible."""
    try:
        remove_tree(folder)
    except OSError as error:
        raise UsageError(f"{folder} cannot be removed: {error.strerror}") from None
