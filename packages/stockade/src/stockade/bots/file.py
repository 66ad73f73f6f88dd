"""A bot in a TOML file: what it is, what it may do, and the settings it wants. Ten lines make one.

name = "triage"
summary = "reads an issue and says where to look"
prompt = "You are ... The user's files are in {workdir}."
permission = "ro"
tools = ["shell", "memory", "finish"]
max_turns = 12
"""

import difflib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stockade.bots.spec import BotSpec
from stockade.core.errors import UsageError
from stockade.core.settings import RunSettings, fields
from stockade.paths import read_regular, read_toml
from stockade_sandbox.policy import FolderMode

MAX_FILE_BYTES = 200_000
OWN = ("name", "summary", "prompt", "prompt_file", "permission", "tools", "shows_folder", "needs_folder")
PERMISSIONS: dict[str, FolderMode] = {
    "ro": "ro",
    "overlay": "overlay",
    "rw": "rw",
    "READ_ONLY": "ro",
    "READ_WRITE": "overlay",
}
SETTINGS = (*(key for key, field in fields(RunSettings).items() if field.setting.in_bots), "hooks")
"""Options that a bot may want; a flag, a variable or a configuration goes before."""


def read_bot(path: Path) -> BotSpec:
    """The bot of a file. UsageError names the key that is wrong, and the nearest right one."""
    values = _values(path)
    for key in values:
        if key not in (*OWN, *SETTINGS):
            near = difflib.get_close_matches(key, (*OWN, *SETTINGS), n=1)
            raise UsageError(f"{path}: there is no key {key!r}", f"did you mean {near[0]}?" if near else None)
    hooks = values.get("hooks", [])
    if not isinstance(hooks, list) or any(not isinstance(one, str) for one in hooks):
        raise UsageError(f"{path}: hooks: a bot names hooks; a command is for the configuration", "docs/hooks.md")
    prompt = _prompt(path, values)
    permission = values.get("permission", "overlay")
    if not isinstance(permission, str) or permission not in PERMISSIONS:
        raise UsageError(f"{path}: permission is one of {', '.join(PERMISSIONS)}, not {permission!r}")
    fields = {key: values[key] for key in ("name", "summary", "tools", "shows_folder", "needs_folder") if key in values}
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    try:
        return BotSpec.model_validate(
            {
                "name": path.stem,
                "summary": f"of {path.name}",
                **fields,
                "prompt": prompt,
                "folder_mode": PERMISSIONS[permission],
                "settings": {key: value for key, value in settings.items() if key in SETTINGS},
                "file": str(path),
            }
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise UsageError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from None


def _values(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path, MAX_FILE_BYTES, "bot")
    except FileNotFoundError:
        raise UsageError(f"--bot {path}: there is no such file") from None


def _prompt(path: Path, values: dict[str, Any]) -> str:
    """Given in the file, or in another one beside it."""
    prompt, name = values.get("prompt"), values.get("prompt_file")
    if (prompt is None) == (name is None):
        raise UsageError(f"{path}: a bot has either a prompt or a prompt_file", 'write prompt = "You are ..."')
    if name is not None:
        try:
            data = read_regular(path.parent.joinpath(str(name)), MAX_FILE_BYTES)
        except OSError as error:
            raise UsageError(f"{path}: prompt_file {name!r} cannot be read: {error.strerror}") from None
        if len(data) > MAX_FILE_BYTES:
            raise UsageError(f"{path}: prompt_file {name!r} is larger than {MAX_FILE_BYTES} bytes: this is no prompt")
        try:
            prompt = data.decode()
        except UnicodeDecodeError:
            raise UsageError(f"{path}: prompt_file {name!r} is not UTF-8 text") from None
    if not isinstance(prompt, str) or not prompt.strip():
        raise UsageError(f"{path}: the prompt is empty")
    return prompt
