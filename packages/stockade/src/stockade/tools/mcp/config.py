"""`.mcp.json`: which servers there are and how they are reached. Pure; what it cannot mean is a UsageError."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field

from stockade.core.data import Data
from stockade.core.errors import UsageError
from stockade.paths import read_regular

MAX_FILE_BYTES = 1_000_000
MAX_SERVERS = 16
MAX_NAME_CHARS = 64
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ServerConfig(Data):
    """A server: a program inside the sandbox (`command`), or an address (`url`)."""

    name: str
    command: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    lend: tuple[str, ...] = ()
    """Folders of the host that the program is made of."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The program with its folder and variables, as env(1) sets them."""
        if not self.env and self.cwd is None:
            return self.command
        folder = () if self.cwd is None else ("-C", self.cwd)
        return ("env", *folder, *(f"{name}={value}" for name, value in self.env.items()), *self.command)


def read_config(path: Path, variables: Mapping[str, str], secrets: Mapping[str, str]) -> tuple[ServerConfig, ...]:
    """The servers of a file. `${NAME}` and `${NAME:-OTHERWISE}` stand for `variables` and nothing else.

    `secrets` as well, in headers only: those never enter the sandbox.
    """
    try:
        data = read_regular(path, MAX_FILE_BYTES)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{path} is larger than {MAX_FILE_BYTES} bytes: this is no list of MCP servers")
    try:
        return parse_config(json.loads(data, object_pairs_hook=_once), variables, secrets)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", error.hint) from None


def parse_config(found: Any, variables: Mapping[str, str], secrets: Mapping[str, str]) -> tuple[ServerConfig, ...]:
    """The servers under `mcpServers` that are not disabled."""
    servers = found.get("mcpServers") if isinstance(found, dict) else None
    if not isinstance(servers, dict):
        raise UsageError(
            "there is no object mcpServers", 'write {"mcpServers": {"NAME": {"command": "...", "args": []}}}'
        )
    if len(servers) > MAX_SERVERS:
        raise UsageError(f"{len(servers)} servers are more than the {MAX_SERVERS} that a run may have")
    return tuple(
        _server(name, entry, variables, secrets)
        for name, entry in servers.items()
        if not (isinstance(entry, dict) and entry.get("disabled") is True)
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _server(name: str, entry: Any, variables: Mapping[str, str], secrets: Mapping[str, str]) -> ServerConfig:
    if not name.strip() or len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise UsageError(f"{name!r:.80} is no name for a server", f"1 to {MAX_NAME_CHARS} printable characters")
    if not isinstance(entry, dict):
        raise UsageError(f"{name}: a server is an object")
    kind = entry.get("type", "http" if "url" in entry else "stdio")
    if kind == "sse":
        raise UsageError(f"{name}: the old HTTP+SSE transport is not spoken here", 'give its streamable HTTP as "http"')
    try:
        if kind == "stdio":
            return _program(name, entry, variables)
        if kind in ("http", "streamable-http", "streamable_http"):
            return _address(name, entry, variables, secrets)
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", error.hint) from None
    raise UsageError(f"{name}: there is no transport {kind!r:.40}", "stdio or http")


def _program(name: str, entry: dict[str, Any], variables: Mapping[str, str]) -> ServerConfig:
    command, args, cwd = entry.get("command"), entry.get("args", []), entry.get("cwd")
    if not isinstance(command, str) or not command:
        raise UsageError("command is missing", 'write "command": "PROGRAM", "args": [...]')
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        raise UsageError("args is a list of strings")
    if cwd is not None and not isinstance(cwd, str):
        raise UsageError("cwd is a folder inside the sandbox")
    words = tuple(_expanded(word, variables) for word in (command, *args))
    env = {key: _expanded(value, variables) for key, value in _strings("env", entry).items()}
    for key in env:
        if not _VARIABLE_NAME.fullmatch(key):
            raise UsageError(f"env: {key!r:.40} is no name of a variable")
    if any("\0" in word for word in (*words, *env.values(), cwd or "")):
        raise UsageError("there is a NUL character in it")
    if (env or cwd) and "=" in words[0]:
        raise UsageError("the command holds '=', which env(1) takes for a variable", "give it without env and cwd")
    lend = entry.get("lend", [])
    if not isinstance(lend, list) or not all(isinstance(one, str) and one and "\0" not in one for one in lend):
        raise UsageError("lend is a list of folders")
    return ServerConfig(name=name, command=words, env=env, cwd=cwd, lend=tuple(lend))


def _address(
    name: str, entry: dict[str, Any], variables: Mapping[str, str], secrets: Mapping[str, str]
) -> ServerConfig:
    url = entry.get("url")
    if not isinstance(url, str):
        raise UsageError("url is missing", 'write "url": "https://HOST/mcp"')
    url = _expanded(url, variables)
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and not parts.username and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isprintable() or " " in url:
        raise UsageError(f"{url!r:.100} is no address", "write http:// or https://, a host, and no user name")
    known = {**variables, **secrets}
    headers = {key: _expanded(value, known, "--redact") for key, value in _strings("headers", entry).items()}
    if any(not key.isascii() or any(char in key + value for char in "\r\n\0") for key, value in headers.items()):
        raise UsageError("a header holds what none may hold")
    return ServerConfig(name=name, url=url, headers=headers)


def _strings(key: str, entry: dict[str, Any]) -> dict[str, str]:
    found = entry.get(key, {})
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise UsageError(f"{key} is an object of strings")
    return found


def _expanded(text: str, variables: Mapping[str, str], flag: str = "--env") -> str:
    def value(found: re.Match[str]) -> str:
        name, otherwise = found[1], found[3]
        if name in variables:
            return variables[name]
        if found[2] is not None:
            return otherwise or ""
        raise UsageError(f"it wants the variable {name}", f"give it with {flag} {name}")

    return _VARIABLE.sub(value, text)
