"""What a person set, from four places: a flag goes before a `STOCKADE_*` variable, that before `./stockade.toml`, that
before `$XDG_CONFIG_HOME/stockade/config.toml`. A flag, a TOML key and a variable share one name. The
`LLAMA_*` variables of pocket-ASI stand between `STOCKADE_*` and the files.

The project file is read only when it was trusted as it stands: a bot may have written it.
"""

import difflib
import os
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from os.path import expanduser
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from stockade.core.data import Data, first_refused
from stockade.core.errors import UsageError, did_you_mean
from stockade.core.model_options import (
    LLAMA_OTHERS,
    LLAMA_SPELLED,
    LLAMA_UNSET,
    LLAMA_UNUSED,
    LLAMA_VARIABLES,
)
from stockade.core.settings import RENAMED, FrontSettings, RunSettings, fields, key_of
from stockade.paths import MAX_FILE_BYTES, PROJECT_FILE, current_folder, is_there, is_trusted, read_toml
from stockade.runtime.sources import OTHER_VARIABLES, PREFIX, SERVERS_FILE, config_file
from stockade.runtime.spec import RunSpec
from stockade_sandbox.policy import FolderMode

FOLDER_MODES = frozenset(typing.get_args(FolderMode))
_NOT_SET = ("", "undefined", "null")
"""What an environment holds that a program made of values it did not have."""
_EXCLUSIVE = (("apply", "discard"), ("json", "quiet"), ("folder", "no_folder"))


class Front(FrontSettings, Data, alias_generator=key_of):
    """FrontSettings as a model."""


class Settings(Data):
    """Everything that was set. `notes` are lines for the user: what was not read, and why."""

    options: RunSpec
    front: Front
    notes: tuple[str, ...] = ()


_NO_KEYS = ("task", "granted", "program_model", "objects")
OPTION_KEYS = {key_of(name): name for name in RunSpec.model_fields if name not in _NO_KEYS}
FRONT_KEYS = {key_of(name): name for name in Front.model_fields}
KEYS = {**OPTION_KEYS, **FRONT_KEYS}


Here = Callable[[Path, str | None, str | None], tuple[str, ...]]
"""The working folders of a bot (None: the default one) in a sandbox of that name, where this is the current folder."""


def load(
    flags: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    user_file: Path | None = None,
    *,
    here: Here | None = None,
) -> Settings:
    """The settings of this call. `flags` holds what was given, by key. UsageError names the place and the key.

    `here` says which folder is the working folder, where none is set and it was not said that there is none.
    """
    notes: list[str] = []
    merged: dict[str, Any] = {}
    typed = _from_flags(flags)
    project = (folder or current_folder()) / PROJECT_FILE
    of_project, has_setup = _from_project(project, notes)
    for values in (
        _from_file(user_file or config_file())[0],
        of_project,
        _from_llama(os.environ if environ is None else environ, notes),
        _from_environment(os.environ if environ is None else environ, notes),
        typed,
    ):
        for pair in _EXCLUSIVE:
            if any(values.get(key) for key in pair):
                merged = {key: value for key, value in merged.items() if key not in pair}
        named = dict.fromkeys((*merged.get("redact", ()), *values.get("redact", ())))
        hooks = (*merged.get("hooks", ()), *values.get("hooks", ()))
        merged |= values
        if named:  # one place that hides a value must not show that of another
            merged["redact"] = tuple(named)
        if hooks:  # nor leave out what another has as a guard, but by its name
            merged["hooks"] = hooks
    for one, other in _EXCLUSIVE:
        if merged.get(one) and merged.get(other):
            raise UsageError(f"--{one} and --{other.replace('_', '-')} exclude each other", "give one of them")
    if here is not None and not (merged.get("folder") or merged.get("no_folder")):
        merged["folder"] = here(folder or current_folder(), merged.get("bot"), merged.get("sandbox"))
    options = {key: value for key, value in merged.items() if key in OPTION_KEYS}
    front = {key: value for key, value in merged.items() if key in FRONT_KEYS}
    if has_setup:
        options["tool"] = (str(project), *options.get("tool", ()))
    options["mcp"] = _servers_of(options.get("folder", ()), options.get("mcp", ()), notes)
    own = {"task": str(flags.get("task") or ""), "program_model": typed.get("model", "")}
    return Settings(
        options=RunSpec.model_validate({**options, **own}), front=Front.model_validate(front), notes=tuple(notes)
    )


def _from_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    args = {key: value for key, value in flags.items() if key in KEYS and value is not None and value != ()}
    args = {**_from_pairs(flags.get("option") or ()), **args}
    for key, value in args.items():
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str) and not _is_utf8(text):
                raise UsageError(f"--{key.replace('_', '-')}: {text!r} is not UTF-8", "use a name that is")
    return _checked(args, "--{key}", strict=False)


def _from_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """`-o KEY=VALUE`; of a list the values are separated by commas, or -o is given again."""
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = _today(key.strip().replace("-", "_"), "-o {key}=VALUE")
        if not equals or key not in KEYS:
            hint = did_you_mean(key, KEYS, "stockade help settings lists them")
            raise UsageError(
                f"-o {pair!r}: " + ("write KEY=VALUE" if not equals else f"there is no setting {key!r}"), hint
            )
        values[key] = (*values.get(key, ()), *_split(key, text)) if _is_list(key) else text
    return _checked(values, "-o {key}", strict=False)


def _from_environment(environ: Mapping[str, str], notes: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES:
            continue
        key = _today(variable.removeprefix(PREFIX).lower(), PREFIX + "{KEY}")
        if key not in KEYS:
            notes.append(f"{variable} is not a setting and was not read{_nearest(key, PREFIX, str.upper)}")
        elif environ[variable]:
            values[key] = _split(key, environ[variable]) if _is_list(key) else environ[variable]
    return _checked(values, PREFIX + "{KEY}", strict=False)


def _from_llama(environ: Mapping[str, str], notes: list[str]) -> dict[str, Any]:
    """`LLAMA_*` as pocket-ASI has them. What llama.cpp itself reads (LLAMA_ARG_*) is not ours."""
    values: dict[str, Any] = {}
    path = environ.get("LLAMA_MODEL_PATH", "")
    if path not in _NOT_SET:
        values |= _checked({"model": f"gguf/{path}"}, "LLAMA_MODEL_PATH", strict=False)
    for name, key in LLAMA_VARIABLES.items():
        text = environ.get(f"LLAMA_{name}", "").strip()
        if text.lower() in _NOT_SET or text.lower() in LLAMA_UNSET.get(key, ()):
            continue
        spelled = LLAMA_SPELLED.get(key, {})
        values |= _checked({key: spelled.get(text.lower(), text)}, f"LLAMA_{name}", strict=False)
    unused = sorted(name for name in LLAMA_UNUSED if environ.get(f"LLAMA_{name}"))
    if unused:
        notes.append(f"no effect here: {', '.join(f'LLAMA_{name}' for name in unused)}")
    notes.extend(_unknown_llama(environ))
    return values


def _unknown_llama(environ: Mapping[str, str]) -> list[str]:
    """A typing mistake is told, with the nearest name that there is."""
    known = {*LLAMA_VARIABLES, *LLAMA_UNUSED, "MODEL_PATH"}
    names = [name.removeprefix("LLAMA_") for name in environ if name.startswith("LLAMA_") and environ[name]]
    strange = [name for name in sorted(names) if name not in known and not name.startswith(LLAMA_OTHERS)]
    nearest = {name: difflib.get_close_matches(name, known, 1) for name in strange}
    return [f"LLAMA_{name} is not known{f': LLAMA_{near[0]} is' if near else ''}" for name, near in nearest.items()]


def _is_a_file(path: Path, notes: list[str] | None = None) -> bool:
    """Whether it is a file that can be found: a folder that may not be looked into has none, which is noted."""
    try:
        return is_there(path) and path.is_file()
    except OSError as error:
        if notes is not None:
            notes.append(f"{path} could not be looked at: {error.strerror}")
        return False


def _from_project(path: Path, notes: list[str]) -> tuple[dict[str, Any], bool]:
    """Its keys, and whether it has a `[setup]`, which tools/tool_files.py reads."""
    if not _is_a_file(path, notes):
        return {}, False
    if is_trusted(path):
        return _from_file(path, tables=("setup",))
    notes.append(_untrusted(path))
    return {}, False


def _untrusted(path: Path) -> str:
    return f"{path} was not read: it is not trusted as it stands (look at it: stockade trust {path})"


def _servers_of(folders: Sequence[str], given: tuple[str, ...], notes: list[str]) -> tuple[str, ...]:
    """`--mcp`, and the `.mcp.json` of the working folder where it was trusted; nothing where `none` is given."""
    if "none" in given:
        return ()
    if not folders:
        return given
    folder, _, mode = folders[0].rpartition(":")
    path = (Path(expanduser(folder if mode in FOLDER_MODES else folders[0])) / SERVERS_FILE).absolute()
    if not _is_a_file(path) or any(Path(expanduser(one)).absolute() == path for one in given):
        return given
    if is_trusted(path):
        return (*given, str(path))
    notes.append(_untrusted(path))
    return given


def _from_file(path: Path, tables: tuple[str, ...] = ()) -> tuple[dict[str, Any], bool]:
    """The keys of a TOML file, none when there is no such file; and whether it has one of these `tables` besides."""
    try:
        values = read_toml(path, MAX_FILE_BYTES, "configuration")
    except FileNotFoundError:
        return {}, False
    found = [values.pop(name, None) for name in tables]
    for key in values:
        _today(key, f"{path}: {{key}}")
        if key not in KEYS:
            raise UsageError(f"{path}: there is no setting {key!r}", _nearest(key).removeprefix(": ") or None)
    lists = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return _checked(lists, f"{path}: {{key}}", strict=True), any(table is not None for table in found)


def _checked(values: dict[str, Any], where: str, *, strict: bool) -> dict[str, Any]:
    """The values as their fields want them. `where` names the place, `{key}` or `{KEY}` in it the key."""
    model: type[BaseModel]
    result: dict[str, Any] = {}
    for model, keys in ((RunSpec, OPTION_KEYS), (Front, FRONT_KEYS)):
        part = {key: value for key, value in values.items() if key in keys}
        try:
            valid = model.model_validate(part, strict=strict)
        except ValidationError as error:
            key, message = first_refused(error, model)
            location = where.replace("{key}", key.replace("_", "-") if where.startswith("--") else key)
            hint = getattr(error.errors()[0].get("ctx", {}).get("error"), "hint", None)
            raise UsageError(f"{location.replace('{KEY}', key.upper())}{message}", hint) from None
        result |= {key: getattr(valid, keys[key]) for key in part}
    return result


def _today(key: str, where: str) -> str:
    """`key`, where it is no old name: what was to be hidden must not come to light because a name has changed."""
    if key in RENAMED:
        old, new = (where.replace("{key}", name).replace("{KEY}", name.upper()) for name in (key, RENAMED[key]))
        raise UsageError(f"{old} is not read any more", f"write {new}")
    return key


def _is_list(key: str) -> bool:
    return key == "hooks" or (key in OPTION_KEYS and fields(RunSettings)[key].many)


def _split(key: str, text: str) -> tuple[str, ...]:
    """By lines when there are several, else by commas, but for values that may hold some."""
    whole = key in fields(RunSettings) and fields(RunSettings)[key].setting.whole
    parts: Iterable[str] = text.splitlines() if whole or "\n" in text else text.split(",")
    return tuple(part.strip() for part in parts if part.strip())


def _nearest(key: str, prefix: str = "", spelled: Any = str) -> str:
    near = difflib.get_close_matches(key, KEYS, n=1)
    return f": did you mean {prefix}{spelled(near[0])}?" if near else ""


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
