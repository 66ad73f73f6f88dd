"""The user's configuration, written: one setting at a time, all else of the file as it is, comments too."""

import os
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from stockade.core.errors import UsageError
from stockade.paths import MAX_FILE_BYTES, read_toml, write_whole
from stockade.runtime.sources import config_file


def write_setting(key: str, value: str | tuple[str, ...] | None, path: Path | None = None) -> Path:
    """Sets `key` in the user's file, or takes it out (None); the file. It is made where there is none.

    UsageError when the file is no TOML or cannot be written: nothing of it has changed then.
    """
    path = path or config_file()
    target = Path(os.path.realpath(path))  # a link into somebody's dotfiles stays one
    try:
        read_toml(target, MAX_FILE_BYTES, "configuration")
        text, mode = target.read_text(encoding="utf-8"), target.stat().st_mode & 0o777
    except FileNotFoundError:
        text, mode = "", 0o644
    try:
        document = tomlkit.parse(text)
        if value is None:
            document.pop(key, None)
        else:  # a new one stands before the first table
            document[key] = list(value) if isinstance(value, tuple) else value
        changed = tomlkit.dumps(document)
    except TOMLKitError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    try:
        write_whole(target, changed)
        target.chmod(mode)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", f"write into it: {key} = ...") from None
    return path
