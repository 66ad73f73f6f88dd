"""What a component may do: a policy file beside it, `NAME.policy.yaml` (or .toml, .json). Without one: nothing.

The keys are wassette's, and `limits` and `tools` of ours. A policy never gives more than the run has: folders are the
run's folders, variables are those given to the run, and requests leave by the run's own way out.
"""

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Generic, Literal, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator

from stockade.core.data import Data, wrong_words
from stockade.core.errors import UsageError
from stockade.core.yaml import parse_yaml
from stockade_sandbox.policy import WORKSPACE, FolderRule, Policy, parse_size
from stockade_sandbox.toml import parse_toml

SUFFIXES = (".policy.yaml", ".policy.yml", ".policy.toml", ".policy.json")
MAX_POLICY_BYTES = 64 << 10
MIB = 1 << 20
T = TypeVar("T")
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_METHODS: tuple[Method, ...] = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_HOST = re.compile(r"^(\*|(\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?)$")


class Limits(Data):
    """What a call is held to. Seconds, bytes; `fuel` in wasmtime's units (about one an instruction), 0 is without."""

    timeout_s: float = Field(default=10.0, gt=0, le=3600)
    memory_bytes: int = Field(default=256 * MIB, ge=1 << 16, le=4 << 30)
    stack_bytes: int = Field(default=MIB, ge=1 << 16, le=4 * MIB)
    output_bytes: int = Field(default=64 << 10, ge=256, le=4 * MIB)
    http_bytes: int = Field(default=MIB, ge=0, le=16 * MIB)
    fuel: int = Field(default=0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _sizes(cls, given: Any) -> Any:
        """`memory: 128M` beside `memory_bytes: 134217728`; likewise stack, output and http."""
        if not isinstance(given, dict):
            return given
        read = dict(given)
        for name in ("memory", "stack", "output", "http"):
            if name in read:
                read[f"{name}_bytes"] = parse_size(str(read.pop(name)))
        return read


class Storage(Data):
    """A folder: `fs://PATH`, as the sandbox sees it or as the host does; relative to the working folder."""

    uri: str
    access: tuple[Literal["read", "write"], ...] = Field(min_length=1)
    mount: str | None = None

    @field_validator("uri")
    @classmethod
    def _file(cls, value: str) -> str:
        if not value.startswith("fs://") or ".." in PurePosixPath(value).parts or "*" in value or "\0" in value:
            raise ValueError("write fs://PATH of one folder, without '..' and '*'")
        return value

    @property
    def path(self) -> str:
        return self.uri.removeprefix("fs://") or "."


class Host(Data):
    """Whom a component may ask by `stockade:tool/http`. `*.SUFFIX` is every name below it, `*` whom the run may ask."""

    host: str
    port: int | None = Field(default=None, ge=1, le=65535)
    schemes: tuple[Literal["http", "https"], ...] = ("https", "http")
    methods: tuple[Method, ...] = _METHODS

    @model_validator(mode="before")
    @classmethod
    def _parts(cls, given: Any) -> Any:
        """`https://HOST:PORT` in one, as wassette has it."""
        if not isinstance(given, dict) or not isinstance(text := given.get("host"), str):
            return given
        read = dict(given)
        scheme, found, rest = text.rpartition("://")
        if found:
            read["schemes"] = [scheme]
        name, _, port = rest.rstrip("/").partition(":")
        if port:
            read["port"] = int(port) if port.isdigit() else port
        return {**read, "host": name.lower().rstrip(".")}

    @field_validator("host")
    @classmethod
    def _name(cls, value: str) -> str:
        if not _HOST.match(value):
            raise ValueError(f"{value!r} is no host name (write HOST, HOST:PORT, *.SUFFIX or *)")
        return value


class Variable(Data):
    key: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")


class Allowed(Data, Generic[T]):
    """What is on the list, and nothing else."""

    allow: tuple[T, ...] = ()


class Permissions(Data):
    storage: Allowed[Storage] = Allowed()
    network: Allowed[Host] = Allowed()
    environment: Allowed[Variable] = Allowed()


class Naming(Data):
    """What a function is called and how it is described to the model, in place of what the component says.
    `parameters`: what each is for, by name.
    """

    name: str | None = None
    description: str | None = None
    parameters: dict[str, str] = Field(default_factory=dict)
    offered: bool = True


class ToolPolicy(Data):
    """A policy file. `tools`: by the function's name in the component."""

    version: str = "1.0"
    description: str = ""
    permissions: Permissions = Permissions()
    limits: Limits = Limits()
    tools: dict[str, Naming] = Field(default_factory=dict)

    @property
    def hosts(self) -> tuple[Host, ...]:
        return self.permissions.network.allow

    @property
    def asks_anybody(self) -> bool:
        """Whom the run may: what wasi:http needs, which knows no list."""
        return any(one.host == "*" and one == Host(host="*") for one in self.hosts)

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(one.key for one in self.permissions.environment.allow)


def beside(component: Path) -> Path | None:
    """The policy file of a component, by its name."""
    found = [component.with_suffix(suffix) for suffix in SUFFIXES if component.with_suffix(suffix).is_file()]
    if len(found) > 1:
        raise UsageError(f"{component}: there are two policies, {found[0].name} and {found[1].name}", "keep one")
    return found[0] if found else None


def read_policy(path: Path) -> ToolPolicy:
    """UsageError, naming file and key, for what is not understood: a rule that is passed over would be a lie."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no file")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_POLICY_BYTES:
        raise UsageError(f"{path} is larger than {MAX_POLICY_BYTES} bytes: this is no policy")
    try:
        values = _clean(
            parse_toml(data.decode()) if path.suffix == ".toml" else parse_yaml(data.decode(), aliases=False)
        )
    except (ValueError, RecursionError) as error:
        line = str(error).strip().splitlines() or ["it holds nothing"]
        raise UsageError(f"{path} cannot be understood: {line[0]}") from None
    if not isinstance(values, Mapping):
        raise UsageError(f"{path} holds no keys", "see docs/wasm.md for what a policy looks like")
    try:
        return ToolPolicy.model_validate(values, strict=False)
    except ValidationError as error:
        raise UsageError(f"{path}: {wrong_words(error)}", "see docs/wasm.md for the keys") from None


def _as_lists(values: Mapping[str, Any]) -> dict[str, Any]:
    """An empty YAML key is null; it means nothing given."""
    return {str(key): _clean(value) for key, value in values.items() if value is not None}


def _clean(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _as_lists(value)
    return [_clean(item) for item in value] if isinstance(value, list) else value


Folder = tuple[str, str, bool]
"""(path in the sandbox, path for the component, whether it may write)."""


def folders_of(policy: ToolPolicy, run: Policy, what: str) -> tuple[Folder, ...]:
    """The policy's folders in the sandbox of this run. UsageError for one that the run has not, or to read."""
    found: list[Folder] = []
    for rule in policy.permissions.storage.allow:
        inside, folder = _inside(rule.path, run)
        if folder is None:
            raise UsageError(
                f"{what}: its policy names {rule.path}, which is in no folder of this run",
                "the first --folder is /workspace" if _is_ours(rule.path) else f"--folder {rule.path} gives it",
            )
        write = "write" in rule.access
        if write and folder.mode == "ro":
            raise UsageError(f"{what}: its policy writes to {inside}, which is read-only", "give the folder as overlay")
        found.append((inside, rule.mount or inside, write))
    return tuple(found)


def _is_ours(path: str) -> bool:
    """A path as the sandbox sees it, rather than the host."""
    return not path.startswith("/") or path == WORKSPACE or path.startswith((f"{WORKSPACE}/", "/folders/"))


def _inside(path: str, run: Policy) -> tuple[str, FolderRule | None]:
    wanted = PurePosixPath(run.workdir, path)
    for rule in run.folders:
        if wanted.is_relative_to(rule.inside):
            return str(wanted), rule
    for rule in run.folders:
        if wanted.is_relative_to(rule.host):
            return str(PurePosixPath(rule.inside, wanted.relative_to(rule.host))), rule
    return str(wanted), None


def environment_of(policy: ToolPolicy, run: Policy, what: str) -> dict[str, str]:
    """The variables by name, as the run has them. UsageError for one that it was not given."""
    for name in policy.variables:
        if name not in run.environment:
            raise UsageError(f"{what}: its policy names the variable {name}", f"give it with --env {name}")
    return {name: run.environment[name] for name in policy.variables}


def check_network(policy: ToolPolicy, run: Policy, what: str) -> None:
    """UsageError when the policy names hosts and the run has no network at all."""
    if policy.hosts and run.network.mode == "none":
        names = ",".join(dict.fromkeys(one.host for one in policy.hosts))
        way = "--net HOST" if policy.asks_anybody else f"--net {names}"
        raise UsageError(f"{what}: its policy asks {names}, and this run has no network", way)
