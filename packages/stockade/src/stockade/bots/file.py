"""A bot in a TOML file: what it is, what it may do, and the settings it wants. Ten lines make one.

name = "triage"
summary = "reads an issue and says where to look"
prompt = "You are ... The user's files are in {workdir}."
permission = "ro"
tools = ["shell", "memory", "finish"]
max_turns = 12
"""

from pathlib import Path

from pydantic import ValidationError

from stockade.bots.spec import BotSpec
from stockade.core.data import wrong_words
from stockade.core.errors import UsageError, did_you_mean
from stockade.core.settings import RunSettings, fields
from stockade.paths import read_toml
from stockade_sandbox.policy import FolderMode

MAX_FILE_BYTES = 200_000
OWN = ("name", "summary", "prompt", "permission", "tools", "shows_folder")
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
    try:
        values = read_toml(path, MAX_FILE_BYTES, "bot")
    except FileNotFoundError:
        raise UsageError(f"--bot {path}: there is no such file") from None
    for key in values:
        if key not in (*OWN, *SETTINGS):
            raise UsageError(f"{path}: there is no key {key!r}", did_you_mean(key, (*OWN, *SETTINGS)))
    hooks = values.get("hooks", [])
    if not isinstance(hooks, list) or any(not isinstance(one, str) for one in hooks):
        raise UsageError(f"{path}: hooks: a bot names hooks; a command is for the configuration", "docs/hooks.md")
    if not isinstance(prompt := values.get("prompt"), str) or not prompt.strip():
        raise UsageError(f"{path}: a bot has a prompt", 'write prompt = "You are ..."')
    permission = values.get("permission", "overlay")
    if not isinstance(permission, str) or permission not in PERMISSIONS:
        raise UsageError(f"{path}: permission is one of {', '.join(PERMISSIONS)}, not {permission!r}")
    fields = {key: values[key] for key in ("name", "summary", "tools", "shows_folder") if key in values}
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
        raise UsageError(f"{path}: {wrong_words(error).lower()}") from None
