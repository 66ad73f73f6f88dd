"""Tool files, TOML or YAML: the ones that come with Stockade, and anybody's.

Microbots' own tool files are read as well: their keys are other names for ours.
"""

import difflib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from stockade.core.errors import UsageError
from stockade.files import parse_toml, read_regular
from stockade.tools.command.definition import CommandTool, Parameter, ToolFile

SUFFIXES = (".toml", ".yaml", ".yml")
MAX_FILE_BYTES = 256 * 1024
_KEYS = tuple(name for name in CommandTool.model_fields if name != "folder")
_MICROBOTS = {
    "usage_instructions_to_llm": "usage",
    "install_commands": "install",
    "verify_commands": "verify",
    "setup_commands": "setup",
    "uninstall_commands": "uninstall",
    "env_variables": "environment",
    "files_to_copy": "files",
}
_MICROBOTS_FILE = {"src": "host", "dest": "inside", "permissions": "mode"}


def shipped() -> dict[str, Path]:
    """The tool files that come with Stockade, by name."""
    folder = Path(str(files("stockade.tools") / "shipped"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_tool(path: Path) -> CommandTool:
    """UsageError, naming the file and what is wrong in it, when it is no tool file."""
    data = _parsed(path)
    if not isinstance(data, dict):
        raise UsageError(f"{path} is not a tool file: it is not a table of keys", f"keys are: {', '.join(_KEYS)}")
    table = _renamed(path, {str(key): value for key, value in data.items()})
    try:
        return CommandTool.model_validate({**table, "folder": str(path.absolute().parent)})
    except ValidationError as error:
        raise UsageError(f"{path}: {_first(error)}", "docs/tools.md") from None


def _parsed(path: Path) -> Any:
    try:
        data = read_regular(path, MAX_FILE_BYTES)
        if len(data) > MAX_FILE_BYTES:
            raise UsageError(f"{path} is larger than {MAX_FILE_BYTES} bytes, which no tool file is")
        parse: Callable[[bytes], Any] = parse_toml if path.suffix.lower() == ".toml" else _parse_yaml
        return parse(data)
    except OSError as error:
        raise UsageError(f"cannot read the tool file {path}: {error.strerror}") from error
    except (UnicodeDecodeError, RecursionError, ValueError, yaml.YAMLError) as error:
        words = " ".join(str(error).split())[:300]
        raise UsageError(f"{path} is not a tool file: {words}") from error


def _parse_yaml(data: bytes) -> Any:
    return yaml.safe_load(data.decode())


def _renamed(path: Path, table: dict[str, Any]) -> dict[str, Any]:
    """The keys as CommandTool has them."""
    found: dict[str, Any] = {}
    kind = table.pop("tool_type", None)
    if kind not in (None, "internal", "external"):
        raise UsageError(f"{path}: the tool_type {kind!r} is not one", "write internal or external")
    if kind == "external":
        table.setdefault("external", True)
    for key, value in table.items():
        name = _MICROBOTS.get(key, key)
        if name not in _KEYS:
            raise _unknown(path, key, (*_KEYS, *_MICROBOTS))
        if name in found:
            raise UsageError(f"{path}: {key} and another key say the same", f"write {name} only")
        found[name] = value
    _variables(found)
    if isinstance(found.get("files"), list):
        found["files"] = [_file(path, entry) for entry in found["files"]]
    if isinstance(found.get("parameters"), dict):
        for one in found["parameters"].values():
            _known_only(path, one, tuple(Parameter.model_fields))
    elif not found.get("parameters"):
        found.pop("parameters", None)
    return {key: value for key, value in found.items() if value is not None}


def _variables(found: dict[str, Any]) -> None:
    """A list as `--env` takes it, NAME=VALUE or NAME, is a table and names that are passed on."""
    given = found.get("environment")
    if isinstance(given, list) and all(isinstance(entry, str) for entry in given):
        pairs = [entry.partition("=") for entry in given]
        found["environment"] = {name: value for name, equals, value in pairs if equals}
        more = tuple(name for name, equals, _ in pairs if not equals)
        found["pass_environment"] = (*found.get("pass_environment", ()), *more)


def _file(path: Path, entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    entry = {_MICROBOTS_FILE.get(key, key): value for key, value in entry.items()}
    _known_only(path, entry, tuple(ToolFile.model_fields))
    mode = entry.get("mode")
    if type(mode) is int:
        # Microbots' permissions are one digit for owner and group
        entry["mode"] = f"{mode}{mode}0" if 0 <= mode <= 7 else f"{mode:03o}"
    return entry


def _known_only(path: Path, entry: Any, keys: tuple[str, ...]) -> None:
    for key in entry if isinstance(entry, dict) else ():
        if key not in keys:
            raise _unknown(path, str(key), keys)


def _unknown(path: Path, key: str, keys: tuple[str, ...]) -> UsageError:
    near = difflib.get_close_matches(key, keys, n=1)
    hint = f"did you mean {near[0]}?" if near else f"keys are: {', '.join(keys)}"
    return UsageError(f"{path}: a tool file has no {key!r}", hint)


def _first(error: ValidationError) -> str:
    """The first thing that is wrong, on one line."""
    found = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in found["loc"])
    words = found["msg"].removeprefix("Value error, ")
    return f"{where}: {words}" if where else words
