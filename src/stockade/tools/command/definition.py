"""What a tool file says, as data."""

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from stockade.core.data import Data
from stockade.core.tools import NAME, ToolSpec

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
SYSTEM_PLACES = ("/usr/", "/opt/", "/etc/", "/var/lib/")
"""Where a file belongs to the installation. Files for other places are written at the start of each run."""
MAX_COMMANDS, MAX_USAGE_CHARS = 100, 8000


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Commands = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(max_length=MAX_COMMANDS)]
"""Bash, one after another; a single one may be written without a list."""


class Parameter(Data):
    """One argument of an external tool."""

    type: Literal["string", "integer", "number", "boolean"] = "string"
    description: str = ""
    required: bool = True
    choices: tuple[str, ...] = ()

    @property
    def json_schema(self) -> dict[str, Any]:
        found: dict[str, Any] = {"type": self.type}
        if self.description:
            found["description"] = self.description
        if self.choices:
            found["enum"] = list(self.choices)
        return found


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
    `folder` is that of the tool file.
    """

    name: str = Field(pattern=NAME)
    description: str = ""
    usage: str = Field(default="", max_length=MAX_USAGE_CHARS)
    install: Commands = ()
    verify: Commands = ()
    setup: Commands = ()
    uninstall: Commands = ()
    environment: dict[str, str] = Field(default_factory=dict)
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
                  "files": self.files, "hosts": self.hosts, "runtime_hosts": self.runtime_hosts}  # fmt: skip
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

    @property
    def spec(self) -> ToolSpec:
        """Of an external tool."""
        schema = {
            "type": "object",
            "properties": {name: one.json_schema for name, one in self.parameters.items()},
            "required": [name for name, one in self.parameters.items() if one.required],
            "additionalProperties": False,
        }
        words = " ".join(part for part in (self.description, self.usage) if part)
        return ToolSpec(name=self.name, description=words, parameters=schema)

    @property
    def needs_layer(self) -> bool:
        return bool(self.install) or any(file.installed for file in self.files)


class ToolDefinition(Data):
    """A tool in Python, with Microbots' names; each command is bash, or several in a list.

    `hosts`: whom installing may ask: by default this machine's package sources, PyPI and npm's registry.
    """

    name: str = Field(pattern=NAME)
    installation_command: Commands = ()
    verification_command: Commands = ()
    usage_instructions: str = ""
    description: str = ""
    setup_command: Commands = ()
    uninstallation_command: Commands = ()
    environment: dict[str, str] = Field(default_factory=dict)
    hosts: tuple[str, ...] = ("apt", "pypi", "npm")

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
