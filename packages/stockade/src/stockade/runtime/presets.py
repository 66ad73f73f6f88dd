"""The presets of programs that are wrapped: the user's own, which count before ours of the same name, and ours."""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from stockade.bots.spec import BotSpec
from stockade.core.data import wrong_words
from stockade.core.errors import UsageError, did_you_mean
from stockade.paths import read_regular, read_toml
from stockade.plugins.wrap.bot import Wrapped, bot_spec
from stockade.plugins.wrap.preset import Preset
from stockade.runtime.sources import config_file
from stockade_sandbox.backends.rootfs import STANDARD_ENVIRONMENT
from stockade_sandbox.processes import own_folder

PATH_INSIDE = STANDARD_ENVIRONMENT["PATH"]
OURS = Path(__file__).parent.parent / "presets"
MAX_FILE_BYTES = 65_536
_HOME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)


def files() -> Mapping[str, Path]:
    """By the program's name."""
    places = (OURS, config_file().parent / "presets")
    return {path.stem: path for place in places for path in sorted(place.glob("*.toml"))}


def read_preset(path: Path) -> Preset:
    """UsageError, with the nearest right key where one is wrong."""
    values = read_toml(path, MAX_FILE_BYTES, "preset")
    for key in values:
        if key not in Preset.model_fields:
            hint = did_you_mean(key, Preset.model_fields, "docs/wrap.md")
            raise UsageError(f"{path}: there is no key {key!r}", hint)
    try:
        preset = Preset.model_validate({"name": path.stem, **values})
    except ValidationError as error:
        raise UsageError(f"{path}: {wrong_words(error).lower()}", "docs/wrap.md") from None
    return preset


def of_program(program: str) -> Preset:
    """What is known of the program that a user typed; of most, nothing but its name."""
    name = Path(program).name
    found = files().get(name)
    return Preset(name=name) if found is None else read_preset(found)


def bot_names() -> Mapping[str, Path]:
    """The presets that do a task by themselves, by their names behind --bot. What is broken has its file's name."""
    named: dict[str, Path] = {}
    for name, path in files().items():
        try:
            preset = read_preset(path)
        except UsageError:
            named[name] = path
            continue
        if preset.prompt:
            named[preset.bot or name] = path
    return named


def bot_of_preset(path: Path) -> BotSpec:
    """UsageError for a broken one."""
    preset = read_preset(path)
    return bot_spec(Wrapped(preset, (preset.program or preset.name,), PATH_INSIDE))


def open_home(name: str) -> tuple[Path, bool]:
    """The named home, which is none of the user's; and whether it was made now. UsageError where that cannot be."""
    if not _HOME.fullmatch(name):
        raise UsageError(f"--home {name!r} is no name", "a word of letters, digits, . _ and -: --home work")
    path = own_folder("data", "stockade-homes") / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.mkdir(mode=0o700)
    except FileExistsError:
        if path.is_dir() and not path.is_symlink():
            return path, False
        raise UsageError(f"{path} is no folder", "remove it, or give another --home") from None
    except OSError as error:
        raise UsageError(f"the home {path} cannot be made: {error.strerror}", "give another --home") from None
    return path, True


def logins(preset: Preset, home: Path) -> dict[str, bytes]:
    """What the program keeps of its login in the user's `home`, by path: of a JSON file whose keys are named, those
    alone. What is not there, or is none, is left out.
    """
    found: dict[str, bytes] = {}
    for entry in preset.login:
        name, _, keys = entry.partition("#")
        with suppress(OSError, ValueError, RecursionError):
            data = read_regular(home / name, MAX_FILE_BYTES * 16)
            if keys and isinstance(values := json.loads(data), dict):
                data = json.dumps({key: values[key] for key in keys.split(",") if key in values}).encode()
            found[name] = data
    return found


def take_over(found: Mapping[str, bytes], home: Path) -> None:
    """Into a named home that was just made: nobody else's alone."""
    for name, data in found.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
