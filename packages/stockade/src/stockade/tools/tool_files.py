"""What a tool file says, as data, and how one is read, TOML or YAML: those that come with Stockade, and anybody's.

Microbots' own tool files are read as well: their keys are other names for ours.
"""

import hashlib
import re
from collections.abc import Callable
from functools import cached_property
from importlib.resources import files
from os.path import realpath
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NotRequired

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator
from typing_extensions import TypedDict

from stockade.core.data import Data, wrong_words
from stockade.core.errors import UsageError, did_you_mean
from stockade.core.settings import listed
from stockade.core.tools import NAME, ToolSpec
from stockade.paths import PROJECT_FILE, read_regular
from stockade.tools.function import short_schema
from stockade_sandbox.toml import parse_toml

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
SYSTEM_PLACES = ("/usr/", "/opt/", "/etc/", "/var/lib/")
"""Where a file belongs to the installation. Files for other places are written at the start of each run."""
MAX_COMMANDS, MAX_USAGE_CHARS = 100, 8000
SUFFIXES = (".toml", ".yaml", ".yml")
PROJECT_PLACE = "/opt/project"
"""Where the commands of a project's `[setup]` run, with the files that it names."""
MAX_FILE_BYTES = 256 * 1024
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


Commands = Annotated[tuple[str, ...], BeforeValidator(listed), Field(max_length=MAX_COMMANDS)]
"""Bash, one after another; a single one may be written without a list."""


_TYPES = {"string": str, "integer": int, "number": float, "boolean": bool}


class Parameter(Data):
    """One argument of an external tool."""

    type: Literal["string", "integer", "number", "boolean"] = "string"
    description: str = ""
    required: bool = True
    choices: tuple[str, ...] = ()

    @property
    def hint(self) -> Any:
        """As a type of Python."""
        kind: Any = _TYPES[self.type]
        if self.choices:
            kind = Literal[tuple(int(one) if kind is int else one for one in self.choices)]
        kind = Annotated[kind, Field(description=self.description)] if self.description else kind
        return kind if self.required else NotRequired[kind]


class ToolFile(Data):
    """A file of the host that the tool needs inside. `host` is relative to the tool file; `mode` is octal text."""

    host: str = Field(min_length=1)
    inside: str
    mode: str = Field(default="644", pattern=r"^[0-7]{3}$")

    @field_validator("inside")
    @classmethod
    def _absolute(cls, value: str) -> str:
        path = PurePosixPath(value)
        if not path.is_absolute() or ".." in path.parts or "\0" in value or value.endswith("/"):
            raise ValueError("the path inside must be that of a file, absolute, without '..'")
        return value

    @property
    def installed(self) -> bool:
        """Whether it is put in place when the tool is installed, not at the start of each run."""
        return self.inside.startswith(SYSTEM_PLACES)


class CommandTool(Data):
    """A tool. Inside the sandbox it is a program that the bot calls by the shell, told how by `usage`; `external`, it
    is an argument list that is run on the host.

    `install` runs once, as a root in name only, with the network that `hosts` names, and is kept as a layer; `verify`
    runs after it and at the start of each run; `setup` at each start and `uninstall` at each end of a run, in the
    sandbox as the bot's own user. `pass_environment` are variables of the host, `runtime_hosts` the bot's network.
    `path` goes to the front of the PATH. `folder` is that of the tool file.
    """

    name: str = Field(pattern=NAME)
    description: str = ""
    usage: str = Field(default="", max_length=MAX_USAGE_CHARS)
    install: Commands = ()
    verify: Commands = ()
    setup: Commands = ()
    uninstall: Commands = ()
    environment: dict[str, str] = Field(default_factory=dict)
    path: tuple[str, ...] = ()
    pass_environment: tuple[str, ...] = ()
    files: tuple[ToolFile, ...] = ()
    hosts: tuple[str, ...] = ()
    runtime_hosts: tuple[str, ...] = ()
    external: bool = False
    command: tuple[str, ...] = ()
    stdin: str | None = None
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    timeout_s: float = Field(default=60.0, gt=0)
    folder: str = "."

    @field_validator("install", "verify", "setup", "uninstall")
    @classmethod
    def _sayable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any("\0" in command or not command.strip() for command in value):
            raise ValueError("a command is empty, or holds a NUL")
        return value

    @field_validator("environment", "pass_environment")
    @classmethod
    def _variables(cls, value: Any) -> Any:
        for name in value:
            if not VARIABLE.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a variable")
        return value

    @model_validator(mode="after")
    def _of_its_kind(self) -> "CommandTool":
        inside = {"install": self.install, "setup": self.setup, "verify": self.verify, "uninstall": self.uninstall,
                  "files": self.files, "hosts": self.hosts, "runtime_hosts": self.runtime_hosts,
                  "path": self.path}  # fmt: skip
        outside = {"command": self.command, "stdin": self.stdin, "parameters": self.parameters}
        if self.external and not self.command:
            raise ValueError("an external tool needs a command: a list of words")
        wrong = [name for name, given in (inside if self.external else outside).items() if given]
        if wrong:
            kind = "an external tool" if self.external else "a tool that is not external"
            raise ValueError(f"{kind} has no {' and no '.join(wrong)}")
        if self.external:
            self._check_template()
        return self

    def _check_template(self) -> None:
        used = [name for word in (*self.command, self.stdin or "") for name in PLACEHOLDER.findall(word)]
        if unknown := sorted(set(used) - set(self.parameters)):
            raise ValueError(f"the command uses {{{unknown[0]}}}, which is none of the parameters")
        if unused := sorted(set(self.parameters) - set(used)):
            raise ValueError(f"the parameter {unused[0]} is not used in the command")
        if PLACEHOLDER.search(self.command[0]):
            raise ValueError("the program of an external tool cannot be chosen by the bot")

    @cached_property
    def arguments(self) -> TypeAdapter[dict[str, Any]]:
        """Of an external tool."""
        make: Any = TypedDict
        kind = make("arguments", {name: one.hint for name, one in self.parameters.items()})
        kind.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)
        return TypeAdapter(kind)

    @property
    def spec(self) -> ToolSpec:
        """Of an external tool."""
        words = " ".join(part for part in (self.description, self.usage) if part)
        return ToolSpec(name=self.name, description=words, parameters=short_schema(self.arguments))

    @property
    def needs_layer(self) -> bool:
        return bool(self.install) or any(file.installed for file in self.files)


class ProjectSetup(Data):
    """`[setup]` of a folder's stockade.toml: what the project needs beside this machine's programs.

    Its `commands` run in PROJECT_PLACE, once for what they, the `files` (relative to stockade.toml) and the rest of it
    say; `hosts` is whom they may ask, and `path` goes to the front of the PATH.
    """

    commands: Commands
    files: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict)

    @field_validator("files")
    @classmethod
    def _of_the_project(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise ValueError(f"{name!r} is not in the project: name files below its stockade.toml")
        return value


class ToolDefinition(Data):
    """A tool in Python, with Microbots' names; each command is bash, or several in a list. UsageError for what is none.

    `hosts`: whom installing may ask: by default this machine's package sources, PyPI and npm's registry. One without a
    `name` is called by what it says.
    """

    name: str = Field(default="", pattern=rf"^$|{NAME}")
    installation_command: Commands = ()
    verification_command: Commands = ()
    usage_instructions: str = ""
    description: str = ""
    setup_command: Commands = ()
    uninstallation_command: Commands = ()
    environment: dict[str, str] = Field(default_factory=dict)
    hosts: tuple[str, ...] = ("apt", "pypi", "npm")

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise UsageError(f"this is no tool: {wrong_words(error)}") from None
        if not self.name:
            said = hashlib.sha256(self.model_dump_json().encode()).hexdigest()
            object.__setattr__(self, "name", f"tool-{said[:8]}")

    def tool(self) -> CommandTool:
        return CommandTool(
            name=self.name,
            description=self.description,
            usage=self.usage_instructions,
            install=self.installation_command,
            verify=self.verification_command,
            setup=self.setup_command,
            uninstall=self.uninstallation_command,
            environment=self.environment,
            hosts=self.hosts if self.installation_command else (),
        )


_KEYS = tuple(name for name in CommandTool.model_fields if name != "folder")


def shipped() -> dict[str, Path]:
    """The tool files that come with Stockade, by name."""
    folder = Path(str(files("stockade.tools") / "shipped"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_tool(path: Path) -> CommandTool:
    """UsageError, naming the file and what is wrong in it, when it is no tool file."""
    data = _parsed(path)
    if not isinstance(data, dict):
        raise UsageError(f"{path} is not a tool file: it is not a table of keys", f"keys are: {', '.join(_KEYS)}")
    try:
        if path.name == PROJECT_FILE:
            table = _of_project(ProjectSetup.model_validate(data.get("setup")), path)
        else:
            table = _renamed(path, {str(key): value for key, value in data.items()})
        return CommandTool.model_validate({**table, "folder": str(path.absolute().parent)})
    except ValidationError as error:
        for one in error.errors():
            if one["type"] == "extra_forbidden":
                raise _unknown(path, *map(str, one["loc"])) from None
        raise UsageError(f"{path}: {wrong_words(error)}", "docs/tools.md") from None


def _of_project(setup: ProjectSetup, path: Path) -> dict[str, Any]:
    """The fields of a tool. UsageError for a link that leads out of the folder: a repository may come with one."""
    folder = Path(realpath(path.absolute().parent))
    for name in setup.files:
        if not Path(realpath(folder / name)).is_relative_to(folder):
            raise UsageError(f"{path}: files: {name} leads out of the folder", "copy it into the project")
    return {
        "name": "setup",
        "install": [f"mkdir -p {PROJECT_PLACE} && cd {PROJECT_PLACE} || exit\n{one}" for one in setup.commands],
        "files": [{"host": name, "inside": f"{PROJECT_PLACE}/{name}"} for name in setup.files],
        "hosts": setup.hosts,
        "path": setup.path,
        "environment": setup.environment,
    }


def _unknown(path: Path, *place: str) -> UsageError:
    """Of a key of the file, or of one of its tables."""
    kinds: dict[str, type[Data]] = {"files": ToolFile, "parameters": Parameter}
    if path.name == PROJECT_FILE:
        keys, what = tuple(ProjectSetup.model_fields), "[setup]"
    else:
        keys, what = tuple(kinds[place[0]].model_fields) if len(place) > 1 else (*_KEYS, *_MICROBOTS), "a tool file"
    hint = did_you_mean(place[-1], keys, f"keys are: {', '.join(keys)}")
    return UsageError(f"{path}: {what} has no {place[-1]!r}", hint)


def _parsed(path: Path) -> Any:
    try:
        data = read_regular(path, MAX_FILE_BYTES)
        if len(data) > MAX_FILE_BYTES:
            raise UsageError(f"{path} is larger than {MAX_FILE_BYTES} bytes, which no tool file is")
        parse: Callable[[str], Any] = parse_toml if path.suffix.lower() == ".toml" else _parse_yaml
        return parse(data.decode())
    except OSError as error:
        raise UsageError(f"cannot read the tool file {path}: {error.strerror}") from error
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        words = " ".join(str(error).split())[:300]
        raise UsageError(f"{path} is not a tool file: {words}") from error


def _parse_yaml(text: str) -> Any:
    from stockade.core.yaml import parse_yaml  # noqa: PLC0415 - 15 ms of every start, for a file that few have

    return parse_yaml(text)


def _renamed(path: Path, table: dict[str, Any]) -> dict[str, Any]:
    """The keys as CommandTool has them; what has no value is not given."""
    kind = table.pop("tool_type", None)
    if kind not in (None, "internal", "external"):
        raise UsageError(f"{path}: the tool_type {kind!r} is not one", "write internal or external")
    found: dict[str, Any] = {"external": True} if kind == "external" and "external" not in table else {}
    for key, value in table.items():
        name = _MICROBOTS.get(key, key)
        if name == "folder":
            raise _unknown(path, name)
        if name in found:
            raise UsageError(f"{path}: {key} and another key say the same", f"write {name} only")
        if value is not None:
            found[name] = value
    given = found.get("environment")
    if isinstance(given, list) and all(isinstance(entry, str) for entry in given):
        # as --env takes it: NAME=VALUE, or NAME, which is passed on
        pairs = [entry.partition("=") for entry in given]
        found["environment"] = {name: value for name, equals, value in pairs if equals}
        more = tuple(name for name, equals, _ in pairs if not equals)
        found["pass_environment"] = (*found.get("pass_environment", ()), *more)
    if isinstance(files := found.get("files"), list):
        found["files"] = [_file(entry) if isinstance(entry, dict) else entry for entry in files]
    return found


def _file(entry: dict[str, Any]) -> dict[str, Any]:
    entry = {_MICROBOTS_FILE.get(key, key): value for key, value in entry.items()}
    if type(mode := entry.get("mode")) is int:
        # Microbots' permissions are one digit for owner and group
        entry["mode"] = f"{mode}{mode}0" if 0 <= mode <= 7 else f"{mode:03o}"
    return entry
